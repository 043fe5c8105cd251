"""Ranges of numbers: what is in them, and how they are said."""

import math

import pytest

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.number_range import NumberRange

COUNT = NumberRange(1, 256)
SHARE = NumberRange(0, 1, is_whole=False, open_below=True)


@pytest.mark.parametrize("value", [1, 256])
def test_a_range_holds_both_its_ends(value):
    assert value in COUNT


@pytest.mark.parametrize("value", [0, 257, 1.0, "1", None, True])
def test_whole_numbers_are_whole_and_no_truth_values(value):
    assert value not in COUNT


@pytest.mark.parametrize(("value", "is_in"), [(1e-9, True), (1, True), (0, False), (1.1, False), (math.nan, False)])
def test_a_range_can_be_open_below(value, is_in):
    assert (value in SHARE) is is_in


def test_a_refusal_names_the_range_and_the_value():
    with pytest.raises(InvalidParameter, match=r"^n must be a whole number from 1 to 256, not 0$"):
        COUNT.check("n", 0)
    with pytest.raises(InvalidParameter, match=r"^top_p must be above 0 and at most 1, not 1\.5$"):
        SHARE.check("top_p", 1.5)
    with pytest.raises(InvalidParameter, match=r"not one of more than 30 digits$"):
        COUNT.check("n", 10**9999)


def test_help_says_it_shortly():
    assert [COUNT.words, SHARE.words, NumberRange(2, 2**31 - 1).words] == ["1 to 256", "above 0 to 1", "from 2"]

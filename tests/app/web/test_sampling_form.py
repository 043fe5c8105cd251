"""What the settings' components hold, as sampling parameters; anything may come from a program instead of a page."""

import math
from dataclasses import fields, replace

import pytest

from paged_chat.app.web.handlers import SamplingForm
from paged_chat.app.web.setting_labels import QUOTED_LABELS
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams

FORM = SamplingForm.of(SamplingParams(temperature=0.7, top_k=40, n=2, seed=7, stop=("a", "b")))


def test_there_and_back():
    assert FORM.over(SamplingParams()) == SamplingParams(temperature=0.7, top_k=40, n=2, seed=7, stop=("a", "b"))
    assert replace(FORM, top_k=40.0, max_tokens=None).over(SamplingParams()).top_k == 40


@pytest.mark.parametrize(
    "name", [field.name for field in fields(SamplingForm) if field.name not in ("stop", "early_stopping")]
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1000, 10**400, "1", [1], {}, True, 1j])
def test_a_value_that_no_component_holds_is_refused_by_its_name(name, value):
    with pytest.raises(InvalidParameter):
        replace(FORM, **{name: value}).over(SamplingParams())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"beam_width": 3},
            "“Beam search” 3 looks for the likeliest replies and draws nothing: set “Temperature” to 0 instead of 0.7, "
            "or “Beam search” to 1",
        ),
        (
            {"beam_width": 3, "temperature": 0, "num_replies": 4},
            "“Replies side by side” is 4, but a search with “Beam search” 3 finds no more than 3 replies: "
            "raise “Beam search”, or ask for fewer",
        ),
        ({"max_tokens": 0}, "“Longest reply, in tokens” must be a whole number from 1 to 2147483647, not 0"),
        ({"num_alternatives": 99}, "“Alternatives kept for each token” must be a whole number from 0 to 64, not 99"),
        ({"stop": "x" * 2000}, "“Stop texts” must hold at most 64 strings of at most 1,000 characters each"),
    ],
)
def test_a_refusal_says_the_words_that_stand_on_the_page(changes, words):
    with pytest.raises(InvalidParameter) as refused:
        replace(FORM, **changes).over(SamplingParams())
    assert str(refused.value) == words


def test_every_setting_on_the_page_has_its_words():
    on_the_page = {field.name for field in fields(SamplingForm)} - {"num_replies", "num_alternatives"}
    assert set(QUOTED_LABELS) == on_the_page | {"n", "logprobs"}

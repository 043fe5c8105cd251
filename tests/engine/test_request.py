"""Sampling parameters: what is out of range is refused by name, where it is built."""

import math

import pytest

from paged_chat.engine import PagedChatError, SamplingParams
from paged_chat.engine.errors import InvalidParameter


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "temperature",
            (0, 0.0, 1e-6, 1, 2.5, 100),
            (-0.1, -1, 100.1, math.nan, math.inf, 10**400, -(10**9999), "1", None, True),
        ),
        ("top_k", (0, 1, 50), (-1, 1.5, "5", None, True)),
        ("top_p", (1e-9, 0.5, 1, 1.0), (0, -0.1, 1.1, math.nan, "1", None)),
        ("min_p", (0, 0.5, 1.0), (-0.1, 1.1, math.nan, None)),
        ("repetition_penalty", (0.5, 1, 1.3), (0, -1, math.inf, math.nan, None)),
        ("presence_penalty", (-2, 0, 2.0), (-101, 101, math.nan, None)),
        ("frequency_penalty", (-2, 0, 2.0), (-101, 101, math.nan, None)),
        ("max_tokens", (1, 10**6, None), (0, -1, 1.5, "5", True)),
        ("n", (1, 8), (0, -1, 1.5, 10**6, None, True)),
        ("seed", (0, 7, 2**63 - 1, None), (-1, 2**63, 10**9999, 1.5, "7", True)),
        ("stop", ("end", (), ("a", "b"), ["a"]), ("", ("a", ""), (5,), b"end", 5, None)),
        ("stop_token_ids", ((), (0, 5), [7]), ((-1,), (1.5,), ("a",), 5, None, "ab")),
        ("logprobs", (None, 0, 20), (-1, 1.5, 10**6, True)),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, good, bad):
    for value in good:
        SamplingParams(**{name: value})
    for value in bad:
        with pytest.raises(InvalidParameter, match=name):
            SamplingParams(**{name: value})


def test_the_message_names_the_value_and_the_range():
    with pytest.raises(InvalidParameter, match=r"top_p must be above 0 and at most 1, not 1\.5"):
        SamplingParams(top_p=1.5)
    with pytest.raises(InvalidParameter, match=r"max_tokens must be a whole number from 1 .*, not 0"):
        SamplingParams(max_tokens=0)


def test_a_refusal_is_an_error_a_caller_can_cause():
    with pytest.raises(PagedChatError):
        SamplingParams(n=0)


def test_one_stop_string_may_be_given_bare():
    assert SamplingParams(stop="end").stop == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_the_defaults_are_greedy_and_one_reply():
    params = SamplingParams()
    assert (params.temperature, params.n, params.seed, params.stop, params.ignore_eos) == (0.0, 1, None, (), False)


def test_parameters_cannot_be_changed():
    with pytest.raises(AttributeError):
        SamplingParams().temperature = 1.0

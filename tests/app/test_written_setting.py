"""Settings as people write and read them."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_chat.app.written_setting import (
    NONE_MEANS,
    SETTING_NAMES,
    allowed_words,
    as_written,
    in_spoken_names,
    read_setting,
    setting_words,
)
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import RANGES, SamplingParams


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0,7", 0.7),
        ("top_p", "1", 1.0),
        ("n", "4", 4),
        ("seed", "-", None),
        ("max_tokens", "off", None),
        ("stop", "none", ("none",)),
        ("early_stopping", "TRUE", True),
        ("early_stopping", "never", "never"),
        ("stop", "-", ()),
        ("stop", "END\n###", ("END", "###")),
    ],
)
def test_values(name, text, value):
    assert read_setting(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("n", "four", "n must be a whole number from 1 to 256, not 'four'"),
        ("n", "-", "n must be a whole number from 1 to 256, not '-'"),
        ("temperature", "warm", "temperature must be at least 0 and at most 100, not 'warm'"),
        ("temperature", "", "temperature must be at least 0 and at most 100, not ''"),
        (
            "logprobs",
            "1.5",
            "logprobs must be a whole number from 0 to 64, or - (no alternatives are kept), not '1.5'",
        ),
        ("early_stopping", "maybe", "early stopping must be true, false or never, not 'maybe'"),
        ("top_k", "9" * 40, "top k must be"),
    ],
)
def test_what_is_no_value_is_refused_with_what_it_may_be(name, text, words):
    with pytest.raises(InvalidParameter) as refused, in_spoken_names():
        replace(SamplingParams(), **{name: read_setting(name, text)})
    assert str(refused.value).startswith(words)


def test_what_the_engine_refuses_is_told_in_the_same_names():
    with pytest.raises(InvalidParameter, match=r"^repetition penalty must be above 0 and at "), in_spoken_names():
        SamplingParams(repetition_penalty=0.0)
    with pytest.raises(InvalidParameter, match=r"^beam width 3 looks for .* or beam width to 1$"), in_spoken_names():
        SamplingParams(beam_width=3, temperature=0.5)


def test_words():
    assert setting_words("temperature", 0.7) == "temperature 0.7"
    assert setting_words("top_k", 40) == "top k 40"
    assert setting_words("early_stopping", False) == "early stopping false"
    assert setting_words("seed", None) == "seed -, drawn anew each time"
    assert setting_words("max_tokens", None) == "max tokens -, what the window holds"
    assert allowed_words("min_p") == "0 to 1"
    assert allowed_words("early_stopping") == ""


def test_every_setting_that_can_have_no_value_says_what_that_means():
    may_be_none = {one.name for one in fields(SamplingParams) if "None" in str(one.type)}
    assert may_be_none == set(NONE_MEANS)


@given(st.data())
def test_what_is_written_is_read_as_it_was(data):
    name = data.draw(st.sampled_from(SETTING_NAMES))
    if name in RANGES:
        allowed = RANGES[name]
        # Screens show six digits.
        value = (
            data.draw(st.integers(allowed.least, allowed.most))
            if allowed.is_whole
            else data.draw(st.integers(1, 100_000).map(lambda parts: parts / 100_000))
        )
    else:
        value = data.draw(st.sampled_from([(), ("END",), ("a", "b")] if name == "stop" else [True, False, "never"]))
    assert read_setting(name, as_written(value)) == value

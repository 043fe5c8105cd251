"""How replies differ, and the table of them, exactly."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_samples import reply
from paged_chat.app.chats import ReplyVariant
from paged_chat.app.comparison.comparison import compare_replies
from paged_chat.app.comparison.table import write_table
from paged_chat.app.comparison.variant import KeptSettings, WrittenVariant, variant_in
from paged_chat.app.comparison.word_diff import word_diff
from paged_chat.engine.request import SamplingParams


def spans(reference, text):
    return [(span.kind, span.text) for span in word_diff(reference, text)]


@pytest.mark.parametrize(
    ("reference", "text", "expected"),
    [
        ("a cat sat", "a dog sat", [("same", "a "), ("only there", "cat "), ("only here", "dog "), ("same", "sat")]),
        ("one\ntwo", "one two", [("same", "one two")]),
        ("Yes.", "Yes!", [("same", "Yes"), ("only there", "."), ("only here", "!")]),
        ("", "new", [("only here", "new")]),
        ("old", "", [("only there", "old")]),
        ("日本語", "日本人", [("same", "日本"), ("only there", "語"), ("only here", "人")]),
    ],
)
def test_a_reply_differs_in_words(reference, text, expected):
    assert spans(reference, text) == expected


@given(*[st.lists(st.sampled_from(["a", "b", " ", "\n", ".", "é", "日", "👩‍👩‍👧"])).map("".join)] * 2)
def test_nothing_of_a_text_is_lost(reference, text):
    assert "".join(part for kind, part in spans(reference, text) if kind != "only there") == text
    assert all(part for _, part in spans(reference, text))
    assert {kind for kind, _ in spans(text, text)} <= {"same"}


def replies():
    cold = SamplingParams(temperature=0.0, seed=7)
    hot = SamplingParams(temperature=1.2, top_p=0.5, seed=7)
    return [
        reply(2, 1, "A cat | a dog.\n", sampling=cold, variant=ReplyVariant("cold")),
        reply(3, 1, "A newt.", sampling=hot, variant=ReplyVariant("hot|terse", "Be brief.\nVery."), cost=None),
    ]


MARKDOWN = """\
# 2 replies compared

> Which pet?
>
> Name one.

| reply | settings | tokens | reused | computed | TTFT ms | tok/s | finish |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |
| cold | temperature 0, top p 1, system prompt none | 3 | 212 | 31 | 48 | 118 | stop |
| hot\\|terse | temperature 1.2, top p 0.5, system prompt Be brief. |  |  |  |  |  | stop |

## cold

A cat | a dog.

## hot|terse

A newt.
"""
CSV = """\
reply,settings,tokens,reused,computed,TTFT ms,tok/s,finish,text
cold,"temperature 0, top p 1, system prompt none",3,212,31,48,118,stop,"A cat | a dog.
"
hot|terse,"temperature 1.2, top p 0.5, system prompt Be brief.",,,,,,stop,A newt.
"""


def test_the_table_as_markdown_and_csv():
    comparison = compare_replies("Which pet?\n\nName one.", replies())
    assert write_table(comparison, "md") == MARKDOWN
    assert write_table(comparison, "csv") == CSV


def test_the_table_as_json_has_exact_figures():
    first, second = json.loads(write_table(compare_replies("Which?", replies()), "json"))["replies"]
    assert first == {
        "name": "cold",
        "settings": {"temperature": "0", "top p": "1", "system prompt": "none"},
        "tokens": 3,
        "reused": 212,
        "computed": 31,
        "ttft_ms": 48.5,
        "tokens_per_s": 118.25,
        "finish": "stop",
        "text": "A cat | a dog.\n",
    }
    assert second["settings"]["system prompt"] == "Be brief.\nVery."
    assert second["tokens"] is None


KEPT = KeptSettings({"warm": SamplingParams(temperature=1.0), "a, b": SamplingParams()}, {"terse": "Be brief."})


@pytest.mark.parametrize(
    ("word", "written", "name"),
    [
        ("warm", WrittenVariant(preset="warm"), "warm"),
        ("a, b", WrittenVariant(preset="a, b"), "a, b"),
        ("chat", WrittenVariant(), "this chat"),
        ("temp=0", WrittenVariant(changes={"temperature": "0"}), "temperature 0"),
        (
            "warm,top-p=0.9,system=terse",
            WrittenVariant(preset="warm", changes={"top_p": "0.9"}, system="terse"),
            "warm, top p 0.9, system terse",
        ),
        ("system=-", WrittenVariant(system="-"), "no system prompt"),
    ],
)
def test_a_variant_is_written_in_a_word_and_named_by_what_differs(word, written, name):
    assert variant_in(word, KEPT) == written
    assert str(written) == name

"""Every setting of a chat can be compared, as a person writes it."""

from dataclasses import fields, replace

import pytest

from paged_chat.app.comparison.variant import KeptSettings, WrittenVariant, read_variants, variant_in
from paged_chat.app.errors import ComparisonRefused
from paged_chat.app.written_setting import SETTING_NAMES
from paged_chat.engine.request import SamplingParams

NOTHING_KEPT = KeptSettings({}, {})
CHATS_OWN = SamplingParams(stop=("END",), seed=7)
WRITTEN = {
    "temperature": "0",
    "top_k": "40",
    "top_p": "0.9",
    "min_p": "0.05",
    "repetition_penalty": "1.1",
    "presence_penalty": "-0.5",
    "frequency_penalty": "0.25",
    "max_tokens": "-",
    "seed": "9007199254740991",
    "logprobs": "5",
    "beam_width": "4",
    "length_penalty": "0.5",
    "early_stopping": "never",
    "stop": "\nfirst stop\n###\n",
}
READ = SamplingParams(
    temperature=0.0,
    top_k=40,
    top_p=0.9,
    min_p=0.05,
    repetition_penalty=1.1,
    presence_penalty=-0.5,
    frequency_penalty=0.25,
    max_tokens=None,
    seed=9007199254740991,
    logprobs=5,
    beam_width=4,
    length_penalty=0.5,
    early_stopping="never",
    stop=("first stop", "###"),
)
# How many replies: a variant is one. What is no person's to choose: the model's own end tokens.
NOT_COMPARED = {"n", "stop_token_ids", "ignore_eos"}


def read(changes):
    own, changed = read_variants(
        [WrittenVariant(name="own"), WrittenVariant(changes=changes)], CHATS_OWN, None, NOTHING_KEPT
    )
    assert own.sampling == CHATS_OWN
    return changed


def test_all_settings_can_be_changed_at_once():
    assert {one.name for one in fields(SamplingParams)} - NOT_COMPARED == set(SETTING_NAMES) == set(WRITTEN)
    assert read(WRITTEN).sampling == READ


def test_no_stop_text_is_a_value_too():
    assert read({"stop": "-"}).sampling == replace(CHATS_OWN, stop=())


def test_on_a_command_line_a_stop_text_is_a_word():
    assert variant_in("stop=###,early-stopping=true", NOTHING_KEPT).changes == {"stop": "###", "early_stopping": "true"}


def test_the_name_has_all_stop_texts_on_one_line():
    assert read({"stop": "a\nb"}).name == "stop a b"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("early_stopping", "soon", "early stopping must be true, false or never, not 'soon'"),
        (
            "seed",
            "1.5",
            "seed must be a whole number from 0 to 9223372036854775807, or - (drawn anew each time), not '1.5'",
        ),
        ("top_p", "much", "top p must be above 0 and at most 1, not 'much'"),
        ("top_p", "nan", "top p must be"),
        ("temperature", "inf", "temperature must be"),
        ("top_k", "-1", "top k must be"),
        ("seed", "1" * 30, "seed must be"),
    ],
)
def test_what_is_no_value_is_refused_with_its_name(name, text, words):
    with pytest.raises(ComparisonRefused) as refused:
        read({name: text})
    assert words in str(refused.value)

"""Faults that users of other systems met, each as a story: stop strings, characters of several bytes, one BOS."""

from collections.abc import Callable
from pathlib import Path

import pytest

from case_prompts import PROMPT
from paged_chat.engine import ChatMessage
from replies import all_steps, ask, drawn, greedy, ids_of
from slot_runner import Heard, Listener, SlotRunner, make_core, script
from slot_runner import greedy as greedy_core
from tiny_tokenizer import BOS, END, spelled, tokenizer_in, with_tokenizer

# E15: stop strings


@pytest.fixture
def say(tmp_path: Path) -> Callable[..., Heard]:
    """What is heard of a model that says `text`, a byte a token; end tokens and lost bytes can be put in."""
    tokenizer = tokenizer_in(tmp_path / "tokenizer")

    def hear(reply: list[int], shown: list[str] | None = None, max_tokens: int = 200, **fields: object) -> Heard:
        runner = SlotRunner(logits_of=script(2, [*reply, *[END] * 5], 320))
        core = make_core(runner, tokenizer=tokenizer, vocab_size=320, end_token_ids=[END])
        listener = Listener(core)
        request_id = core.submit([BOS, 5], greedy_core(max_tokens, **fields))
        while core.has_unfinished:
            for delta in listener.step():
                if shown is not None:
                    shown.append(delta.text)
        return listener.reply(request_id)

    return hear


def test_e15_no_part_of_a_stop_string_is_ever_shown(say):
    shown: list[str] = []
    heard = say(spelled("ABCDEFGHIJKLM"), shown, stop=["DEFGHIJ"])
    assert heard.text == "ABC"
    assert shown == ["A", "B", "C", "", "", "", "", "", "", ""]
    assert heard.finish_reason == "stop"
    assert heard.token_ids == spelled("ABCDEFGHIJ")


def test_e15_held_back_text_is_released_as_soon_as_it_cannot_match(say):
    shown: list[str] = []
    heard = say(spelled("ABCDEFGxyz"), shown, stop=["DEFGHIJ"])
    assert shown == ["A", "B", "C", "", "", "", "", "DEFGx", "y", "z", ""]
    assert (heard.text, heard.finish_reason) == ("ABCDEFGxyz", "stop")


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("ABABABC.", ["ABABC"], "AB"),
        ("aaab", ["aab"], "a"),
        ("one two", ["two", "one two"], ""),
        ("abcdef", ["cde", "bcdef"], "ab"),
        ("STOPnow", ["STOP"], ""),
        ("nothing here", ["STOP"], "nothing here"),
    ],
)
def test_e15_stop_strings_that_begin_again_within_themselves(say, text, stop, expected):
    heard = say(spelled(text), stop=stop)
    assert heard.text == expected


@pytest.mark.parametrize("max_tokens", [4, 6, 9])
def test_e15_at_the_end_of_the_reply_held_text_is_shown(say, max_tokens):
    heard = say(spelled("ABCDEFGHIJ"), stop=["DEFGHIJ"], max_tokens=max_tokens)
    assert (heard.text, heard.finish_reason) == ("ABCDEFGHIJ"[:max_tokens], "length")


def test_e15_with_a_real_model_the_text_is_cut_before_the_first_match(make_engine, tiny_model, tmp_path):
    engine = make_engine(model=str(with_tokenizer(tiny_model(), tmp_path / "speaks")))
    whole = ask(engine, PROMPT[:20], greedy(40)).samples[0]
    stop = whole.text[10:13]
    request_id = engine.submit(PROMPT[:20], greedy(40, stop=[stop]))
    deltas = all_steps(engine)
    text = "".join(delta.text for delta in deltas)
    assert text == whole.text[: whole.text.index(stop)]
    assert deltas[-1].finish_reason == "stop"
    assert ids_of(deltas, request_id) == whole.token_ids[: len(ids_of(deltas, request_id))]


# E16: characters of several bytes


@pytest.mark.parametrize("text", ["👩‍👩‍👧", "日本語のテキスト", "naïve café", "a👩‍👩‍👧b日c"])
def test_e16_no_broken_character_while_streaming(say, text):
    shown: list[str] = []
    heard = say(spelled(text), shown)
    assert all("\ufffd" not in part for part in shown)
    assert "".join(shown) == heard.text == text


def test_e16_a_reply_cut_in_the_middle_of_a_character_shows_no_broken_one(say):
    heard = say(spelled("a日本"), max_tokens=5)  # the last character lacks two of its three bytes
    assert (heard.text, heard.finish_reason) == ("a日", "length")
    assert heard.token_ids == spelled("a日本")[:5]


def test_e16_the_deltas_joined_are_the_final_text(make_engine, tiny_model, tmp_path):
    engine = make_engine(model=str(with_tokenizer(tiny_model(), tmp_path / "speaks")))
    request_id = engine.submit(PROMPT[:20], drawn(60, temperature=1.5, seed=1))
    deltas = all_steps(engine)
    [sample] = ask(engine, PROMPT[:20], drawn(60, temperature=1.5, seed=1)).samples
    assert "".join(delta.text for delta in deltas) == sample.text
    assert ids_of(deltas, request_id) == sample.token_ids


# E17: one BOS


def test_e17_a_template_that_adds_bos_and_a_tokenizer_that_does_too_make_one(make_engine, tiny_model, tmp_path):
    engine = make_engine(model=str(with_tokenizer(tiny_model(), tmp_path / "speaks")))
    token_ids = engine.encode_chat([ChatMessage("user", "hi")])
    assert token_ids == [BOS, *spelled("user:hi"), END, *spelled("assistant:")]
    assert engine.generate(["hi"], greedy(1))[0].num_prompt_tokens == 3  # BOS and two bytes

"""Where a prompt parts from what was sent before, and why."""

from collections.abc import Sequence
from typing import Any

import pytest

from chat_path import WINDOW, ChatPath
from chat_templates import APPENDING, DATED, NEEDS_THOUGHTS, SYSTEM_LAST, TRIMS_HISTORY
from paged_chat.app.transcript.divergence import Divergence
from paged_chat.app.transcript.transcript import Transcript
from paged_chat.engine.text import chat_encoder, template_environment
from text_model import TextModel
from tiny_tokenizer import spelled


def divergence_after(
    source: str, reply: str, token_ids: Sequence[int] | None = None, question: str = "one", **encode: Any
) -> Divergence | None:
    """Of the second turn of a chat; `encode` may replace its system prompt."""
    transcript = Transcript(TextModel(source), WINDOW)
    path = ChatPath().ask(question)
    transcript.encode("Be kind", path.messages)
    return transcript.encode(
        encode.get("system_prompt", "Be kind"), path.reply(reply, token_ids).ask("two").messages
    ).divergence


def test_an_edited_system_prompt_is_named_with_its_first_other_token() -> None:
    plan = divergence_after(APPENDING["chatml"], "1", system_prompt="Be rude")
    index = len("<|im_start|>system\nBe ")
    assert plan == Divergence(index, spelled("k")[0], spelled("r")[0], "system prompt edited")


def test_a_template_that_moves_the_system_prompt_is_named() -> None:
    found = divergence_after(SYSTEM_LAST, "1")
    index = len("<|im_start|>")
    assert found == Divergence(index, spelled("B")[0], spelled("o")[0], "template changed history")


def test_a_template_that_trims_what_was_said_before_is_named() -> None:
    found = divergence_after(TRIMS_HISTORY, "1", question=" one ")
    assert found is not None
    assert (found.sent_token_id, found.token_id, found.cause) == (*spelled(" o"), "text trimmed")


def test_a_template_that_drops_thoughts_and_the_reply_s_place_with_them_is_named() -> None:
    found = divergence_after(NEEDS_THOUGHTS, "am</think>answer")
    assert found is not None
    assert (found.sent_token_id, found.token_id, found.cause) == (*spelled("mn"), "thinking dropped")


def test_a_template_that_repeats_replies_leaves_no_place_for_their_ids_and_is_named() -> None:
    source = (
        "{% for m in messages %}{{ m.role + ':' + m.content + '</s>' }}"
        "{% if m.role == 'assistant' %}{{ '(said: ' + m.content + ')' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    )
    found = divergence_after(source, "hehe")
    he = 259
    assert found is not None
    assert (found.sent_token_id, found.token_id, found.cause) == (spelled("h")[0], he, "reply encoded anew")


def test_a_new_date_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    day = ["29"]
    for module in (template_environment, chat_encoder):
        monkeypatch.setattr(module, "read_clock", lambda format_: format_.replace("%d", day[0]))
    transcript = Transcript(TextModel(DATED), WINDOW)
    path = ChatPath().ask("one")
    transcript.encode(None, path.messages)
    path.reply("1").ask("two")
    assert transcript.encode(None, path.messages).divergence is None
    day[0] = "30"
    index = len("<|im_start|>system\nToday is ")
    found = transcript.encode(None, path.messages).divergence
    assert found == Divergence(index, spelled("2")[0], spelled("3")[0], "date changed")
    # From then on that is what was sent.
    assert transcript.encode(None, path.messages).divergence is None


@pytest.mark.parametrize("source", APPENDING.values(), ids=APPENDING)
def test_templates_that_append_never_diverge(source: str) -> None:
    transcript, path = Transcript(TextModel(source), WINDOW), ChatPath()
    for turn, reply in enumerate(["he ", "<think>\nhm\n</think>\n\nhello", "", " 日本 ", "</s>"]):
        plan = transcript.encode("Be kind", path.ask(f" {turn} ").messages)
        assert plan.divergence is None
        path.reply(reply, spelled(reply))

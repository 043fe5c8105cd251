"""Chats longer than the window: which old turns are left out, and what is too long even alone."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_path import WINDOW, ChatPath, long_path, prompt_of
from chat_templates import APPENDING
from paged_chat.app.transcript.transcript import ContextPlan, Transcript
from paged_chat.engine import ChatMessage
from paged_chat.engine.errors import ChatTemplateInvalid, PromptTooLong
from text_model import TextModel
from tiny_tokenizer import END, spelled


def test_old_turns_leave_in_steps_of_half_a_window(model: TextModel) -> None:
    transcript = Transcript(model, 400)
    left_out = []
    for num_turns in range(30):
        plan = transcript.encode(None, long_path(num_turns).ask("now").messages, max_tokens=40)
        left_out.append(plan.num_left_out_turns)
        assert plan.num_tokens + 40 <= 400
        assert plan.left_out_ids == tuple(range(1, 2 * plan.num_left_out_turns + 1))
    # A turn is 36 tokens: 9 of them fit beside the question, and 6 are a step.
    assert left_out == [0] * 10 + [6] * 6 + [12] * 6 + [18] * 6 + [24] * 2


def test_the_prefix_stays_stable_between_two_steps(model: TextModel) -> None:
    transcript, path = Transcript(model, 1000), ChatPath()
    moves = 0
    before: tuple[int, ...] = ()
    for turn in range(60):
        path.ask(f"{turn:06}")
        plan = transcript.encode("Be kind", path.messages, max_tokens=50)
        assert plan.token_ids[:17] == prompt_of("system:Be kind</s>user")[:17]
        if plan.token_ids[: len(before)] != before:
            moves += 1
            assert plan.divergence is not None
            assert plan.divergence.cause == "context policy moved"
            assert plan.num_tokens <= 650
        else:
            assert plan.divergence is None
        path.reply(f"{turn:06}")
        before = plan.token_ids + (path.messages[-1].token_ids or ())
    assert moves == 2


@settings(deadline=None, max_examples=40)
@given(
    window=st.integers(60, 600),
    turns=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=25),
    asked=st.integers(0, 100),
    max_tokens=st.one_of(st.none(), st.integers(1, 300)),
    has_system=st.booleans(),
)
def test_the_same_path_is_cut_the_same_after_a_restart_and_on_branches(
    window: int, turns: list[tuple[int, int]], asked: int, max_tokens: int | None, has_system: bool
) -> None:
    model = TextModel()
    system_prompt = "Be kind" if has_system else None

    def plan(transcript: Transcript, path: ChatPath) -> ContextPlan | None:
        try:
            return transcript.encode(system_prompt, path.messages, max_tokens=max_tokens)
        except PromptTooLong:
            return None

    grown, path = Transcript(model, window), ChatPath()
    for number, (num_asked, num_replied) in enumerate(turns):
        path.ask("?" * num_asked)
        plan(grown, path)
        if number == len(turns) // 2:
            plan(grown, path.branch(len(path.messages) - 1).ask("another branch"))
        path.reply("!" * num_replied)
    path.ask("?" * asked)
    after, restarted = plan(grown, path), plan(Transcript(TextModel(), window), path)
    # 17 tokens are the template's, 15 the system prompt's with its own; a reply needs 16, or what it wants.
    needed = min(16, max_tokens or 16, (window - 7 * has_system) // 4)
    fits = asked + 17 + 15 * has_system + needed <= window
    assert (after is not None) == (restarted is not None)
    if after is None or restarted is None:
        assert not fits
        return
    assert fits
    assert replace(after, divergence=None) == restarted
    assert after.num_tokens < window
    kept = [message for message in path.messages if message.id not in after.left_out_ids]
    assert kept == path.messages[len(after.left_out_ids) :]
    assert kept[0].role == "user"
    assert after.num_left_out_turns == len(after.left_out_ids) // 2
    expected = ([ChatMessage("system", "Be kind")] if has_system else []) + [
        ChatMessage(message.role, message.text, message.token_ids if message.text else message.token_ids and ())
        for message in kept
    ]
    assert list(after.token_ids) == TextModel().encode_chat(expected)


def test_a_message_that_alone_is_too_long_is_refused_with_the_numbers(model: TextModel) -> None:
    path = ChatPath().ask("one").reply("1").ask("x" * 200)
    said = r"message has 200 tokens.*window holds 200, 7 of them for the system prompt.*shorten it"
    with pytest.raises(PromptTooLong, match=said):
        Transcript(model, 200).encode("Be kind", path.messages)
    with pytest.raises(PromptTooLong, match=r"200 tokens, and the model's window holds 210, and the reply"):
        Transcript(model, 210).preview(None, path.messages[:2], "x" * 200)
    with pytest.raises(PromptTooLong, match=r"system prompt has 1,200 tokens.*window holds 200: shorten it"):
        Transcript(model, 200).encode("x" * 1200, path.messages[:1])


def test_a_template_that_asks_for_a_system_prompt_gets_what_it_needs() -> None:
    asking = "{% if messages[0].role != 'system' %}{{ raise_exception('no system prompt') }}{% endif %}"
    transcript = Transcript(TextModel(asking + APPENDING["words alone"]), WINDOW)
    path = ChatPath().ask("one").reply("1").ask("two")
    plan = transcript.encode("Be kind", path.messages)
    before, after = spelled("system: Be kind\nuser: one\nassistant: 1"), spelled("\nuser: two\nassistant: ")
    assert plan.token_ids == (*before, END, *after)
    with pytest.raises(ChatTemplateInvalid, match="no system prompt"):
        transcript.encode(None, path.messages)


def test_a_message_that_nearly_fills_the_window_gets_what_is_left(model: TextModel) -> None:
    path = ChatPath().ask("one").reply("1").ask("x" * 160)
    plan = Transcript(model, 200).encode(None, path.messages, max_tokens=100)
    assert (plan.num_tokens, plan.left_out_ids) == (177, (1, 2))


def test_a_reply_that_goes_on_beyond_the_window_loses_old_turns_and_no_word(model: TextModel) -> None:
    transcript = Transcript(model, 400)
    path = long_path(8).ask("now")
    sent = transcript.encode(None, path.messages, max_tokens=40)
    assert sent.num_left_out_turns == 0
    path.reply("x" * 80, spelled("x" * 80), finish_reason="length")
    plan = transcript.encode(None, path.messages, continue_reply=True, max_tokens=40)
    assert plan.num_left_out_turns == 6
    ending = prompt_of("user:now</s>assistant:" + "x" * 80)[1:]
    assert plan.token_ids[-len(ending) :] == ending
    assert plan.num_tokens + 40 <= 400
    assert plan.divergence is not None
    assert plan.divergence.cause == "context policy moved"

"""Why a reply found no more, with the default model: a story for each cause."""

from contextlib import contextmanager

import pytest

from chat_desk import events_of
from chat_templates import NEEDS_THOUGHTS, template_of
from paged_chat.app.chats import NewReply
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.service.served_engine import ServedEngine
from paged_chat.app.store.store import Store
from paged_chat.engine import AsyncEngine, Engine
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.progress import OnProgress
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S

pytestmark = pytest.mark.default_model

SHORT = SamplingParams(temperature=0.0, max_tokens=12)
# The default model's template puts a system message of its own before a chat that has none.
NUM_COMMON = 24


@contextmanager
def service_over(path, open_engine=None, **options):
    config = EngineConfig(weights="int4", **{"num_blocks": 256, **options})
    with Store(path) as store, ChatService(store, open_engine, config=config, default_sampling=SHORT) as service:
        service.tokens.count("x").result(PATIENCE_S)
        yield service


@pytest.fixture
def service(default_model, tmp_path):
    with service_over(tmp_path / "chats.db") as service:
        yield service


def ended(service, reply):
    with service.watch(reply.chat_id, until_idle=True) as watcher:
        events_of(watcher)
    return service.message(reply.chat_id, reply.id)


def ask(service, chat, text):
    """The reply, and why its prompt found no more."""
    [draft] = service.send(chat.id, text).replies
    reply = ended(service, draft)
    assert reply.status == "done", reply.error
    reason = service.miss_reason(chat.id, reply.id)
    assert (reason.num_cached_tokens, reason.num_prompt_tokens) == (
        reply.cost.num_cached_tokens,
        reply.cost.num_cached_tokens + reply.cost.num_computed_tokens,
    )
    return reply, reason


def num_read(reply):
    """Tokens of its prompt and of itself that the engine has read: all but its last."""
    return reply.cost.num_cached_tokens + reply.cost.num_computed_tokens + reply.cost.num_generated_tokens - 1


def test_the_first_message_ever_then_new_text_then_an_edited_system_prompt(service):
    chat = service.create_chat(system_prompt="You are a kind guide.")
    first, cold = ask(service, chat, "Name a city.")
    assert (cold.cause, cold.is_fault, cold.token_index, cold.num_cached_tokens) == ("first message", False, 0, 0)
    assert "nothing went wrong" in str(cold)
    second, goes_on = ask(service, chat, "And a river?")
    assert (goes_on.cause, goes_on.is_fault, goes_on.token_index) == ("new text", False, num_read(first))
    service.update_chat(chat.id, system_prompt="You are a rude guide.")
    planned = service.plans.send(chat.id, "And a hill?").result(PATIENCE_S).miss
    _, edited = ask(service, chat, "And a hill?")
    assert edited == planned, "it was known before"
    assert (edited.cause, edited.is_fault) == ("system prompt edited", True)
    assert (edited.before, edited.text[:11], edited.cached_text) == ("system\nYou are a", " rude guide", " kind")
    assert (edited.token_index, edited.block_index, edited.num_common_tokens) == (6, 0, 6)
    assert str(edited) == (
        f"6 of {edited.num_prompt_tokens} tokens were reused. From token 7 on: the system prompt was edited"
    )
    # A retry finds all of it.
    [draft] = service.retry(chat.id, second.id).replies
    service.update_chat(chat.id, system_prompt="You are a kind guide.")
    ended(service, draft)
    [again] = service.retry(chat.id, second.id).replies
    ended(service, again)
    assert service.miss_reason(chat.id, again.id).cause == "all reused"


def test_another_person_s_prompt_is_of_no_use_and_isnt_told_of(service):
    ann, bob = service.create_chat(user="ann"), service.create_chat(user="bob")
    ask(service, ann, "Name a city by the sea.")
    _, same = ask(service, bob, "Name a city by the sea.")
    assert (same.cause, same.is_fault, same.num_cached_tokens) == ("other salt", False, 0)
    assert (same.cached_text, same.candidate_block, same.num_evicted_tokens) == (None, None, 0)
    # Bob's next chat begins like his first one.
    _, own = ask(service, service.create_chat(user="bob"), "What is 2 + 2?")
    assert (own.cause, own.num_cached_tokens) == ("new text", NUM_COMMON)


def test_blocks_that_others_needed_were_evicted(default_model, tmp_path):
    with service_over(tmp_path / "chats.db", num_blocks=16) as service:
        old = service.create_chat()
        first, _ = ask(service, old, "Name a city by the sea.")
        ask(service, service.create_chat(), "Repeat after me: " + "one two three four " * 45)
        _, reason = ask(service, old, "And a river?")
        assert (reason.cause, reason.is_fault) == ("evicted", True)
        assert reason.num_cached_tokens + reason.num_evicted_tokens == num_read(first)
        assert "a larger pool keeps more" in str(reason)


def test_a_chat_that_outgrows_the_window_begins_elsewhere(default_model, tmp_path):
    with service_over(tmp_path / "chats.db", max_model_len=192) as service:
        chat = service.create_chat(system_prompt="Be brief.")
        num_left_out, causes = [], []
        for number in range(8):
            question = f"Tell me fact number {number}."
            num_left_out.append(service.plans.send(chat.id, question).result(PATIENCE_S).num_left_out_turns)
            causes.append(ask(service, chat, question)[1].cause)
        first_out = next(place for place, number in enumerate(num_left_out) if number)
        expected = ["first message", *["new text"] * 7]
        expected[first_out] = "context policy moved"
        assert causes == expected
        assert num_left_out[-1] == num_left_out[first_out], "it moves in big steps"


def test_another_model_has_read_the_chat_before(service, tmp_path):
    """As after a switch of models: the chat's last reply is from the one before."""
    with Store(tmp_path / "chats.db") as store:
        chat = store.create_chat(sampling=SHORT)
        turn = store.add_turn(chat.id, None, "Name a city.", [NewReply(model="qwen3-0.6b", sampling=SHORT)])
        store.finish_reply(
            turn.replies[0].id, text="Lisbon.", token_ids=(7, 9), status="done", finish_reason="stop", cost=None
        )
    _, reason = ask(service, chat, "And a river?")
    assert (reason.cause, reason.was_read_by, reason.num_cached_tokens) == ("other model", "qwen3-0.6b", 0)
    assert str(reason).endswith(
        "From token 1 on: qwen3-0.6b has read this chat before, and one model's cache is of no use to another"
    )
    assert ask(service, chat, "And a hill?")[1].cause == "new text"


def test_after_a_new_start_the_cache_is_empty(default_model, tmp_path):
    with service_over(tmp_path / "chats.db") as service:
        chat = service.create_chat()
        first, cold = ask(service, chat, "Name a city.")
    with service_over(tmp_path / "chats.db") as service:
        _, reason = ask(service, chat, "And a river?")
        assert (reason.cause, reason.is_fault, reason.num_cached_tokens) == ("loaded since", True, 0)
        # What was said of the turn before the start is kept with it.
        assert service.miss_reason(chat.id, first.id) == cold


class ThoughtlessModel(Engine):
    """The default model with a template that leaves thoughts out, and has no place for a reply's own tokens."""

    def __init__(self, config: EngineConfig, on_progress: OnProgress) -> None:
        super().__init__(config, on_progress)
        self._chat_template = template_of(self.tokenizer, NEEDS_THOUGHTS)


def open_thoughtless(config: EngineConfig, on_progress: OnProgress) -> ServedEngine:
    return AsyncEngine(config, on_progress, build=ThoughtlessModel)


def test_a_template_that_drops_thinking(default_model, tmp_path):
    with service_over(tmp_path / "chats.db", open_thoughtless) as service:
        chat = service.create_chat()
        [draft] = service.send(chat.id, "Name a city.").replies
        reply = ended(service, draft)
        # This model doesn't think by itself: its reply is made to, token by token.
        engine = service.ask_engine(lambda engine: engine.encode("Hm.</think>")).result(PATIENCE_S)
        for place, token_id in enumerate(engine):
            reply = ended(service, service.branch_at_token(chat.id, reply.id, place, token_id))
        assert reply.text.startswith("Hm.</think>")
        _, reason = ask(service, chat, "And a river?")
        assert (reason.cause, reason.is_fault) == ("thinking dropped", True)
        assert reason.is_from_this_chat
        assert reason.before.endswith("assistant")

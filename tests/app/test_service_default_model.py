"""The service over the default model: what the fake engine can't show."""

from dataclasses import replace

import pytest

from chat_desk import events_of
from paged_chat.app.service import ChatService
from paged_chat.app.store import Store
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import SamplingParams

LOAD_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def home_of_module(default_model_path):
    """Loaded once for all of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGED_CHAT_HOME", str(default_model_path.parent.parent.parent))
        yield


@pytest.fixture(scope="module")
def service(home_of_module, tmp_path_factory):
    # Packed weights alone give the same tokens to the bit, whatever is computed beside them.
    with Store(tmp_path_factory.mktemp("chats") / "chats.db") as store:
        service = ChatService(store, config=EngineConfig(num_blocks=256, weights="int4"))
        service.count_tokens("x").result(LOAD_PATIENCE_S)
        yield service
        service.close()


def answers(service, chat, replies):
    """The replies once they have ended."""
    with service.watch(chat.id, until_idle=True) as watcher:
        events_of(watcher)
    return [service.message(chat.id, reply.id) for reply in replies]


def ask(service, chat, text, **options):
    return answers(service, chat, service.send(chat.id, text, **options).replies)


@pytest.mark.default_model
def test_the_second_turn_finds_all_of_the_first_but_its_last_token(service):
    chat = service.create_chat(sampling=SamplingParams(temperature=0.8, seed=3, max_tokens=40), user="two turns")
    [first] = ask(service, chat, "Name three colours.")
    plan = service.plan(chat.id, "And three fruits?").result(LOAD_PATIENCE_S)
    [second] = ask(service, chat, "And three fruits?")
    total = first.cost.num_cached_tokens + first.cost.num_computed_tokens + first.cost.num_generated_tokens
    assert second.cost.num_cached_tokens == total - 1
    assert plan.num_reused_tokens == total - 1
    assert plan.divergence is None
    assert second.text


@pytest.mark.default_model
def test_four_replies_cost_one_prefill_and_differ(service):
    chat = service.create_chat(sampling=SamplingParams(temperature=1.0, seed=10, max_tokens=16), user="four replies")
    replies = ask(service, chat, "Think of a name for a cat that likes to sleep on warm books.", n=4)
    prompt = replies[0].cost.num_computed_tokens
    assert prompt > 20
    assert [reply.cost.num_computed_tokens for reply in replies] == [prompt, 0, 0, 0]
    assert len({reply.token_ids for reply in replies}) == 4
    # Each is what a request of its own with its seed would say, and finds the prompt but for its last token.
    again = service.retry(chat.id, replies[2].id, sampling=SamplingParams(temperature=1.0, seed=8, max_tokens=16))
    [alone] = answers(service, chat, again.replies)
    assert alone.token_ids == replies[2].token_ids
    assert alone.cost.num_computed_tokens == 1


@pytest.mark.default_model
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_reply_that_is_continued_says_what_it_would_have_said(service, temperature):
    sampling = SamplingParams(temperature=temperature, seed=6, max_tokens=24)
    chat = service.create_chat(sampling=sampling, user=f"continued at {temperature}")
    [whole] = ask(service, chat, "Tell me about the sea.")
    assert whole.finish_reason == "length"
    # A retry takes the number after the seed: so this one draws with 6 too.
    cut_turn = service.retry(chat.id, whole.id, sampling=replace(sampling, seed=5, max_tokens=12))
    [cut] = answers(service, chat, cut_turn.replies)
    assert cut.token_ids == whole.token_ids[:12]
    service.continue_reply(chat.id, cut.id)
    [continued] = answers(service, chat, [cut])
    assert continued.token_ids == whole.token_ids
    assert continued.text == whole.text
    assert continued.cost.num_generated_tokens == 24

"""The service over the default model: what the fake engine can't show."""

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from chat_desk import events_of
from paged_chat.app.comparison.variant import WrittenVariant
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S


@pytest.fixture(scope="module")
def home_of_module(default_model_path):
    """Loaded once for all of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGED_CHAT_HOME", str(default_model_path.parent.parent.parent))
        yield


@pytest.fixture(scope="module")
def service(home_of_module, tmp_path_factory):
    # Packed weights alone give the same tokens to the bit, whatever is computed beside them.
    with Store(tmp_path_factory.mktemp("chats") / "chats.db") as store, open_service(store) as service:
        yield service


@contextmanager
def open_service(store, **options):
    """One that has loaded the model."""
    with ChatService(store, config=EngineConfig(num_blocks=256, weights="int4", **options)) as service:
        service.tokens.count("x").result(PATIENCE_S)
        yield service


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
    plan = service.plans.send(chat.id, "And three fruits?").result(PATIENCE_S)
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


@pytest.mark.default_model
def test_a_reply_that_is_continued_again_and_again_says_what_it_would_have_said(service):
    sampling = SamplingParams(temperature=0.0, max_tokens=40)
    chat = service.create_chat(sampling=sampling, user="continued often")
    ask(service, chat, "Tell me about 日本 and its mountains, with emoji 👩‍👩‍👧.")
    [reply] = ask(service, chat, question := "Go on.", sampling=replace(sampling, max_tokens=30))
    cut_turn = service.retry(chat.id, reply.id, sampling=replace(sampling, max_tokens=5))
    [cut] = answers(service, chat, cut_turn.replies)
    # Half an emoji is dropped before it goes on, so that five more tokens aren't always five.
    while len(cut.token_ids) < 30:
        before = len(cut.token_ids)
        service.continue_reply(chat.id, cut.id)
        [cut] = answers(service, chat, [cut])
        assert before < len(cut.token_ids) <= before + 5
        assert cut.token_ids[:30] == reply.token_ids[: len(cut.token_ids)]
    assert cut.text.startswith(reply.text.rstrip("\ufffd"))
    assert service.tree(chat.id).path(cut.id)[-2].text == question


@pytest.mark.default_model
def test_c5_a_chat_longer_than_the_window_goes_on_from_the_cache(default_model, tmp_path):
    with Store(tmp_path / "chats.db") as store, open_service(store, max_model_len=256) as service:
        sampling = SamplingParams(temperature=0.8, seed=1, max_tokens=24)
        chat = service.create_chat(system_prompt="Be brief.", sampling=sampling)
        num_left_out, num_steps, total = 0, 0, 0
        for number in range(14):
            plan = service.plans.send(chat.id, f"Tell me fact number {number}.").result(PATIENCE_S)
            [reply] = ask(service, chat, f"Tell me fact number {number}.")
            assert reply.status == "done"
            assert plan.num_prompt_tokens + sampling.max_tokens <= 256
            if plan.num_left_out_turns > num_left_out:
                assert plan.divergence.cause == "context policy moved"
                num_left_out, num_steps = plan.num_left_out_turns, num_steps + 1
            elif number:
                # Between two steps nothing is read twice but the last token.
                assert reply.cost.num_cached_tokens == total - 1
            total = sum((reply.cost.num_cached_tokens, reply.cost.num_computed_tokens, len(reply.token_ids)))
        # Each step leaves out half a window: three turns of 40 tokens.
        assert (num_steps, num_left_out) == (3, 9)


WRITER = """
import sys
from pathlib import Path
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import SamplingParams
service = ChatService(Store(Path(sys.argv[1])), config=EngineConfig(num_blocks=256, weights="int4"))
chat = service.create_chat(sampling=SamplingParams(max_tokens=150, ignore_eos=True))
service.send(chat.id, "Tell me a long story.")
with service.watch(chat.id) as watcher:
    for event in watcher:
        print(getattr(event, "num_generated_tokens", 0), flush=True)
"""


@pytest.mark.default_model
def test_c3_a_killed_reply_goes_on_as_if_nothing_had_happened(default_model, tmp_path):
    path = tmp_path / "chats.db"
    with subprocess.Popen([sys.executable, "-P", "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        while int(writer.stdout.readline()) < 100:
            assert writer.poll() is None
        writer.kill()
    with Store(path) as store, open_service(store) as service:
        [chat] = service.chats()
        [question, draft] = service.tree(chat.id)
        assert (question.text, draft.status) == ("Tell me a long story.", "stopped")
        assert draft.text
        num_kept = len(draft.token_ids)
        assert num_kept < 150, "it was killed too late"
        [whole] = answers(service, chat, service.retry(chat.id, draft.id).replies)
        assert whole.token_ids[:num_kept] == draft.token_ids
        service.continue_reply(chat.id, draft.id)
        [continued] = answers(service, chat, [draft])
        assert continued.token_ids[:150] == whole.token_ids


@pytest.mark.default_model
def test_a_branch_reuses_all_before_it_and_says_what_it_would_have_said(service):
    sampling = SamplingParams(temperature=0.0, max_tokens=24, logprobs=3)
    chat = service.create_chat(sampling=sampling, user="branches")
    [reply] = ask(service, chat, "Name a large city in France.")
    prompt = reply.cost.num_cached_tokens + reply.cost.num_computed_tokens
    shown = service.tokens.of_reply(chat.id, reply.id).result(PATIENCE_S)
    assert "".join(token.piece.text for token in shown.tokens).startswith(reply.text)
    assert all(token.alternatives[0].is_written for token in shown.tokens), "greedy takes the likeliest"
    place = 5
    second = shown.tokens[place].alternatives[1]
    plan = service.plans.branch_at_token(chat.id, reply.id, place).result(PATIENCE_S)
    assert (plan.num_reused_tokens, plan.num_computed_tokens) == (prompt + place, 1)
    draft = service.branch_at_token(chat.id, reply.id, place, second.piece.token_id)
    [branch] = answers(service, chat, [draft])
    assert branch.token_ids[: place + 1] == (*reply.token_ids[:place], second.piece.token_id)
    assert (branch.cost.num_cached_tokens, branch.cost.num_computed_tokens) == (prompt + place, 1)
    branched = service.tokens.of_reply(chat.id, branch.id).result(PATIENCE_S)
    assert branched.tokens[place].probability == pytest.approx(second.probability, rel=0.01)
    # Taking the first one again leads back to what was said.
    back = service.branch_at_token(chat.id, branch.id, place, reply.token_ids[place])
    [again] = answers(service, chat, [back])
    assert (again.token_ids, again.text, again.finish_reason) == (reply.token_ids, reply.text, reply.finish_reason)


@pytest.mark.default_model
def test_alternatives_that_are_worked_out_later_are_those_that_would_have_been_kept(service):
    chat = service.create_chat(sampling=SamplingParams(temperature=0.0, max_tokens=12, logprobs=5), user="weighed")
    [reply] = ask(service, chat, "Name a river in Spain.")
    kept = service.tokens.of_reply(chat.id, reply.id).result(PATIENCE_S)
    for place in (0, 7, len(kept.tokens) - 1):
        token = service.tokens.alternatives_at(chat.id, reply.id, place).result(PATIENCE_S)
        assert [one.piece for one in token.alternatives] == [one.piece for one in kept.tokens[place].alternatives]
        assert token.probability == pytest.approx(kept.tokens[place].probability, rel=0.01)
        assert service.plans.branch_at_token(chat.id, reply.id, place).result(PATIENCE_S).num_computed_tokens == 1


def test_a_question_under_three_settings(service):
    """A reply beside others is the one that its settings give alone; the same prompt is computed once."""
    chat = service.create_chat(sampling=SamplingParams(temperature=0.0, max_tokens=12))
    text = "Which animals live on a farm? Name three of them, and say in a word what each is for."
    written = [
        WrittenVariant(),
        WrittenVariant(changes={"temperature": "0.9", "seed": "7"}),
        WrittenVariant(system_prompt="You are a farmer."),
    ]
    turn = service.compare(chat.id, text, service.variants(chat.id, written))
    own, warm, farmer = answers(service, chat, turn.replies)
    assert [reply.variant.name for reply in (own, warm, farmer)] == [
        "this chat",
        "temperature 0.9, seed 7",
        "own system prompt",
    ]
    assert warm.cost.num_cached_tokens >= (warm.cost.num_cached_tokens + warm.cost.num_computed_tokens) // 16 * 16 - 16
    assert farmer.cost.num_cached_tokens < 16
    [alone] = ask(service, service.create_chat(sampling=warm.sampling), text)
    assert alone.token_ids == warm.token_ids
    [asked] = ask(service, service.create_chat(sampling=own.sampling, system_prompt="You are a farmer."), text)
    assert asked.token_ids == farmer.token_ids

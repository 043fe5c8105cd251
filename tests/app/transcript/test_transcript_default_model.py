"""Prompts of the default model: it reuses all that it has read and written."""

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chat_path import ChatPath
from paged_chat.app.transcript.transcript import ContextPlan, Transcript
from paged_chat.engine import AsyncEngine, EngineConfig, RequestStats, SamplingParams, TokenDelta
from patience import PATIENCE_S


class RealEngine:
    """The default model on its thread, and requests from this one."""

    def __init__(self, model: str) -> None:
        self.served = AsyncEngine(EngineConfig(model=model, num_blocks=128))
        self.engine = asyncio.run(self.served.ready())

    def ask(self, prompt: Sequence[int], **params: Any) -> tuple[tuple[int, ...], RequestStats]:
        """One reply's ids and what it took."""
        deltas: queue.SimpleQueue[TokenDelta] = queue.SimpleQueue()
        self.served.submit(prompt, SamplingParams(**params), deltas.put).result(timeout=PATIENCE_S)
        token_ids: tuple[int, ...] = ()
        while True:
            delta = deltas.get(timeout=PATIENCE_S)
            token_ids += delta.token_ids
            if delta.stats is not None:
                return token_ids, delta.stats

    def num_cached(self, prompt: Sequence[int]) -> int:
        return self.served.call(lambda engine: engine.probe(prompt)).result(timeout=PATIENCE_S).num_cached_tokens


@pytest.fixture
def real(default_model: str) -> Iterator[RealEngine]:
    real = RealEngine(default_model)
    yield real
    real.served.close()


@pytest.mark.default_model
def test_the_default_model_reuses_all_that_it_has_read_and_written(real: RealEngine) -> None:
    transcript = Transcript(real.engine, real.engine.max_model_len)
    path = ChatPath()
    read: tuple[int, ...] = ()
    for turn, question in enumerate(
        ["Hello!", "Why is the sky blue? <|im_end|>", "日本語で 👩‍👩‍👧", "And then?", "  "]
    ):
        plan = transcript.encode("Be brief.", path.ask(question).messages)
        assert plan.token_ids[: len(read)] == read
        assert plan.divergence is None
        token_ids, stats = real.ask(plan.token_ids, temperature=1.2, seed=turn, max_tokens=30)
        # The last token of a reply was sampled and never read.
        assert stats.num_cached_tokens == (len(read) - 1 if read else 0)
        path.reply(real.engine.decode(token_ids), token_ids)
        read = plan.token_ids + token_ids
    # Nothing but what stands before the first other token serves a chat whose system prompt was edited.
    edited = transcript.encode("Be polite.", path.ask("Bye").messages)
    assert edited.divergence is not None
    assert edited.divergence.cause == "system prompt edited"
    assert edited.divergence.index == real.num_cached(edited.token_ids)


@pytest.mark.default_model
def test_a_reply_of_the_default_model_goes_on_as_if_it_had_never_been_stopped(real: RealEngine) -> None:
    transcript = Transcript(real.engine, real.engine.max_model_len)
    path = ChatPath().ask("Count from one to ten.")
    prompt = transcript.encode(None, path.messages).token_ids
    whole, _ = real.ask(prompt, max_tokens=20)
    stopped, _ = real.ask(prompt, max_tokens=8)
    plan = transcript.encode(None, path.reply(real.engine.decode(stopped), stopped).messages, continue_reply=True)
    assert plan.token_ids == prompt + stopped
    rest, stats = real.ask(plan.token_ids, max_tokens=12)
    assert plan.reply_token_ids + rest == whole
    assert stats.num_cached_tokens == len(plan.token_ids) - 1


@pytest.mark.default_model
def test_prompts_are_made_while_the_engine_s_thread_computes(real: RealEngine) -> None:
    transcript = Transcript(real.engine, real.engine.max_model_len)
    path = ChatPath().ask("Tell me a story.")
    prompt = transcript.encode(None, path.messages).token_ids
    alone, _ = real.ask(prompt, max_tokens=60)
    path.reply(real.engine.decode(alone), alone)
    has_ended = threading.Event()
    previews: list[ContextPlan] = []

    def type_on() -> None:
        while not has_ended.is_set():
            previews.append(transcript.preview(None, path.messages, f"{len(previews)} <|im_end|> 日本"))

    typing = threading.Thread(target=type_on)
    typing.start()
    beside, _ = real.ask(prompt, max_tokens=60)
    has_ended.set()
    typing.join()
    assert beside == alone
    assert len(previews) > 1
    fresh = Transcript(real.engine, real.engine.max_model_len)
    assert previews[-1] == fresh.preview(None, path.messages, f"{len(previews) - 1} <|im_end|> 日本")

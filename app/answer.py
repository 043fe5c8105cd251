"""One prompt answered by a synchronous engine: deltas out as they come, and the figures of the whole."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paged_chat.engine import PrefixProbe
from paged_chat.engine.errors import StepFailed
from paged_chat.engine.request import (
    BeamPreview,
    BlockUse,
    FinishReason,
    RequestStats,
    SamplingParams,
    TokenDelta,
    TokenLogprobs,
)


class StepEngine(Protocol):
    """The part of `Engine` that a request needs."""

    def submit(self, prompt_token_ids: Sequence[int], params: SamplingParams, *, salt: str = "") -> str: ...
    def step(self) -> Sequence[TokenDelta]: ...
    def abort(self, request_id: str) -> object: ...
    def beam_previews(self) -> Sequence[BeamPreview]: ...


@dataclass(slots=True)
class Reply:
    """One reply as far as it has come; `finish_reason` is None until its last token."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of each token, where they were asked for
    finish_reason: FinishReason | None = None
    stats: RequestStats | None = None
    score: float | None = None  # of beam search


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All replies to one prompt; times in milliseconds of wall clock, None where there was no token to time.

    Of beam search, times are as `RequestStats` says. block_use: of several replies or beams together.
    prefix: what the prompt found in the cache, and why no more; None where it was stopped before it could look.
    """

    num_prompt_tokens: int
    num_cached_tokens: int
    replies: tuple[Reply, ...]
    ttft_ms: float | None
    total_ms: float
    decode_tokens_per_s: float | None  # over all replies, after the first token of each
    block_use: BlockUse | None = None
    prefix: PrefixProbe | None = None

    @property
    def num_completion_tokens(self) -> int:
        return sum(len(reply.token_ids) for reply in self.replies)

    @property
    def num_drafted_tokens(self) -> int:
        """Guessed ahead and verified, in all replies that have ended."""
        return sum(reply.stats.num_drafted_tokens for reply in self.replies if reply.stats is not None)

    @property
    def num_accepted_tokens(self) -> int:
        """Of those, the ones that were right and saved a step."""
        return sum(reply.stats.num_accepted_tokens for reply in self.replies if reply.stats is not None)


def run_request(
    engine: StepEngine,
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    on_delta: Callable[[TokenDelta], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_preview: Callable[[BeamPreview], None] | None = None,
) -> Answer:
    """Submits one prompt and steps the engine until every reply is whole, or `should_stop` says so.

    Stopped replies keep what they have and end with "abort". A beam search says nothing before its end; `on_preview`
    hears after each step where it stands. Raises StepFailed where the engine couldn't go on.
    """
    start = time.perf_counter()
    first_token = None
    request_id = engine.submit(prompt_token_ids, params)
    replies = [Reply(index) for index in range(params.n)]
    is_aborted = False
    try:
        while any(reply.finish_reason is None for reply in replies):
            if not is_aborted and should_stop():
                # The next step computes nothing for it, and reports how each reply ended.
                engine.abort(request_id)
                is_aborted = True
            for delta in engine.step():
                if delta.request_id != request_id:
                    continue
                if delta.error is not None:
                    raise StepFailed(delta.error)
                reply = replies[delta.sample]
                reply.text += delta.text
                reply.token_ids += delta.token_ids
                reply.logprobs += delta.logprobs
                reply.finish_reason, reply.stats = delta.finish_reason, delta.stats
                reply.score = delta.score
                if first_token is None and delta.token_ids:
                    first_token = time.perf_counter()
                on_delta(delta)
            if on_preview is not None and params.is_beam_search:
                for preview in engine.beam_previews():
                    on_preview(preview)
    finally:
        # Whatever interrupts this, the blocks go back to the pool.
        if any(reply.finish_reason is None for reply in replies):
            engine.abort(request_id)
    ttft_ms, rate = _pace(replies, params, start, first_token)
    return Answer(
        num_prompt_tokens=len(prompt_token_ids),
        num_cached_tokens=next((reply.stats.num_cached_tokens for reply in replies if reply.stats), 0),
        replies=tuple(replies),
        ttft_ms=ttft_ms,
        total_ms=(time.perf_counter() - start) * 1e3,
        decode_tokens_per_s=rate,
        block_use=_most([reply.stats.block_use for reply in replies if reply.stats]),
        prefix=next((reply.stats.prefix for reply in replies if reply.stats), None),
    )


def _pace(
    replies: Sequence[Reply], params: SamplingParams, start: float, first_token: float | None
) -> tuple[float | None, float | None]:
    """Milliseconds to the first token, and tokens a second after it; None where there was none."""
    if first_token is None:
        return None, None
    best = replies[0].stats
    if params.is_beam_search and best is not None:  # all of its tokens come at once, at its end
        return best.ttft_ms, best.decode_tokens_per_s or None
    num_decoded = sum(max(0, len(reply.token_ids) - 1) for reply in replies)
    ttft_ms = (first_token - start) * 1e3
    return ttft_ms, num_decoded / (time.perf_counter() - first_token) if num_decoded else None


def _most(uses: Sequence[BlockUse | None]) -> BlockUse | None:
    """That of the whole request: each reply that ends tells what was counted so far."""
    return max((use for use in uses if use is not None), key=lambda use: use.num_blocks, default=None)

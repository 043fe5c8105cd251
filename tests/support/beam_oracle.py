"""Beam search without blocks, as plainly as it can be written, and what is asked of the one with blocks."""

from collections.abc import Callable

import pytest
import torch

from paged_chat.engine.request import SamplingParams
from slot_runner import Heard, entry, random_logits

Logprobs = Callable[[tuple[int, ...]], list[float]]


def beams(width: int, max_tokens: int, **others: object) -> SamplingParams:
    fields = {"n": width, "ignore_eos": True, **others}
    return SamplingParams(beam_width=width, max_tokens=max_tokens, **fields)  # type: ignore[arg-type]


def search_plainly(
    logprobs_after: Logprobs, ends: frozenset[int], params: SamplingParams
) -> list[tuple[tuple[int, ...], float]]:
    """Straight from the definition, each step over every continuation of every beam: (reply, score), best first."""
    width, penalty = params.beam_width, params.length_penalty
    limit = params.max_tokens or 0
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    done: list[tuple[tuple[int, ...], float]] = []
    for length in range(1, limit + 1):
        longer = [
            ((*tokens, token_id), total + logprob)
            for tokens, total in live
            for token_id, logprob in enumerate(logprobs_after(tokens))
        ]
        longer.sort(key=lambda beam: -beam[1])
        longer = longer[: max(2, 1 + len(ends)) * width]
        has_ended = {tokens: length == limit or tokens[-1] in ends for tokens, _ in longer}
        done += [(tokens, total / length**penalty) for tokens, total in longer[:width] if has_ended[tokens]]
        done = sorted(done, key=lambda reply: -reply[1])[:width]
        live = [beam for beam in longer if not has_ended[beam[0]]][:width]
        if not live:
            break
        reach = limit if params.early_stopping == "never" and penalty > 0 else length
        if len(done) == width and (params.early_stopping is True or live[0][1] / reach**penalty <= done[-1][1]):
            break
    return done[: params.n]


def found(replies: list[Heard]) -> list[tuple[tuple[int, ...], float | None]]:
    return [(tuple(reply.token_ids), reply.score) for reply in replies]


def expect(asked: list[int], params: SamplingParams) -> list[tuple[tuple[int, ...], float]]:
    """What the stand-in model's search finds when nothing is paged."""

    def logprobs_after(tokens: tuple[int, ...]) -> list[float]:
        history: list[bytes] = []
        for token_id in (*asked, *tokens):
            history.append(entry(history, token_id))
        return torch.log_softmax(random_logits(history), 0).tolist()

    return search_plainly(logprobs_after, frozenset(params.stop_token_ids), params)


def assert_found(replies: list[Heard], asked: list[int], params: SamplingParams) -> None:
    expected = expect(asked, params)
    assert [tuple(reply.token_ids) for reply in replies] == [ids for ids, _ in expected]
    assert [reply.score for reply in replies] == pytest.approx([score for _, score in expected], abs=1e-4)

"""Penalties on the logits of tokens that prompt or reply have already."""

from collections.abc import Callable
from functools import cache

import numpy as np

from .simd import SOURCE_STAMP, compiled


@compiled()
def penalise(logits, token_ids, num_prompt_tokens, repetition, presence, frequency):  # type: ignore[no-untyped-def]
    """Changes logits [vocab] in place. Repetition counts prompt and reply; presence and frequency the reply alone.

    token_ids: [n] of prompt and reply together; Each token is penalised once, however often
    it occurs; only `frequency` is taken off for each occurrence.
    """
    if repetition != 1:
        factor = np.float32(repetition)
        values = np.empty(token_ids.size, np.float32)
        for i in range(token_ids.size):
            values[i] = logits[token_ids[i]]
        for i in range(token_ids.size):
            value = values[i]
            logits[token_ids[i]] = value / factor if value > 0 else value * factor
    if presence != 0 or frequency != 0:
        occurrences = np.zeros(logits.size, np.int32)
        for i in range(num_prompt_tokens, token_ids.size):
            occurrences[token_ids[i]] += 1
        for i in range(num_prompt_tokens, token_ids.size):
            token = token_ids[i]
            if occurrences[token]:
                logits[token] -= np.float32(presence) + np.float32(frequency) * np.float32(occurrences[token])
                occurrences[token] = 0


@cache
def compile_penalties() -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def run(logits, token_ids, num_prompt_tokens, repetition, presence, frequency):  # type: ignore[no-untyped-def]
        _ = stamp
        penalise(logits, token_ids, num_prompt_tokens, repetition, presence, frequency)

    return run

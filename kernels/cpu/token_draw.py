"""Draws tokens from rows of logits: penalties, temperature, what is cut off, and the cumulative distribution inverted.

Compiled, and all rows of a step in one call, because most of it was Python's own time. The vocabulary is read once or
twice; after that, only chunks that hold tokens that may be drawn.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import carray

from .penalties import penalise
from .simd import SOURCE_STAMP, compiled, pointer
from .vocabulary import CHUNK, find_peaks, first_of, num_chunks, weigh_chunk

_NEGLIGIBLE = -40.0
"""A chunk whose likeliest token weighs less than e to this counts as nothing: a whole vocabulary of such tokens is less
than what is lost to rounding, and no number that is drawn is so near 0 or 1."""
_ABOVE_NOTHING = 1e-45  # the least float32 above 0


@compiled()
def _sum(values):  # type: ignore[no-untyped-def]
    total = 0.0
    for value in values:
        total += np.float64(value)
    return total


@compiled()
def _gather(logits, rest, top, inverse, sums, heaviest, least):  # type: ignore[no-untyped-def]
    """The tokens that weigh at least so much, which is more than 0: their ids, in order, and what they weigh."""
    num_likely = 0
    for chunk in range(heaviest.size):
        if heaviest[chunk] >= least:
            num_likely += 1
    ids, theirs = np.empty(num_likely * CHUNK, np.int64), np.empty(num_likely * CHUNK, np.float32)
    weights = np.empty(CHUNK, np.float32)
    count = 0
    for chunk in range(heaviest.size):
        if heaviest[chunk] >= least:
            weigh_chunk(logits, chunk, rest, top, inverse, sums, heaviest, weights)
            for i in range(CHUNK):
                if weights[i] >= least:
                    ids[count], theirs[count] = chunk * CHUNK + i, weights[i]
                    count += 1
    return ids[:count], theirs[:count]


@compiled()
def _bound(values, wanted, is_counted):  # type: ignore[no-untyped-def]
    """The greatest number such that the values from it on sum up to `wanted`, or are so many; else the least value.

    A selection by threes: what is above the pivot, equal to it, and below. Changes the order of `values`.
    """
    start, stop = 0, values.size
    while True:
        pivot = values[(start + stop) // 2]
        above, at, below = start, start, stop
        sum_above = sum_equal = 0.0
        while at < below:
            value = values[at]
            share = 1.0 if is_counted else np.float64(value)
            if value > pivot:
                sum_above += share
                values[at], values[above] = values[above], value
                above += 1
                at += 1
            elif value < pivot:
                below -= 1
                values[at], values[below] = values[below], value
            else:
                sum_equal += share
                at += 1
        if sum_above >= wanted:
            stop = above
        elif sum_above + sum_equal >= wanted or below == stop:
            return np.float64(pivot)
        else:
            wanted -= sum_above + sum_equal
            start = below


@compiled()
def _weight_of_rank(logits, rest, top, inverse, sums, heaviest, rank):  # type: ignore[no-untyped-def]
    """What the token weighs that only `rank - 1` others outweigh; 0 is as good for one that weighs nothing."""
    bound = 0.0
    if rank <= heaviest.size:  # so many chunks hold a token that weighs as much: the one asked for does, too
        bound = _bound(heaviest.copy(), np.float64(rank), True)
    _, likely = _gather(logits, rest, top, inverse, sums, heaviest, max(bound, _ABOVE_NOTHING))
    return _bound(likely, np.float64(rank), True) if rank <= likely.size else 0.0


@compiled()
def _place(weights, least, target):  # type: ignore[no-untyped-def]
    """The first of those that weigh at least so much with which their sum passes `target`, and that sum without it.

    Never one of weight 0: where rounding leaves none, the last with weight.
    """
    reached, last, before_last = 0.0, 0, 0.0
    for i in range(weights.size):
        weight = weights[i]
        if weight > 0 and weight >= least:
            last, before_last = i, reached
            reached += np.float64(weight)
            if reached > target:
                break
    return last, before_last


@compiled()
def _draw_one(logits, rest, peaks, sums, heaviest, weights, settings, top_k, number):  # type: ignore[no-untyped-def]
    find_peaks(logits, rest, peaks)
    top, inverse, top_p, least = peaks.max(), np.float32(settings[0]), settings[1], settings[2]
    if inverse == 0 or top == np.inf:
        return first_of(logits, peaks, top)
    for chunk in range(peaks.size):
        if (peaks[chunk] - top) * inverse < _NEGLIGIBLE:
            sums[chunk] = heaviest[chunk] = 0
        else:
            weigh_chunk(logits, chunk, rest, top, inverse, sums, heaviest, weights)
    total = _sum(sums)
    if 0 < top_k < logits.size:
        least = max(least, _weight_of_rank(logits, rest, top, inverse, sums, heaviest, top_k))
    if least == 0 and top_p == 1:
        # Sums of float32 are off by a ten millionth or so, by which the likelihoods of a chunk's last tokens may be.
        chunk, before = _place(sums, 0.0, number * total)
        weigh_chunk(logits, chunk, rest, top, inverse, sums, heaviest, weights)
        return chunk * CHUNK + _place(weights, 0.0, number * total - before)[0]
    if least > 0:
        ids, theirs = _gather(logits, rest, top, inverse, sums, heaviest, least)
        total = _sum(theirs)
    else:
        # What is below this comes to no more than may be left out, and is most of a vocabulary: few are left then.
        negligible = max((1 - top_p) * total / logits.size, _ABOVE_NOTHING)
        ids, theirs = _gather(logits, rest, top, inverse, sums, heaviest, negligible)
    if top_p < 1:
        least = _bound(theirs.copy(), top_p * total, False)
    kept = 0.0
    for weight in theirs:
        kept += np.float64(weight) if weight >= least else 0.0
    return ids[_place(theirs, least, number * kept)[0]]


@cache
def compile_draw() -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def draw(rows_at, histories_at, vocab_size, settings, counts, numbers, drawn):  # type: ignore[no-untyped-def]
        """drawn [n] = a token from each row, as SamplingParams says.

        rows_at: [n] addresses of float32 [vocab]; several may be the same. What is penalised is restored after it.
        histories_at: [n] addresses of int64 [num_tokens], of prompt and reply together where there are penalties.
        settings: [n, 6] float64, 1 / temperature (0 takes the likeliest), top p, min p, and the penalties: repetition,
            presence, frequency.
        counts: [n, 3] int64, top k, num_prompt_tokens, num_tokens (0 where nothing is penalised).
        numbers: [n] float64 in [0, 1).
        """
        _ = stamp
        rest, weights = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.float32)
        peaks = np.empty(num_chunks(vocab_size), np.float32)
        sums, heaviest = np.empty_like(peaks), np.empty_like(peaks)
        for i in range(drawn.size):
            logits = carray(pointer(rows_at[i]), (vocab_size,), np.float32)
            top_k, num_prompt_tokens, num_tokens = counts[i]
            token_ids = carray(pointer(histories_at[i]), (num_tokens,), np.int64)
            unchanged = np.empty(num_tokens, np.float32)
            for j in range(num_tokens):
                unchanged[j] = logits[token_ids[j]]
            if num_tokens:
                penalise(logits, token_ids, num_prompt_tokens, settings[i, 3], settings[i, 4], settings[i, 5])
            drawn[i] = _draw_one(logits, rest, peaks, sums, heaviest, weights, settings[i], top_k, numbers[i])
            for j in range(num_tokens):
                logits[token_ids[j]] = unchanged[j]

    return draw

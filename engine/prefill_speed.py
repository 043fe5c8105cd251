"""How fast prompts are computed, learnt from the steps that have run, and what the next one will take."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .metrics import TimeEstimate

SAMPLES_PER_SIZE = 8  # the newest, of steps of one size
MIN_SAMPLES = 3
NEAR = 4.0  # what is predicted is at most so many times larger or smaller than what was measured
MAX_RELATIVE_ERROR = 0.5
OUTLIER = 4.0  # times the usual error
# Of a normal distribution the standard deviation is so many median absolute deviations.
DEVIATIONS = 1.4826


@dataclass(frozen=True, slots=True)
class Work:
    """What steps compute: how many there are, how many tokens, and how many pairs of a token and one that it sees."""

    num_steps: int = 0
    num_tokens: int = 0
    num_attended: int = 0

    @property
    def step_size(self) -> float:
        """Tokens of a step."""
        return self.num_tokens / self.num_steps

    def __add__(self, other: Work) -> Work:
        return Work(
            self.num_steps + other.num_steps,
            self.num_tokens + other.num_tokens,
            self.num_attended + other.num_attended,
        )


def num_attended(num_before: int, num_new: int) -> int:
    """Pairs of one of the new tokens and one that it sees: itself and all before it."""
    end = num_before + num_new
    return (end * (end + 1) - num_before * (num_before + 1)) // 2


class PrefillSpeed:
    """Expects a time of `a · steps + b · tokens + c · attended pairs`, fitted to what was measured.

    The three can't be negative. Errors count in proportion, and steps of nearly the size in question count most: a
    processor's kernels change with the size, so no three numbers hold from one token to thousands. What took far longer
    than it should, because the machine was busy with something else, is left out.

    Of each size, to the power of two, the newest measurements are kept, so that a thousand steps of one token don't
    drive out the few prompts.
    """

    def __init__(self) -> None:
        self._samples: dict[int, deque[tuple[Work, float]]] = {}  # by the bits of the step's size
        self._pending, self._pending_s = Work(), 0.0

    def add(self, work: Work, seconds: float, *, is_done: bool) -> None:
        """A step has run.

        is_done: its results were waited for. A GPU goes on with others beside us; their time shows in the next step
        that is waited for, so they count together with that one.
        """
        self._pending, self._pending_s = self._pending + work, self._pending_s + seconds
        if not is_done:
            return
        size = int(self._pending.step_size).bit_length()
        samples = self._samples.setdefault(size, deque(maxlen=SAMPLES_PER_SIZE))
        samples.append((self._pending, self._pending_s))
        self._pending, self._pending_s = Work(), 0.0

    def forget_pending(self) -> None:
        """A step has failed: what it took says nothing."""
        self._pending, self._pending_s = Work(), 0.0

    def expect(self, work: Work) -> TimeEstimate | None:
        """None before enough of nearly that size was measured, and where the measurements disagree too much."""
        samples = [sample for of_size in self._samples.values() for sample in of_size]
        ratios = np.array([measured.step_size / work.step_size for measured, _ in samples])
        is_near = np.logical_and(ratios <= NEAR, ratios >= 1 / NEAR)
        if is_near.sum() < MIN_SAMPLES:
            return None
        rows = np.array([_features(measured) for measured, _ in samples])
        seconds = np.array([max(taken, 1e-9) for _, taken in samples])
        weights = 2.0 ** -np.abs(np.log2(ratios)) / seconds
        factors = _fit(rows, seconds, weights)
        errors = np.abs(rows @ factors / seconds - 1)
        usual = _deviation(errors[is_near])
        is_kept = errors <= max(OUTLIER * usual, 1e-9)
        if not is_kept.all() and (is_kept & is_near).sum() >= MIN_SAMPLES:
            factors = _fit(rows[is_kept], seconds[is_kept], weights[is_kept])
            errors = np.abs(rows @ factors / seconds - 1)
            usual = _deviation(errors[is_kept & is_near])
        expected = float(np.array(_features(work)) @ factors)
        if usual > MAX_RELATIVE_ERROR or expected <= 0:
            return None
        return TimeEstimate(expected, expected * usual)


def _features(work: Work) -> tuple[int, int, int]:
    return work.num_steps, work.num_tokens, work.num_attended


def _deviation(errors: NDArray[np.float64]) -> float:
    return DEVIATIONS * float(np.median(errors))


def _fit(rows: NDArray[np.int64], seconds: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The factors, none of them negative, with the least weighted squares; with as few of them as do equally well."""
    num_factors = rows.shape[1]
    scales = np.maximum(rows.max(axis=0), 1)
    best, least = np.zeros(num_factors), np.inf
    for count in range(1, num_factors + 1):
        for chosen in combinations(range(num_factors), count):
            columns = list(chosen)
            scaled = rows[:, columns] / scales[columns]
            found = np.linalg.lstsq(scaled * weights[:, None], seconds * weights, rcond=None)[0]
            if (found < 0).any():
                continue
            left = float((((scaled @ found - seconds) * weights) ** 2).sum())
            if left < least - 1e-12:
                best, least = np.zeros(num_factors), left
                best[columns] = found / scales[columns]
    return best

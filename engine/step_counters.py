"""What the steps so far have computed, and how long it took."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class StepCounters:
    """Sums over all steps, for `PoolSnapshot`."""

    prefill_tokens: int = 0
    prefill_s: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def count_prefill(self, num_tokens: Iterable[int], step_s: float) -> None:
        """num_tokens: of each sequence in the step.

        Steps of single tokens are bound by reading the weights: they say nothing about what a prompt costs.
        """
        counts = list(num_tokens)
        num_decodes = counts.count(1)
        if sum(counts) - num_decodes > num_decodes:
            self.prefill_tokens += sum(counts)
            self.prefill_s += step_s

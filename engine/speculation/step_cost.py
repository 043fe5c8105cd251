"""What a step takes by its number of rows, learnt from the steps that run."""

FIRST_ROW_SHARE = 0.15
"""What a further row takes of a step of one row, until it is known: as measured with packed weights at a context of
1,000 tokens (docs/performance.md)."""
LEARNING_RATE = 1 / 8  # of the newest step
FORGETTING_RATE = 1 / 128  # of each step without drafts
MOST_SURPRISE = 2.0  # a step that takes more than so many times what was expected was disturbed


class StepCost:
    """Expects of a step that its time grows by the same for each row: 1 + (rows - 1) · row_share, in steps of one row.

    The share depends on the model, the processor, and the length of contexts, so it follows what drafted steps really
    took. What was measured long ago fades: an estimate that once became too high, on a machine that was busy, would
    forbid drafts, and so the measurements that could correct it.
    """

    def __init__(self) -> None:
        self._row_share = FIRST_ROW_SHARE
        self._single_s: float | None = None  # a step of one row

    def of(self, num_rows: int) -> float:
        """In steps of one row."""
        return 1 + (num_rows - 1) * self._row_share

    def learn(self, num_rows: int, num_drafted: int, seconds: float) -> None:
        """A step of so many rows, all of them decodes, `num_drafted` of them guessed, took so long."""
        if self._single_s is None:
            self._single_s = seconds / self.of(num_rows)
            return
        expected_s = self._single_s * self.of(num_rows)
        seconds = min(max(seconds, expected_s / MOST_SURPRISE), expected_s * MOST_SURPRISE)
        if num_drafted:
            share = max(0.0, (seconds / self._single_s - 1) / (num_rows - 1))
            self._row_share += LEARNING_RATE * (share - self._row_share)
        else:
            self._single_s += LEARNING_RATE * (seconds / self.of(num_rows) - self._single_s)
            self._row_share += FORGETTING_RATE * (FIRST_ROW_SHARE - self._row_share)

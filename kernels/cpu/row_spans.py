"""Which rows of a step are coarse (tile_rows.py), and in what spans the products of its layers are cut.

A long prompt's tokens are read by those behind them through the cache, averaged with many others; the last ones decide
what is said next. So those before the last `EXACT_TAIL` may be coarse.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .integer_dot import MULTIPLIES_BYTES
from .tile_rows import MOST_ROWS

EXACT_TAIL = 16  # of a sequence's rows in a step
SPAN_BYTES = 3 << 18
"""Of activations: they stay in a core's second cache while all weights pass."""
FEWEST_ROWS = 64  # of a span: fewer don't pay for reading the weights once more

CAN_BE_COARSE = MULTIPLIES_BYTES
"""Where activations are multiplied as 16 bits, leaving out the lower ones would gain nothing."""


@dataclass(frozen=True, slots=True)
class RowSpans:
    """Spans follow each other and cover a step's rows."""

    spans: NDArray[np.int64]  # [spans, 3]: first row, number of coarse rows, a multiple of MOST_ROWS, and of exact ones
    are_coarse: NDArray[np.bool_]  # [M]

    def last_spans(self, logits_rows: NDArray[np.int64]) -> NDArray[np.int64]:  # as `spans`
        """What is left behind the last layer's keys and values: no coarse rows, unless logits of one are wanted."""
        if self.are_coarse[logits_rows].any():
            return self.spans
        firsts, num_coarse, num_exact = self.spans.T
        exact = np.stack([firsts + num_coarse, np.zeros_like(firsts), num_exact], axis=1)
        return exact[num_exact > 0]


def exact_rows(num_rows: int) -> RowSpans:
    return RowSpans(np.array([[0, 0, num_rows]]), np.zeros(num_rows, np.bool_))


def chunks_within(chunks: NDArray[np.int64], spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of chunks [chunks, 2] of rows, each from its first one on, those with a row in one of the spans."""
    starts, ends = spans[:, 0], spans[:, 0] + spans[:, 1] + spans[:, 2]
    overlap = (chunks[:, :1] < ends) & (chunks[:, :1] + chunks[:, 1:] > starts)
    return chunks[overlap.any(axis=1)]


def coarse_prompts(
    counts: NDArray[np.int64],  # rows of each sequence's prompt, the last rows of the step
    first_row: int,  # of them; those before are exact
    num_columns: int,  # of the widest layer's activations
) -> RowSpans:
    """All but the last rows of prompts are coarse."""
    most = max(SPAN_BYTES // num_columns, FEWEST_ROWS) // MOST_ROWS * MOST_ROWS
    spans = [(0, 0, first_row)] if first_row else []
    num_rows = first_row + int(counts.sum())
    are_coarse = np.zeros(num_rows, np.bool_)
    for count in counts.tolist():
        last = first_row + count
        num_coarse = max(count - EXACT_TAIL, 0) // MOST_ROWS * MOST_ROWS
        are_coarse[first_row : first_row + num_coarse] = True
        while num_coarse > most:
            spans.append((first_row, most, 0))
            first_row, num_coarse = first_row + most, num_coarse - most
        spans.append((first_row, num_coarse, last - first_row - num_coarse))
        first_row = last
    return RowSpans(np.array(spans, np.int64).reshape(-1, 3), are_coarse)

"""The next-token logits of one step, and what the host reads of them."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..kernels.cpu.vocabulary import compile_tops


class StepLogits:
    """Rows of logits [num_rows, vocab] (float32), where the model left them.

    To read a device's memory waits until the step is computed, so it is read in as few copies as can be: the largest
    number of every row and whose it is, which is all that a greedy step needs; and the rows that something is drawn
    from, together.
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self._on_host = values.float().numpy() if values.device.type == "cpu" else None
        self._fetched: dict[int, NDArray[np.float32]] = {}
        self._likeliest, peaks = (peaks_on_device if self._on_host is None else peaks_on_host)(values)
        self.faulty_rows = frozenset(np.flatnonzero(~np.isfinite(peaks)).tolist())
        """With a NaN or an infinity in them. The largest number is enough to look at, for NaN counts as the largest: a
        hidden state that holds NaN or infinity makes all its logits NaN, in the norm before the head if not earlier."""

    def likeliest(self, row: int) -> int:
        """The token with the largest logit, the first of several."""
        return self._likeliest[row]

    def fetch(self, rows: Iterable[int]) -> None:
        """Brings rows to the host, in one copy."""
        if self._on_host is None and (missing := sorted(set(rows) - self._fetched.keys())):
            self._fetched |= zip(missing, self.values[missing].float().cpu().numpy(), strict=True)

    def __getitem__(self, row: int) -> NDArray[np.float32]:
        """One row [vocab], on the host. Whoever changes it puts it back: several draw from the same."""
        if self._on_host is not None:
            return self._on_host[row]
        self.fetch([row])
        return self._fetched[row]


def peaks_on_host(values: Tensor) -> tuple[list[int], NDArray[np.float32]]:
    """The token with the largest logit of each row, and that logit. 4 to 7 µs a row of 49,152."""
    rows = values.float().numpy()
    num_rows, vocab_size = rows.shape
    tops, likeliest = np.empty(num_rows, np.float32), np.empty(num_rows, np.int64)
    compile_tops()(np.uint64(rows.ctypes.data), rows.strides[0], vocab_size, tops, likeliest)
    return likeliest.tolist(), tops


def peaks_on_device(values: Tensor) -> tuple[list[int], NDArray[np.float64]]:
    """The same in one copy: float64 holds both exactly."""
    largest = torch.max(values, dim=1)
    peaks, likeliest = torch.stack((largest.values.double(), largest.indices.double())).cpu().numpy()
    return likeliest.astype(np.int64).tolist(), peaks

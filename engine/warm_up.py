"""First runs of a model's compiled paths, before anybody waits for them."""

import time
from collections.abc import Sequence

import numpy as np
import torch

from .draw import Draw, draw
from .model.model_runner import ModelRunner
from .progress import LoadProgress, OnProgress
from .request import SamplingParams
from .step_logits import StepLogits

MAX_SHORT_ROWS = 32
"""Paths that serve steps of so few rows are run while the model loads: the first turn of any chat takes them."""
COMPILING_S = 2.0
"""A path that takes longer to run once was compiled; kernels that are kept load in a tenth of that."""


class WarmUp:
    """Runs every path once, so that no request pays for what is made at its first use.

    What long prompts need is left for later (`finish`), since most starts lead to a short one. But where kernels have
    to be compiled, which takes many seconds, all are, with the progress of it shown.
    """

    def __init__(self, runner: ModelRunner, path_rows: Sequence[int]) -> None:
        """path_rows: for each path, a number of rows that takes it."""
        self._runner = runner
        self._waiting = sorted(path_rows)

    def start(self, on_progress: OnProgress) -> None:
        """Runs what short prompts need, and the rest too if anything had to be compiled."""
        StepLogits(torch.zeros(1, 1))
        draw([Draw(np.zeros(1, np.float32), SamplingParams(temperature=1.0), number=0.0)])
        num_paths = sum(rows <= MAX_SHORT_ROWS for rows in self._waiting)
        done = 0
        while done < num_paths:
            on_progress(LoadProgress("warm up", done, num_paths))
            started = time.perf_counter()
            self._run_next()
            done += 1
            if time.perf_counter() - started > COMPILING_S:
                num_paths = done + len(self._waiting)
        on_progress(LoadProgress("warm up", done, num_paths))

    def finish(self) -> None:
        """Runs what is left; costs nothing once that has happened."""
        while self._waiting:
            self._run_next()

    def _run_next(self) -> None:
        self._runner.warm_up(self._waiting.pop(0))

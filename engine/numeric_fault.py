"""The layer that makes numbers which aren't any."""

from bisect import bisect_left
from collections.abc import Callable

from torch import Tensor

from .step_logits import StepLogits


def first_faulty_layer(logits_after: Callable[[int], Tensor], num_layers: int) -> int | None:
    """The layer, counted from 1, behind which a row is NaN or infinite first; 0 before all, None if none is at the end.

    `logits_after` gives logits of every row, computed with so many layers. What is NaN stays so through every later
    layer, for layers add to it; so the layer is found by bisection.
    """
    layers = range(num_layers + 1)
    found = bisect_left(layers, True, key=lambda depth: bool(StepLogits(logits_after(depth)).faulty_rows))
    return found if found in layers else None

"""A trial: two ways to compute the same step, timed in turns on a few layers of a model.

What a busy machine measures is not believed: then constants serve, and the next start measures again.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ...kernels import Backend
from ..cache.kv_cache import KVCache
from .config import ModelConfig
from .packed_weights import PackedWeights

BLOCK_SIZE = 16
NUM_LAYERS = 3
MOST_SPREAD = 1.5
"""Of a median from the best time: above, something else was running."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Seconds of each round."""

    usual_s: Sequence[float]
    other_s: Sequence[float]

    @property
    def is_steady(self) -> bool:
        """Whether nothing else seems to have run."""
        return all(statistics.median(times) <= MOST_SPREAD * min(times) for times in (self.usual_s, self.other_s))

    @property
    def other_wins(self) -> bool:
        return min(self.other_s) < min(self.usual_s)


def run_trial(usual: Callable[[], object], other: Callable[[], object], num_rounds: int) -> Trial:
    """In turns, so that a busy moment meets both; a round before them isn't counted."""
    usual()
    other()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(num_rounds):
        for compute, spent in zip((usual, other), times, strict=True):
            started = time.perf_counter()
            compute()
            spent.append(time.perf_counter() - started)
    return Trial(*times)


def first_win(candidates: Sequence[int], trials: Sequence[Trial]) -> int | None:
    """The first candidate from which on the other way always wins; None if it doesn't at the last."""
    first = None
    for candidate, trial in reversed(list(zip(candidates, trials, strict=True))):
        if not trial.other_wins:
            break
        first = candidate
    return first


def few_layers(config: ModelConfig) -> ModelConfig:
    """The first layers, which are enough to tell."""
    count = min(NUM_LAYERS, config.num_layers)
    return replace(config, num_layers=count, windows=config.windows[:count], nope=config.nope[:count])


def few_of(weights: PackedWeights, num_layers: int) -> PackedWeights:
    """The first layers' weights, without a copy."""
    return replace(
        weights,
        linears=tuple(tensor[:num_layers] for tensor in weights.linears),
        biases=tuple(tensor[:num_layers] for tensor in weights.biases),
        attention_norms=weights.attention_norms[:num_layers],
        mlp_norms=weights.mlp_norms[:num_layers],
        query_norms=weights.query_norms[:num_layers],
        key_norms=weights.key_norms[:num_layers],
    )


def small_cache(backend: Backend, config: ModelConfig, num_blocks: int, dtype: torch.dtype) -> KVCache:
    """To measure with, in blocks of BLOCK_SIZE tokens."""
    return KVCache(
        backend,
        num_layers=config.num_layers,
        num_blocks=num_blocks,
        num_kv_heads=config.num_kv_heads,
        block_size=BLOCK_SIZE,
        head_dim=config.head_dim,
        dtype=dtype,
        device=torch.device("cpu"),
    )

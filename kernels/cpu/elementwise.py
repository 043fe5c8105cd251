"""RMS norm, rotary embedding and SwiGLU over many rows, compiled; the threads share the rows."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .arrays import as_array, kind_of
from .heads import rotate
from .rows import narrow_row, norm_row, silu_mul_row, widen_row
from .simd import LANES, SOURCE_STAMP, compiled
from .team import shared_team
from .work_sharing import items, new_counters

ROWS_PER_CLAIM = 4


@cache
def _compile_norm(kind: int) -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def norm(counters, before, total, hidden, weight, eps, output):  # type: ignore[no-untyped-def]
        _ = stamp
        for row in items(counters, 0, hidden.shape[0], ROWS_PER_CLAIM):
            for i in range(hidden.shape[1]):
                total[row, i] = before[row, i]
            norm_row(kind, kind, total[row], hidden[row], weight, output[row], eps)

    return norm


@cache
def _compile_rope(kind: int) -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def rope(counters, heads, positions, cos, sin):  # type: ignore[no-untyped-def]
        _ = stamp
        wide = np.empty(heads.shape[2], np.float32)
        for row in items(counters, 0, heads.shape[0], ROWS_PER_CLAIM):
            for head in range(heads.shape[1]):
                widen_row(kind, heads[row, head], wide)
                rotate(wide, cos[positions[row]], sin[positions[row]])
                narrow_row(kind, wide, heads[row, head])

    return rope


@cache
def _compile_silu_mul(kind: int) -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def silu_mul(counters, gate_up, output):  # type: ignore[no-untyped-def]
        _ = stamp
        for row in items(counters, 0, output.shape[0], ROWS_PER_CLAIM):
            silu_mul_row(kind, gate_up[row], output[row])

    return silu_mul


def rms_norm(
    hidden: Tensor,  # [..., width]
    weight: Tensor,  # [width]
    eps: float,
    residual: Tensor | None = None,  # [..., width]
) -> tuple[Tensor, Tensor]:
    """h = hidden + residual; (h / sqrt(mean(h²) + eps) · weight, h) (Zhang and Sennrich 2019)."""
    width = hidden.shape[-1]
    if width % LANES:
        total = hidden if residual is None else residual.float().add(hidden)
        normed = torch.nn.functional.rms_norm(total, weight.shape, weight.to(total.dtype), eps)
        return normed.to(hidden.dtype), total
    rows = hidden.reshape(-1, width)
    before = torch.zeros(rows.shape) if residual is None else residual.reshape(-1, width).float()
    total, output = torch.empty(rows.shape), torch.empty_like(rows)
    step = _compile_norm(kind_of(hidden))
    shared_team().run(
        step,
        new_counters(1),
        as_array(before),
        as_array(total),
        as_array(rows),
        as_array(weight.float()),
        np.float32(eps),
        as_array(output),
    )
    return output.view(hidden.shape), hidden if residual is None else total.view(hidden.shape)


def rope(
    query: Tensor,  # [T, H, D]
    key: Tensor,  # [T, K, D]
    positions: Tensor,  # [T] int64
    cos: Tensor,  # [max_position, R / 2] float32
    sin: Tensor,  # [max_position, R / 2] float32
) -> None:
    """Rotates features (i, i + R/2) by the angle of the position, in place (Su et al. 2021, GPT-NeoX order)."""
    tables = (positions.numpy(), cos.numpy(), sin.numpy())
    for heads in (query, key):
        assert heads.shape[2] % LANES == 0, "the features of a head fill vectors"
        shared_team().run(_compile_rope(kind_of(heads)), new_counters(1), as_array(heads), *tables)


def silu_mul(
    gate_up: Tensor,  # [T, 2 * width]
) -> Tensor:  # [T, width]
    """gate · sigmoid(gate) · up (Shazeer 2020)."""
    width = gate_up.shape[1] // 2
    if width % LANES:
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate).mul_(up)
    output = gate_up.new_empty((len(gate_up), width))
    shared_team().run(
        _compile_silu_mul(kind_of(gate_up)), new_counters(1), as_array(gate_up.contiguous()), as_array(output)
    )
    return output

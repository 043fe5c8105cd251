"""RMS norm, rotary embedding and SwiGLU in as few torch calls as they take: one token's time is all dispatch."""

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(
    hidden: Tensor,  # [..., width]
    weight: Tensor,  # [width]
    eps: float,
    residual: Tensor | None = None,  # [..., width]
) -> tuple[Tensor, Tensor]:
    """h = hidden + residual; (h / sqrt(mean(h²) + eps) · weight, h) (Zhang and Sennrich 2019)."""
    total = hidden if residual is None else residual.float().add(hidden)
    normed = functional.rms_norm(total, weight.shape, weight.to(total.dtype), eps)
    return normed.to(hidden.dtype), total


def rope(
    query: Tensor,  # [T, H, D]
    key: Tensor,  # [T, K, D]
    positions: Tensor,  # [T] int64
    cos: Tensor,  # [max_position, R / 2] float32
    sin: Tensor,  # [max_position, R / 2] float32
) -> None:
    """Rotates features (i, i + R/2) by the angle of the position, in place (Su et al. 2021, GPT-NeoX order)."""
    half = cos.shape[1]
    row_cos, row_sin = cos[positions, None], sin[positions, None]  # [T, 1, R / 2]
    for heads in (query, key):
        first, second = heads[..., :half], heads[..., half : 2 * half]
        # The tables are float32, so half precision is promoted and rounded once, when it is copied back.
        rotated_first = torch.addcmul(first * row_cos, second, row_sin, value=-1)
        rotated_second = torch.addcmul(second * row_cos, first, row_sin)
        first.copy_(rotated_first)
        second.copy_(rotated_second)


def silu_mul(
    gate_up: Tensor,  # [T, 2 * width]
) -> Tensor:  # [T, width]
    """gate · sigmoid(gate) · up (Shazeer 2020)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)

"""RMS norm with the residual, rotary embedding and SwiGLU, each in one pass over memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

SILU_ELEMENTS = 1024  # of one row, by one program


@triton.jit
def rms_norm_kernel(
    hidden,
    residual,
    weight,
    normed,
    total,
    eps,
    stride_hidden,
    stride_residual,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, PADDED)
    is_column = columns < WIDTH
    row_total = tl.load(hidden + row * stride_hidden + columns, mask=is_column, other=0.0)
    if HAS_RESIDUAL:
        added = tl.load(residual + row * stride_residual + columns, mask=is_column, other=0.0)
        row_total = row_total.to(tl.float32) + added.to(tl.float32)
        tl.store(total + row * WIDTH + columns, row_total, mask=is_column)
    wide = row_total.to(tl.float32)
    inverse_rms = tl.rsqrt(tl.sum(wide * wide, 0) / WIDTH + eps)
    row_weight = tl.load(weight + columns, mask=is_column, other=0.0).to(tl.float32)
    tl.store(
        normed + row * WIDTH + columns, (wide * inverse_rms * row_weight).to(normed.dtype.element_ty), mask=is_column
    )


def rms_norm(
    hidden: Tensor,  # [..., width]
    weight: Tensor,  # [width]
    eps: float,
    residual: Tensor | None = None,  # [..., width]
) -> tuple[Tensor, Tensor]:
    """h = hidden + residual; (h / sqrt(mean(h²) + eps) · weight, h) (Zhang and Sennrich 2019)."""
    width = hidden.shape[-1]
    rows = hidden.reshape(-1, width)
    residual_rows = rows if residual is None else residual.reshape(-1, width)
    assert rows.stride(1) == residual_rows.stride(1) == 1, "a row must be contiguous"
    normed = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
    total = hidden if residual is None else torch.empty(hidden.shape, dtype=torch.float32, device=hidden.device)
    if len(rows) == 0:
        return normed, total
    padded = triton.next_power_of_2(width)
    rms_norm_kernel[(len(rows),)](
        rows,
        residual_rows,
        weight,
        normed,
        total,
        eps,
        rows.stride(0),
        residual_rows.stride(0),
        WIDTH=width,
        PADDED=padded,
        HAS_RESIDUAL=residual is not None,
        num_warps=min(16, max(1, padded // 512)),
    )
    return normed, total


@triton.jit
def rotate_heads(
    heads_of_token,  # pointer to [NUM_HEADS, D]
    stride_head,
    cos,  # [PADDED_HALF]
    sin,  # [PADDED_HALF]
    HALF: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    PADDED_HEADS: tl.constexpr,
):
    heads, features = tl.arange(0, PADDED_HEADS), tl.arange(0, PADDED_HALF)
    is_real = (heads < NUM_HEADS)[:, None] & (features < HALF)[None, :]
    first_half = heads_of_token + heads[:, None] * stride_head + features[None, :]
    first = tl.load(first_half, mask=is_real, other=0.0).to(tl.float32)
    second = tl.load(first_half + HALF, mask=is_real, other=0.0).to(tl.float32)
    dtype = heads_of_token.dtype.element_ty
    tl.store(first_half, (first * cos[None, :] - second * sin[None, :]).to(dtype), mask=is_real)
    tl.store(first_half + HALF, (second * cos[None, :] + first * sin[None, :]).to(dtype), mask=is_real)


@triton.jit
def rope_kernel(
    query,
    key,
    positions,
    cos,
    sin,
    stride_query_token,
    stride_query_head,
    stride_key_token,
    stride_key_head,
    HALF: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    PADDED_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    PADDED_KV_HEADS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token).to(tl.int64)
    features = tl.arange(0, PADDED_HALF)
    row_cos = tl.load(cos + position * HALF + features, mask=features < HALF, other=0.0)
    row_sin = tl.load(sin + position * HALF + features, mask=features < HALF, other=0.0)
    token_query, token_key = query + token * stride_query_token, key + token * stride_key_token
    rotate_heads(token_query, stride_query_head, row_cos, row_sin, HALF, PADDED_HALF, NUM_HEADS, PADDED_HEADS)
    rotate_heads(token_key, stride_key_head, row_cos, row_sin, HALF, PADDED_HALF, NUM_KV_HEADS, PADDED_KV_HEADS)


def rope(
    query: Tensor,  # [T, H, D]
    key: Tensor,  # [T, K, D]
    positions: Tensor,  # [T] int64
    cos: Tensor,  # [max_position, R / 2] float32
    sin: Tensor,  # [max_position, R / 2] float32
) -> None:
    """Rotates features (i, i + R/2) by the angle of the position, in place (Su et al. 2021, GPT-NeoX order)."""
    assert query.stride(2) == key.stride(2) == 1, "a head's features must be contiguous"
    assert cos.stride() == sin.stride() == (cos.shape[1], 1), "the tables must be contiguous"
    num_tokens, num_heads, _ = query.shape
    num_kv_heads, half = key.shape[1], cos.shape[1]
    if num_tokens == 0:
        return
    rope_kernel[(num_tokens,)](
        query,
        key,
        positions,
        cos,
        sin,
        query.stride(0),
        query.stride(1),
        key.stride(0),
        key.stride(1),
        HALF=half,
        PADDED_HALF=triton.next_power_of_2(half),
        NUM_HEADS=num_heads,
        PADDED_HEADS=triton.next_power_of_2(num_heads),
        NUM_KV_HEADS=num_kv_heads,
        PADDED_KV_HEADS=triton.next_power_of_2(num_kv_heads),
        num_warps=4,
    )


@triton.jit
def silu_mul_kernel(gate_up, output, stride_row, width, ELEMENTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * ELEMENTS + tl.arange(0, ELEMENTS)
    is_column = columns < width
    gate = tl.load(gate_up + row * stride_row + columns, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride_row + width + columns, mask=is_column, other=0.0).to(tl.float32)
    product = gate * tl.sigmoid(gate) * up
    tl.store(output + row * width + columns, product.to(output.dtype.element_ty), mask=is_column)


def silu_mul(
    gate_up: Tensor,  # [T, 2 * width]
) -> Tensor:  # [T, width]
    """gate · sigmoid(gate) · up (Shazeer 2020)."""
    assert gate_up.stride(1) == 1, "a row must be contiguous"
    num_tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    output = torch.empty(num_tokens, width, dtype=gate_up.dtype, device=gate_up.device)
    if num_tokens > 0:
        silu_mul_kernel[(num_tokens, triton.cdiv(width, SILU_ELEMENTS))](
            gate_up, output, gate_up.stride(0), width, ELEMENTS=SILU_ELEMENTS, num_warps=4
        )
    return output

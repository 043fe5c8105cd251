"""Norms, rotation, activation and linear of the fast backends against the reference."""

import pytest
import torch

from paged_chat.kernels import reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [576, 100])
@pytest.mark.parametrize("num_tokens", [1, 5])
def test_rms_norm_adds_the_residual_first(backend, random, close, dtype, width, num_tokens):
    hidden, residual = random(2, num_tokens, width, dtype=dtype)
    weight = random(width, dtype=dtype)
    normed, total = backend.rms_norm(hidden, weight, 1e-5, residual)
    expected, expected_total = reference.rms_norm(hidden, weight, 1e-5, residual)
    close(normed, expected)
    close(total, expected_total)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_of_each_head_of_a_fused_projection(backend, random, close, dtype):
    fused, weight = random(3, 10, 64, dtype=dtype), random(64, dtype=dtype)
    query = fused[:, 2:8]
    normed, total = backend.rms_norm(query, weight, 1e-6)
    close(normed, reference.rms_norm(query, weight, 1e-6)[0])
    assert normed.shape == (3, 6, 64)
    assert total.equal(query)


def test_rms_norm_with_float32_weights_keeps_the_dtype_of_hidden(backend, random, close):
    hidden, weight = random(2, 64, dtype=torch.bfloat16), random(64)
    normed, _ = backend.rms_norm(hidden, weight, 1e-6)
    assert normed.dtype == torch.bfloat16
    close(normed, reference.rms_norm(hidden, weight, 1e-6)[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "rotated"), [(64, 64), (80, 80), (64, 32)])
def test_rope_in_place_on_slices_of_a_fused_projection(backend, random, close, dtype, head_dim, rotated):
    angles = torch.outer(torch.arange(50.0), 100.0 ** -torch.linspace(0, 1, rotated // 2))
    positions = torch.tensor([0, 49, 7])
    fused = random(3, 8, head_dim, dtype=dtype)  # 5 query heads, 2 of keys, 1 of values
    expected = fused.clone()
    reference.rope(expected[:, :5], expected[:, 5:7], positions, angles.cos(), angles.sin())
    before = fused.clone()
    backend.rope(fused[:, :5], fused[:, 5:7], positions, angles.cos(), angles.sin())
    close(fused, expected)
    assert fused[:, 7].equal(before[:, 7])
    assert fused[..., rotated:].equal(before[..., rotated:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [7, 1536])
def test_silu_mul(backend, random, close, dtype, width):
    gate_up = random(3, 2 * width, dtype=dtype)
    close(backend.silu_mul(gate_up), reference.silu_mul(gate_up))


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_with_and_without_bias(backend, random, close, dtype):
    hidden, weight, bias = random(3, 96, dtype=dtype), random(40, 96, dtype=dtype) / 10, random(40, dtype=dtype)
    close(backend.linear(hidden, weight, bias), reference.linear(hidden, weight, bias))
    close(backend.linear(hidden, weight, None), reference.linear(hidden, weight, None))

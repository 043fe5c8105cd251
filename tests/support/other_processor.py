"""What the compiled kernels give on one processor, as digests: run in a process that compiles for another one.

`python other_processor.py` prints one JSON object.
"""

import hashlib
import json

import numpy as np
import pytest
import torch

from paged_chat.kernels.cpu import amx, attention, prefix_attention
from paged_chat.kernels.cpu.grouped_weights import pack, quantise
from paged_chat.kernels.cpu.kv_cache import write_kv
from paged_chat.kernels.cpu.packed_linear import linear
from paged_chat.kernels.cpu.rounding import quantise_row
from paged_chat.kernels.cpu.rows import narrow_row, widen_row
from paged_chat.kernels.cpu.simd import FLOAT16, LANES, compiled
from paged_chat.kernels.cpu.tile_rows import ACTIVATION_BYTES, GROUP
from paged_chat.kernels.cpu.work_sharing import new_counters
from paged_chat.kernels.shared_run import SharedRun

EDGES = (0.0, 1.0, -1.0, 2.0**-14, 2.0**-24, 2.0**-25, 65504.0, 65519.9, 65520.0, 3e38, float("inf"), float("nan"))


def digests() -> dict[str, str]:
    """By name of what was computed."""
    found = {f"linear, {bits} bits": _linear(bits) for bits in (4, 8)}
    found["attention"] = _attention(torch.bfloat16, num_heads=8, num_kv_heads=2, head_dim=80)
    found["float16"] = _halves()
    return found


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _linear(bits: int) -> str:
    """15 rows: eight, four, two and one together, whatever the processor takes at once."""

    @compiled()
    def step(counters, packed, bias, hidden, quants, scales, sums, output):  # type: ignore[no-untyped-def]
        for row in range(hidden.shape[0]):
            quantise_row(hidden[row], quants[row], scales[row], sums[row])
        spans = np.array([[0, 0, hidden.shape[0]]])
        linear(bits, 0, 0, counters, 0, spans, packed, bias, quants, scales, sums, output, np.uint64(0))

    generator = np.random.default_rng(6)
    packed = pack(quantise(generator.standard_normal((40, 3 * GROUP), dtype=np.float32), bits), bits)
    hidden = generator.standard_normal((15, 3 * GROUP), dtype=np.float32)
    hidden[3] = np.tile([1.0, -1.0], 3 * GROUP // 2)  # the largest bytes everywhere
    scales = np.empty((15, 3), np.float32)
    output = np.empty((15, len(packed) * LANES), np.float32)
    quants = np.empty((15, ACTIVATION_BYTES, 3 * GROUP), np.int8)
    step(new_counters(1), packed, np.empty(0, np.float32), hidden, quants, scales, np.empty_like(scales), output)
    return _digest(output)


def _attention(dtype: torch.dtype, num_heads: int, num_kv_heads: int, head_dim: int) -> str:
    generator = torch.Generator().manual_seed(8)
    contexts, widths, num_blocks = [1, 33, 300, 513], [1, 3, 19, 33], 57
    key_cache = torch.full((num_blocks, num_kv_heads, head_dim, LANES), torch.nan, dtype=dtype)
    value_cache = torch.full((num_blocks, num_kv_heads, LANES, head_dim), torch.nan, dtype=dtype)
    tables = torch.zeros(len(contexts), max(widths), dtype=torch.int32)
    scattered = (1 + torch.randperm(num_blocks - 1, generator=generator)).int().split(widths)
    for row, length in enumerate(contexts):
        tables[row, : widths[row]] = scattered[row]
        position = torch.arange(length)
        slots = tables[row].long()[position // LANES] * LANES + position % LANES
        key, value = torch.randn(2, length, num_kv_heads, head_dim, generator=generator).to(dtype)
        write_kv(key, value, key_cache, value_cache, slots)
    query = torch.randn(len(contexts), num_heads, head_dim, generator=generator).to(dtype)
    lens = torch.tensor(contexts, dtype=torch.int32)
    outputs = [
        attention.attention_decode(query, key_cache, value_cache, tables, lens, 0.1, window) for window in (None, 40)
    ]
    tables[3, :LANES] = tables[2, :LANES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amx, "has_tiles", lambda: False)
        shared = prefix_attention.attention_prefix(
            query, key_cache, value_cache, tables, lens, 0.1, None, (SharedRun(0, LANES, (2, 3)),)
        )
    return _digest(torch.stack([*outputs, shared]).float().numpy())


def _halves() -> str:
    """Every float16 as float32 and back; numbers around each of them, and the edges."""

    @compiled()
    def convert(halves, floats, more, narrowed):  # type: ignore[no-untyped-def]
        widen_row(FLOAT16, halves, floats)
        narrow_row(FLOAT16, more, narrowed)

    halves = np.arange(1 << 16, dtype=np.uint16)
    floats = np.empty(1 << 16, np.float32)
    with np.errstate(invalid="ignore"):
        around = halves.view(np.float16).astype(np.float32).view(np.uint32)
    more = np.concatenate([around + np.uint32(step) for step in (0, 1, 0xFFF, 0x1000, 0x1001)]).view(np.float32)
    more = np.concatenate([more, np.resize(np.array(EDGES, np.float32), LANES)])
    narrowed = np.empty(len(more), np.uint16)
    convert(halves, floats, more, narrowed)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = halves.view(np.float16).astype(np.float32), more.astype(np.float16)
    np.testing.assert_array_equal(floats, expected[0])
    np.testing.assert_array_equal(narrowed.view(np.float16), expected[1])
    return _digest(floats[~np.isnan(floats)])


if __name__ == "__main__":
    print(json.dumps(digests()))

"""Each Triton kernel compiled ahead for the chips it is meant for, which needs none of them.

The sizes are those that the launchers choose; shared memory must stay under what one program can have there.
"""

import importlib
import os

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from paged_chat.kernels.gpu import elementwise, kv_cache, rope_kv, tiles

# The package exports functions under the names of these modules.
decode = importlib.import_module("paged_chat.kernels.gpu.attention_decode")
prefill = importlib.import_module("paged_chat.kernels.gpu.attention_prefill")
prefix = importlib.import_module("paged_chat.kernels.gpu.attention_prefix")

CHIPS = {  # and the shared memory of one program, KiB
    "sm_80": (GPUTarget("cuda", 80, 32), 163),
    "sm_90": (GPUTarget("cuda", 90, 32), 227),
    "sm_100": (GPUTarget("cuda", 100, 32), 227),
    "gfx942": (GPUTarget("hip", "gfx942", 64), 64),
}
POINTERS = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
# Head sizes and the groups they come with. Every chip meets every head size and dtype, every dtype every head size.
HEADS = {64: 3, 80: 1, 96: 7, 128: 4, 256: 16}
DTYPES = (torch.bfloat16, torch.float32, torch.float16)
SHAPES = [
    pytest.param(
        chip, DTYPES[(row + column) % 3], head_dim, group_size, 100 if row % 2 else None, id=f"{chip}-{head_dim}"
    )
    for row, chip in enumerate(CHIPS)
    for column, (head_dim, group_size) in enumerate(HEADS.items())
]
# The widest heads on those of each maker that have the least memory.
SHAPES += [pytest.param(chip, torch.float32, 256, 16, 100, id=f"{chip}-widest") for chip in ("sm_80", "gfx942")]

pytestmark = [
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") == "1", reason="TRITON_INTERPRET=1 leaves nothing to compile"
    ),
]


def shared_kib(chip, kernel, types, constants, **options):
    """Compiles and returns the shared memory that it takes; pointers and strides are aligned as ours are."""
    assert not constants.keys() & types.keys()
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    assert {name for name, kind in signature.items() if kind == "constexpr"} == constants.keys()
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name.startswith("stride")
    }
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=CHIPS[chip][0], options=options).metadata.shared / 1024


def attention_types(dtype, *strides):
    same = dict.fromkeys(("query", "key_cache", "value_cache", "output"), POINTERS[dtype])
    tables = dict.fromkeys(("block_tables", "context_lens"), "*i32")
    strides = ("stride_query_head", "stride_key_block", "stride_value_block", "stride_table", *strides)
    return {**same, **tables, "scale_log2": "fp32", **dict.fromkeys(strides, "i64")}


def attention_constants(dtype, head_dim, group_size, window, chosen):
    return {
        "NUM_KV_HEADS": 8,
        "GROUP": group_size,
        "HEAD_DIM": head_dim,
        "BLOCK_SIZE": 16,
        "WINDOW": window,
        "ROWS": chosen.rows,
        "TOKENS": chosen.tokens,
        "FEATURES": chosen.features,
        "DOT_DTYPE": tiles.DOT_DTYPES[dtype],
    }


@pytest.mark.parametrize(("chip", "dtype", "head_dim", "group_size", "window"), SHAPES)
def test_attention_decode(chip, dtype, head_dim, group_size, window):
    chosen = tiles.decode_tiles(group_size, head_dim, dtype.itemsize, rocm=chip == "gfx942")
    types = attention_types(dtype, "stride_query_seq") | {
        "own_starts": "*i32",
        "split_output": "*fp32",
        "split_lse": "*fp32",
        "num_splits": "i32",
    }
    constants = attention_constants(dtype, head_dim, group_size, window, chosen) | {"SPLIT": 256, "IS_WHOLE": False}
    options = {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
    for has_prefix in (False, True):
        constants["HAS_PREFIX"] = has_prefix
        assert 0 < shared_kib(chip, decode.decode_kernel, types, constants, **options) <= CHIPS[chip][1]


@pytest.mark.parametrize(("chip", "dtype", "head_dim", "group_size", "window"), SHAPES)
def test_attention_prefix(chip, dtype, head_dim, group_size, window):
    chosen = tiles.prefix_tiles(group_size, head_dim, dtype.itemsize, rocm=chip == "gfx942")
    types = attention_types(dtype, "stride_query_seq") | {
        **dict.fromkeys(("segments", "members"), "*i32"),
        **dict.fromkeys(("part_output", "part_lse"), "*fp32"),
    }
    del types["output"]
    constants = attention_constants(dtype, head_dim, group_size, window, chosen)
    options = {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
    assert 0 < shared_kib(chip, prefix.prefix_kernel, types, constants, **options) <= CHIPS[chip][1]
    types = {
        **dict.fromkeys(("split_output", "split_lse", "part_output", "part_lse"), "*fp32"),
        **dict.fromkeys(("part_starts", "own_starts", "context_lens"), "*i32"),
        "output": POINTERS[dtype],
        "num_splits": "i32",
    }
    constants = {
        "NUM_HEADS": 8 * group_size,
        "HEAD_DIM": head_dim,
        "WINDOW": window,
        "SPLIT": 256,
        "FEATURES": chosen.features,
    }
    assert shared_kib(chip, prefix.merge_prefix_kernel, types, constants, num_warps=4) <= CHIPS[chip][1]


@pytest.mark.parametrize(("chip", "dtype", "head_dim", "group_size", "window"), SHAPES)
def test_attention_prefill(chip, dtype, head_dim, group_size, window):
    chosen = tiles.prefill_tiles(group_size, head_dim, dtype.itemsize, rocm=chip == "gfx942")
    types = attention_types(dtype, "stride_query_token") | {"cu_seqlens_q": "*i32"}
    constants = attention_constants(dtype, head_dim, group_size, window, chosen)
    constants["QUERIES"] = chosen.rows // group_size
    options = {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
    assert 0 < shared_kib(chip, prefill.prefill_kernel, types, constants, **options) <= CHIPS[chip][1]


@pytest.mark.parametrize(("chip", "dtype", "head_dim", "group_size", "window"), SHAPES)
def test_rope_write_kv(chip, dtype, head_dim, group_size, window):
    both = ("key", "value")
    strides = [f"stride_{name}_{of}" for name in ("query", *both) for of in ("token", "head")]
    types = {
        **dict.fromkeys(("query", *both, "key_cache", "value_cache"), POINTERS[dtype]),
        **dict.fromkeys(("positions", "slot_mapping"), "*i64"),
        **dict.fromkeys(("cos", "sin"), "*fp32"),
        **dict.fromkeys((*strides, "stride_key_block", "stride_value_block"), "i64"),
    }
    # Half of the features turn where there is a window: what is kept is compiled too.
    half = head_dim // 4 if window else head_dim // 2
    padded_group, padded_half = triton.next_power_of_2(group_size), triton.next_power_of_2(half)
    constants = {
        "GROUP": group_size,
        "PADDED_GROUP": padded_group,
        "BLOCK_SIZE": 16,
        "HEAD_DIM": head_dim,
        "FEATURES": triton.next_power_of_2(head_dim),
        "HALF": half,
        "PADDED_HALF": padded_half,
    }
    num_warps = rope_kv.num_warps(padded_group, padded_half)
    assert shared_kib(chip, rope_kv.rope_write_kv_kernel, types, constants, num_warps=num_warps) <= CHIPS[chip][1]


@pytest.mark.parametrize("chip", CHIPS)
def test_the_small_kernels(chip):
    limit = CHIPS[chip][1]
    strides = ("stride_key_token", "stride_key_head", "stride_value_token", "stride_value_head")
    types = {
        **dict.fromkeys(("key", "value", "key_cache", "value_cache"), "*bf16"),
        "slot_mapping": "*i64",
        **dict.fromkeys((*strides, "stride_key_block", "stride_value_block"), "i64"),
    }
    constants = {"NUM_KV_HEADS": 8, "BLOCK_SIZE": 16, "HEAD_DIM": 128, "PADDED": 1024}
    assert shared_kib(chip, kv_cache.write_kv_kernel, types, constants) <= limit

    types = {
        **dict.fromkeys(("read_cache", "write_cache"), "*bf16"),
        **dict.fromkeys(("read_blocks", "write_blocks"), "*i64"),
        **dict.fromkeys(("stride_read_block", "stride_write_block"), "i64"),
        "num_elements": "i32",
    }
    assert shared_kib(chip, kv_cache.copy_blocks_kernel, types, {"ELEMENTS": kv_cache.COPY_ELEMENTS}) <= limit

    types = {
        **dict.fromkeys(("split_output", "split_lse"), "*fp32"),
        "context_lens": "*i32",
        "output": "*bf16",
        "num_splits": "i32",
    }
    constants = {"NUM_HEADS": 32, "HEAD_DIM": 80, "WINDOW": None, "SPLIT": 256, "FEATURES": 128}
    assert shared_kib(chip, decode.merge_kernel, types, constants) <= limit

    types = {
        **dict.fromkeys(("hidden", "residual", "weight", "normed", "total"), "*bf16"),
        "eps": "fp32",
        **dict.fromkeys(("stride_hidden", "stride_residual"), "i32"),
    }
    constants = {"WIDTH": 4096, "PADDED": 4096, "HAS_RESIDUAL": True}
    assert shared_kib(chip, elementwise.rms_norm_kernel, types, constants, num_warps=8) <= limit

    strides = ("stride_query_token", "stride_query_head", "stride_key_token", "stride_key_head")
    types = {
        **dict.fromkeys(("query", "key"), "*bf16"),
        "positions": "*i64",
        **dict.fromkeys(("cos", "sin"), "*fp32"),
        **dict.fromkeys(strides, "i32"),
    }
    halves = {"HALF": 40, "PADDED_HALF": 64}
    heads = {"NUM_HEADS": 9, "PADDED_HEADS": 16, "NUM_KV_HEADS": 3, "PADDED_KV_HEADS": 4}
    assert shared_kib(chip, elementwise.rope_kernel, types, halves | heads) <= limit

    types = {"gate_up": "*bf16", "output": "*bf16", "stride_row": "i32", "width": "i32"}
    assert shared_kib(chip, elementwise.silu_mul_kernel, types, {"ELEMENTS": elementwise.SILU_ELEMENTS}) <= limit


def test_the_dot_of_a_device_takes_the_type_of_the_cache():
    assert tiles.dot_dtype(torch.bfloat16, torch.device("cuda")) == tl.bfloat16
    assert tiles.dot_dtype(torch.bfloat16, torch.device("cpu")) == tl.float32

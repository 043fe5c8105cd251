"""A decoder's weights in 4 or 8 bits, in the form that the CPU's packed step reads."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paged_chat.kernels.cpu.grouped_weights import pack, quantise
from paged_chat.kernels.cpu.simd import LANES
from paged_chat.kernels.cpu.tile_rows import GROUP, group_bytes

from ..progress import LoadProgress, OnProgress
from .config import ModelConfig
from .prepared import PreparedTensor
from .weights import FusedTensor, fused_tensors

LINEARS = ("qkv", "output", "gate_up", "down")
HEAD_BITS = 8
"""The head decides between tokens directly: 4 bits there cost more in quality than they save in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """L layers; tiles of 16 rows, groups of 32 columns (kernels/cpu/grouped_weights.py)."""

    bits: int  # of the linear layers
    embedding: Tensor  # [vocab, W] bfloat16
    linears: tuple[Tensor, ...]  # by LINEARS: uint8 [L, tiles, groups, bytes]
    biases: tuple[Tensor, ...]  # by LINEARS: float32 [L, padded rows] or [L, 0]
    attention_norms: Tensor  # [L, W] float32
    mlp_norms: Tensor  # [L, W] float32
    query_norms: Tensor  # [L, D] float32, or [L, 0]
    key_norms: Tensor
    norm: Tensor  # [W] float32
    head: Tensor  # uint8 [tiles, groups, bytes]


def fits_packed(config: ModelConfig, block_size: int) -> bool:
    """Whether the packed step can run this shape."""
    columns = (config.hidden_size, config.query_width, config.intermediate_size)
    return block_size == LANES and config.head_dim % LANES == 0 and all(width % GROUP == 0 for width in columns)


def linear_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Outputs and columns of a layer's products, by LINEARS."""
    width = config.hidden_size
    return {
        "qkv": (config.query_width + 2 * config.kv_width, width),
        "output": (width, config.query_width),
        "gate_up": (2 * config.intermediate_size, width),
        "down": (width, config.intermediate_size),
    }


def packed_tensors(config: ModelConfig, bits: int) -> tuple[PreparedTensor, ...]:
    """What a prepared file of packed weights holds, in the order in which `pack_weights` gives it."""
    width, layers, shapes = config.hidden_size, config.num_layers, linear_shapes(config)
    has_bias = {
        "qkv": config.attention_bias,
        "output": config.output_bias,
        "gate_up": config.mlp_bias,
        "down": config.mlp_bias,
    }
    tensors = [PreparedTensor("embedding", (config.vocab_size, width), torch.bfloat16)]
    for name, (rows, columns) in shapes.items():
        tensors.append(PreparedTensor(name, (layers, *_packed_shape(rows, columns, bits)), torch.uint8))
    for name, (rows, _) in shapes.items():
        padded = _num_tiles(rows) * LANES if has_bias[name] else 0
        tensors.append(PreparedTensor(f"{name}_bias", (layers, padded), torch.float32))
    head_width = config.head_dim if config.qk_norm else 0
    for name, columns in (
        ("attention_norm", width),
        ("mlp_norm", width),
        ("query_norm", head_width),
        ("key_norm", head_width),
    ):
        tensors.append(PreparedTensor(name, (layers, columns), torch.float32))
    tensors.append(PreparedTensor("norm", (width,), torch.float32))
    tensors.append(PreparedTensor("head", _packed_shape(config.vocab_size, width, HEAD_BITS), torch.uint8))
    return tuple(tensors)


def pack_weights(
    config: ModelConfig, bits: int, fused: Iterator[tuple[FusedTensor, Tensor]], on_progress: OnProgress
) -> dict[str, Tensor]:
    """Packs float32 tensors as they come, one at a time."""
    tensors = {spec.name: torch.zeros(spec.shape, dtype=spec.dtype) for spec in packed_tensors(config, bits)}
    done, num_bytes = 0, sum(tensor.num_elements for tensor in fused_tensors(config)) * torch.float32.itemsize
    for tensor, value in fused:
        done += value.nbytes
        on_progress(LoadProgress("convert", done, num_bytes))
        *layer, role = tensor.name.removeprefix("layers.").split(".")
        if role in LINEARS:
            tensors[role][int(layer[0])] = _packed(value, bits)
        elif layer:
            tensors[role][int(layer[0]), : value.shape[0]] = value
        elif role == "norm":
            tensors["norm"].copy_(value)
        else:
            if role == "embedding":
                tensors["embedding"].copy_(value)
            if role == ("embedding" if config.tie_embeddings else "head"):
                tensors["head"].copy_(_packed(value, HEAD_BITS))
    return tensors


def from_tensors(bits: int, tensors: dict[str, Tensor]) -> PackedWeights:
    """`tensors` holds what `packed_tensors` lists, by its names."""
    return PackedWeights(
        bits=bits,
        embedding=tensors["embedding"],
        linears=tuple(tensors[name] for name in LINEARS),
        biases=tuple(tensors[f"{name}_bias"] for name in LINEARS),
        attention_norms=tensors["attention_norm"],
        mlp_norms=tensors["mlp_norm"],
        query_norms=tensors["query_norm"],
        key_norms=tensors["key_norm"],
        norm=tensors["norm"],
        head=tensors["head"],
    )


def _packed(value: Tensor, bits: int) -> Tensor:
    return torch.from_numpy(pack(quantise(value.numpy().astype(np.float32, copy=False), bits), bits))


def _packed_shape(rows: int, columns: int, bits: int) -> tuple[int, int, int]:
    return (_num_tiles(rows), columns // GROUP, group_bytes(bits))


def _num_tiles(rows: int) -> int:
    return -(-rows // LANES)

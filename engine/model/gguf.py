"""A GGUF file's tensors by their Hugging Face names, dequantised, in the row order that transformers has."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ModelFileInvalid
from .config import ModelConfig
from .gguf_file import GgufFile, GgufTensor

_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"
FOUR_BIT_TYPES = ("Q4_0", "Q4_1", "Q4_K")
# llama.cpp's converter turns these families' query and key rows from "two halves of a head" to "pairs", for its own
# rotation; Qwen's it leaves as they are (conversion/llama.py, which smollm3's converter inherits).
PERMUTED_FAMILIES = ("llama", "mistral", "smollm3")


def canonical_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; names that aren't known stay as they are."""
    match name.split("."):
        case [outer, suffix] if outer in _OUTER:
            return f"{_OUTER[outer]}.{suffix}"
        case ["blk", layer, inner, suffix] if inner in _INNER:
            return f"model.layers.{layer}.{_INNER[inner]}.{suffix}"
    return name


class GgufSource:
    """`TensorSource` over one GGUF file."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self.source = str(file.path)
        self.file = file
        self._tensors: dict[str, GgufTensor] = {}
        for tensor in file.tensors.values():
            if tensor.name != ROPE_FACTORS:  # part of the configuration
                self._tensors[canonical_name(tensor.name)] = tensor
        self._heads_of = {}
        if config.family in PERMUTED_FAMILIES:
            self._heads_of = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}

    @property
    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        tensor = self._tensors[name]
        tensor.kind(self.file.path)
        return tensor.shape

    def read(self, name: str) -> Tensor:  # float32; float16 and bfloat16 where the file holds those
        values = read_tensor(self.file, self._tensors[name])
        num_heads = self._heads_of.get(name.rsplit(".", 2)[-2])
        if num_heads is not None:
            # [heads, pairs, 2, ...] -> [heads, 2, halves, ...]
            values = values.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).reshape(values.shape)
        return values


def read_tensor(file: GgufFile, tensor: GgufTensor) -> Tensor:
    """Raises ModelUnsupported for a type that isn't read here, ModelFileInvalid where its blocks can't be decoded."""
    kind = tensor.kind(file.path)
    num_bytes = tensor.num_bytes(file.path)
    raw = np.frombuffer(file.bytes, dtype=np.uint8, count=num_bytes, offset=tensor.start)
    if kind.name in ("F32", "F16", "BF16"):
        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind.name]
        # A copy, since torch only takes memory that it may write to.
        return torch.from_numpy(raw.copy()).view(dtype).reshape(tensor.shape)
    from gguf import GGMLQuantizationType, dequantize

    rows = raw.reshape(*tensor.shape[:-1], -1)
    try:
        values: Any = dequantize(rows, GGMLQuantizationType(kind.type_id))
    except (ValueError, NotImplementedError) as error:
        raise ModelFileInvalid(f"{file.path}: the tensor {tensor.name[:120]} can't be dequantised: {error}") from error
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).reshape(tensor.shape)


def mostly_four_bits(file: GgufFile) -> bool:
    """Whether most of the layers' weights are stored in 4 bits or fewer."""
    counts = {True: 0, False: 0}
    for tensor in file.tensors.values():
        if tensor.name.startswith("blk."):
            counts[tensor.kind(file.path).name in FOUR_BIT_TYPES] += math.prod(tensor.shape)
    return counts[True] > counts[False]

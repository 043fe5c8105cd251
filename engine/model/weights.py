"""A model's tensors: what must be in a file, and the fused form that the decoder computes with.

Files hold q, k, v and gate, up apart; the decoder multiplies by one matrix for q, k and v and by one for gate and up,
since one large product costs less than several small ones.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import ModelFileInvalid, ModelUnsupported
from .config import ModelConfig

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


class TensorSource(Protocol):
    """An open model file (or several): tensors by their Hugging Face names."""

    source: str  # path, for messages

    @property
    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises ModelFileInvalid or ModelUnsupported for a tensor that can't be read."""
        ...

    def read(self, name: str) -> Tensor:
        """The values, in a dtype that loses nothing of what the file holds; perhaps a view of the file's own bytes."""
        ...


@dataclass(frozen=True, slots=True)
class FusedTensor:
    """One tensor of the decoder: the file's `parts`, one below the other."""

    name: str
    parts: tuple[str, ...]
    part_shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(shape[0] for shape in self.part_shapes), *self.part_shapes[0][1:])

    @property
    def num_elements(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """W is the hidden size, Q the width of all query heads, V that of all key (or value) heads, I the MLP's."""

    attention_norm: Tensor  # [W]
    qkv: Tensor  # [Q + 2 V, W]
    qkv_bias: Tensor | None  # [Q + 2 V]
    query_norm: Tensor | None  # [head_dim]
    key_norm: Tensor | None  # [head_dim]
    output: Tensor  # [W, Q]
    output_bias: Tensor | None  # [W]
    mlp_norm: Tensor  # [W]
    gate_up: Tensor  # [2 I, W]
    gate_up_bias: Tensor | None  # [2 I]
    down: Tensor  # [W, I]
    down_bias: Tensor | None  # [W]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    embedding: Tensor  # [vocab, W]
    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [W]
    head: Tensor  # [vocab, W]; the embedding itself where they are tied

    @classmethod
    def from_tensors(cls, config: ModelConfig, tensors: dict[str, Tensor]) -> "DecoderWeights":
        """`tensors` holds what `fused_tensors` lists, by its names."""
        roles = LayerWeights.__dataclass_fields__
        return cls(
            embedding=tensors["embedding"],
            layers=tuple(
                LayerWeights(**{role: tensors.get(f"layers.{layer}.{role}") for role in roles})  # type: ignore[arg-type]
                for layer in range(config.num_layers)
            ),
            norm=tensors["norm"],
            head=tensors["embedding" if config.tie_embeddings else "head"],
        )


def fused_tensors(config: ModelConfig) -> list[FusedTensor]:
    """Every tensor of the decoder, in the order in which it is used."""
    width, queries, keys, inner = config.hidden_size, config.query_width, config.kv_width, config.intermediate_size
    fused = [FusedTensor("embedding", (EMBEDDING,), ((config.vocab_size, width),))]

    def add(role: str, layer: int, parts: tuple[str, ...], suffix: str, *part_shapes: tuple[int, ...]) -> None:
        names = tuple(f"model.layers.{layer}.{part}.{suffix}" for part in parts)
        fused.append(FusedTensor(f"layers.{layer}.{role}", names, part_shapes))

    qkv, gate_up = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj")
    for layer in range(config.num_layers):
        add("attention_norm", layer, ("input_layernorm",), "weight", (width,))
        add("qkv", layer, qkv, "weight", (queries, width), (keys, width), (keys, width))
        if config.attention_bias:
            add("qkv_bias", layer, qkv, "bias", (queries,), (keys,), (keys,))
        if config.qk_norm:
            add("query_norm", layer, ("self_attn.q_norm",), "weight", (config.head_dim,))
            add("key_norm", layer, ("self_attn.k_norm",), "weight", (config.head_dim,))
        add("output", layer, ("self_attn.o_proj",), "weight", (width, queries))
        if config.output_bias:
            add("output_bias", layer, ("self_attn.o_proj",), "bias", (width,))
        add("mlp_norm", layer, ("post_attention_layernorm",), "weight", (width,))
        add("gate_up", layer, gate_up, "weight", (inner, width), (inner, width))
        add("down", layer, ("mlp.down_proj",), "weight", (width, inner))
        if config.mlp_bias:
            add("gate_up_bias", layer, gate_up, "bias", (inner,), (inner,))
            add("down_bias", layer, ("mlp.down_proj",), "bias", (width,))
    fused.append(FusedTensor("norm", (FINAL_NORM,), ((width,),)))
    if not config.tie_embeddings:
        fused.append(FusedTensor("head", (HEAD,), ((config.vocab_size, width),)))
    return fused


def check_tensors(source: TensorSource, fused: list[FusedTensor]) -> None:
    """Everything that the decoder needs is there in the right shape, and nothing is there that it would leave out.

    Raises ModelFileInvalid for a missing or misshapen tensor, ModelUnsupported for one that has no place in the
    decoder: computing without it would give fluent nonsense.
    """
    wanted: set[str] = set()
    for tensor in fused:
        for name, shape in zip(tensor.parts, tensor.part_shapes, strict=True):
            wanted.add(name)
            if name not in source.names:
                raise ModelFileInvalid(f"{source.source}: the tensor {name} is missing")
            if (found := source.shape(name)) != shape:
                raise ModelFileInvalid(
                    f"{source.source}: the tensor {name} is {list(found)}, the model's configuration says {list(shape)}"
                )
    for name in source.names:
        # A tied head may be stored all the same; old files hold rotary frequencies, which are computed here.
        if name not in wanted and name != HEAD and not name.endswith("rotary_emb.inv_freq"):
            raise ModelUnsupported(f"{source.source}: the tensor {name[:120]} has no place in this model's decoder")


def fuse(
    source: TensorSource, fused: list[FusedTensor], dtype: torch.dtype
) -> Iterator[tuple[FusedTensor, Tensor]]:  # contiguous tensors on the CPU
    """Reads and joins one tensor after the other, so that little more than the result is ever in memory.

    All are copies: a file that is overwritten later neither changes nor crashes a model that was read from it.
    """
    for tensor in fused:
        joined = torch.empty(tensor.shape, dtype=dtype)
        row = 0
        for name in tensor.parts:
            part = source.read(name)
            joined[row : row + len(part)] = part
            row += len(part)
        yield tensor, joined

"""A model's configuration out of a GGUF file's metadata."""

from ..errors import ModelFileInvalid, ModelUnsupported
from .config import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCAB,
    MAX_WIDTH,
    Family,
    ModelConfig,
    RopeConfig,
)
from .fields import Fields
from .gguf import ROPE_FACTORS, read_tensor
from .gguf_file import GgufFile
from .hf_config import WORKING
from .rope import yarn_attention_factor

# Mistral's files say "llama".
ARCHITECTURES: dict[str, Family] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "smollm3": "smollm3"}
SMOLLM3_NOPE_INTERVAL = 4  # llama.cpp has no field for it
_END_TOKENS = ("eos", "eot", "eom")


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """Raises ModelUnsupported for another architecture or option, ModelFileInvalid for values that can't be."""
    general = Fields(str(file.path), file.metadata)
    architecture = general.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelUnsupported(f"{file.path}: the architecture {architecture[:80]!r} isn't supported. {WORKING}")
    family = ARCHITECTURES[architecture]
    prefix = f"{architecture}."
    values = {name.removeprefix(prefix): value for name, value in file.metadata.items() if name.startswith(prefix)}
    fields = Fields(f"{file.path}: {architecture}", values)
    if fields.integer("expert_count", 0, 2**16, default=0) > 0:
        raise ModelUnsupported(f"{file.path}: mixtures of experts aren't supported. {WORKING}")

    hidden_size = fields.integer("embedding_length", 1, MAX_WIDTH)
    num_layers = fields.integer("block_count", 1, MAX_LAYERS)
    num_heads = fields.integer("attention.head_count", 1, MAX_HEADS)
    max_position = fields.integer("context_length", 1, MAX_POSITIONS)
    head_dim = _head_dim(fields, hidden_size, num_heads)
    ids = [general.token_ids(f"tokenizer.ggml.{kind}_token_id") for kind in _END_TOKENS]
    is_nope = [family == "smollm3" and (layer + 1) % SMOLLM3_NOPE_INTERVAL == 0 for layer in range(num_layers)]
    return ModelConfig(
        source=str(file.path),
        family=family,
        vocab_size=_vocab_size(file),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length", 1, MAX_WIDTH),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.integer("attention.head_count_kv", 1, MAX_HEADS, default=num_heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon", 0, 1),
        max_position=max_position,
        tie_embeddings="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        qk_norm=family == "qwen3",
        windows=_windows(file, fields, family, num_layers),
        nope=tuple(is_nope),
        rope=_rope(file, fields, max_position),
        eos_token_ids=tuple(dict.fromkeys(token_id for kind in ids for token_id in kind)),
    )


def _vocab_size(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2 or embedding.shape[0] > MAX_VOCAB:
        raise ModelFileInvalid(f"{file.path}: the tensor token_embd.weight is missing or misshapen")
    return embedding.shape[0]


def _head_dim(fields: Fields, hidden_size: int, num_heads: int) -> int:
    if "attention.key_length" not in fields and hidden_size % num_heads:
        raise fields.invalid("embedding_length", f"must be a multiple of the {num_heads} attention heads")
    head_dim = fields.integer("attention.key_length", 2, MAX_HEAD_DIM, default=hidden_size // num_heads)
    for other in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(other, 1, MAX_WIDTH, default=head_dim) != head_dim:
            raise ModelUnsupported(f"{fields.source}.{other} differs from the head size, {head_dim}; equal ones work")
    return head_dim


def _windows(file: GgufFile, fields: Fields, family: Family, num_layers: int) -> tuple[int | None, ...]:  # per layer
    window = fields.integer("attention.sliding_window", 0, MAX_POSITIONS, default=0)
    if window == 0:
        return (None,) * num_layers
    pattern = file.array(f"{file.metadata['general.architecture']}.attention.sliding_window_pattern")
    if pattern is not None and len(pattern) >= num_layers:
        return tuple(window if slides else None for slides in pattern[:num_layers])
    # Mistral's window is on every layer; Qwen files may name a window that no layer uses.
    return (window if family == "llama" else None,) * num_layers


def _rope(file: GgufFile, fields: Fields, max_position: int) -> RopeConfig:
    theta = fields.number("rope.freq_base", 1, 1e15, default=10000.0)
    factors: tuple[float, ...] = ()
    if (stored := file.tensors.get(ROPE_FACTORS)) is not None:
        if len(stored.shape) != 1 or stored.shape[0] > MAX_HEAD_DIM:
            raise ModelFileInvalid(f"{file.path}: the tensor {ROPE_FACTORS} is {list(stored.shape)}")
        factors = tuple(read_tensor(file, stored).tolist())
        if not all(0 < factor < float("inf") for factor in factors):
            raise ModelFileInvalid(f"{file.path}: the tensor {ROPE_FACTORS} must hold numbers above 0")
    # Files from before 2023-09 have scale_linear alone; without a type a factor means linear, as in llama.cpp.
    factor = fields.number("rope.scaling.factor", 0, 1e6, default=fields.number("rope.scale_linear", 0, 1e6, 1.0))
    kind = fields.text("rope.scaling.type", "linear")
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return RopeConfig(theta=theta, frequency_factors=factors)
    if kind == "linear":
        return RopeConfig(theta=theta, kind="linear", factor=factor, frequency_factors=factors)
    if kind != "yarn":
        raise ModelUnsupported(f"{file.path}: RoPE scaling of type {kind[:40]!r} isn't supported; linear and yarn are")
    return RopeConfig(
        theta=theta,
        kind="yarn",
        factor=factor,
        original_max_position=fields.integer(
            "rope.scaling.original_context_length", 1, MAX_POSITIONS, default=max_position
        ),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 0, 1e6, default=32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 0, 1e6, default=1.0),
        attention_factor=yarn_attention_factor(factor) * fields.number("rope.scaling.attn_factor", 0, 1e3, default=1.0),
        frequency_factors=factors,
    )

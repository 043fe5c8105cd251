"""A model's configuration out of the `config.json` that transformers writes, of version 5 or older."""

from ..errors import ModelUnsupported
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
    RopeKind,
)
from .fields import Fields
from .rope import yarn_attention_factor

ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "SmolLM3ForCausalLM": "smollm3",
}
ROPE_KINDS: dict[str, RopeKind] = {"default": "default", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}
WORKING = (
    "Models that work: Llama 2 and 3, SmolLM2 (LlamaForCausalLM), Mistral (MistralForCausalLM), "
    "Qwen2 and 2.5 (Qwen2ForCausalLM), Qwen3 (Qwen3ForCausalLM), SmolLM3 (SmolLM3ForCausalLM)."
)


def config_from_hf(fields: Fields, generation: Fields | None = None) -> ModelConfig:
    """`fields` is config.json, `generation` generation_config.json, whose end tokens win over the config's.

    Defaults for what a file leaves out are transformers' own.
    Raises ModelUnsupported for another architecture or an option that isn't run, ModelFileInvalid for bad values.
    """
    family = _family(fields)
    _refuse_options(fields)
    hidden_size = fields.integer("hidden_size", 1, MAX_WIDTH)
    num_layers = fields.integer("num_hidden_layers", 1, MAX_LAYERS)
    num_heads = fields.integer("num_attention_heads", 1, MAX_HEADS)
    max_position = fields.integer("max_position_embeddings", 1, MAX_POSITIONS, default=2048)
    nope = _nope_layers(fields, family, num_layers)
    eos = generation.token_ids("eos_token_id") if generation is not None else ()
    all_biases = fields.flag("attention_bias", False) if family in ("llama", "qwen3", "smollm3") else False
    return ModelConfig(
        source=fields.source,
        family=family,
        vocab_size=fields.integer("vocab_size", 1, MAX_VOCAB),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", 1, MAX_WIDTH),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.integer(
            "num_key_value_heads", 1, MAX_HEADS, default=8 if family == "mistral" else num_heads
        ),
        head_dim=_head_dim(fields, family, hidden_size, num_heads),
        rms_norm_eps=fields.number("rms_norm_eps", 0, 1, default=1e-6),
        max_position=max_position,
        tie_embeddings=fields.flag("tie_word_embeddings", family == "smollm3"),
        attention_bias=all_biases or family == "qwen2",
        output_bias=all_biases,
        mlp_bias=fields.flag("mlp_bias", False) if family in ("llama", "smollm3") else False,
        qk_norm=family == "qwen3",
        windows=_windows(fields, family, num_layers, nope),
        nope=nope,
        rope=_rope(fields, family, max_position),
        eos_token_ids=eos or fields.token_ids("eos_token_id"),
    )


def _family(fields: Fields) -> Family:
    listed = fields.values.get("architectures")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    if not names and isinstance(model_type := fields.values.get("model_type"), str):
        by_type: dict[str, Family] = {family: family for family in ARCHITECTURES.values()}
        if model_type in by_type:
            return by_type[model_type]
        names = [model_type]
    for name in names:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    shown = ", ".join(names)[:200] or "an unnamed architecture"
    raise ModelUnsupported(f"{fields.source}: {shown} isn't supported. {WORKING}")


def _refuse_options(fields: Fields) -> None:
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelUnsupported(f"{fields.source}: hidden_act {activation[:40]!r} isn't supported; silu is")
    if (quantized := fields.nested("quantization_config")) is not None:
        method = str(quantized.values.get("quant_method", "unknown"))[:40]
        raise ModelUnsupported(
            f"{fields.source}: weights quantised by {method!r} aren't supported in this format; "
            "use the unquantised model, or a .gguf file of it"
        )
    if fields.number("partial_rotary_factor", 0, 1, default=1.0) != 1.0:
        raise ModelUnsupported(f"{fields.source}: partial_rotary_factor below 1 isn't supported")


def _head_dim(fields: Fields, family: Family, hidden_size: int, num_heads: int) -> int:
    if "head_dim" in fields:
        return fields.integer("head_dim", 2, MAX_HEAD_DIM)
    if family == "qwen3":
        return 128
    if hidden_size % num_heads:
        raise fields.invalid("hidden_size", f"must be a multiple of the {num_heads} attention heads")
    head_dim = hidden_size // num_heads
    if head_dim > MAX_HEAD_DIM:
        raise fields.invalid("num_attention_heads", f"gives heads of {head_dim} features; at most {MAX_HEAD_DIM} work")
    return head_dim


def _nope_layers(fields: Fields, family: Family, num_layers: int) -> tuple[bool, ...]:
    if family != "smollm3":
        return (False,) * num_layers
    with_rope = fields.list_of(int, "no_rope_layers", num_layers)  # 1 where the layer does use RoPE
    if with_rope is not None:
        return tuple(not use_rope for use_rope in with_rope)
    interval = fields.integer("no_rope_layer_interval", 1, MAX_LAYERS, default=4)
    return tuple((layer + 1) % interval == 0 for layer in range(num_layers))


def _windows(
    fields: Fields, family: Family, num_layers: int, nope: tuple[bool, ...]
) -> tuple[int | None, ...]:  # per layer
    if family == "llama":
        return (None,) * num_layers
    # A file that leaves the window out means 4,096 (SmolLM3: none); one that says null means none.
    if "sliding_window" not in fields and (family == "smollm3" or "sliding_window" in fields.values):
        return (None,) * num_layers
    window = fields.integer("sliding_window", 1, MAX_POSITIONS, default=4096)
    if family == "mistral":
        return (window,) * num_layers
    if not fields.flag("use_sliding_window", False):
        return (None,) * num_layers
    kinds = fields.list_of(str, "layer_types", num_layers)
    if kinds is None and family == "smollm3":
        sliding = list(nope)
    elif kinds is None:
        first = fields.integer("max_window_layers", 0, MAX_LAYERS, default=28)
        sliding = [layer >= first for layer in range(num_layers)]
    else:
        if unknown := {str(kind) for kind in kinds} - {"full_attention", "sliding_attention"}:
            raise ModelUnsupported(f"{fields.source}: layers of type {sorted(unknown)[0][:40]!r} aren't supported")
        sliding = [kind == "sliding_attention" for kind in kinds]
    return tuple(window if slides else None for slides in sliding)


def _rope(fields: Fields, family: Family, max_position: int) -> RopeConfig:
    theta = fields.number("rope_theta", 1, 1e15, default=2e6 if family == "smollm3" else 10000.0)
    scaling = fields.nested("rope_scaling") if fields.values.get("rope_scaling") else fields.nested("rope_parameters")
    if scaling is None:
        return RopeConfig(theta=theta)
    per_layer = [nested for kind in scaling.values if kind.endswith("_attention") and (nested := scaling.nested(kind))]
    if per_layer:
        # Version 5 may write the parameters once for each type of layer.
        if any(nested.values != per_layer[0].values for nested in per_layer):
            raise ModelUnsupported(f"{fields.source}: rotary parameters that differ between layers aren't supported")
        scaling = per_layer[0]
    name = scaling.text("rope_type", scaling.text("type", "default"))
    if name not in ROPE_KINDS:
        raise ModelUnsupported(
            f"{fields.source}: RoPE scaling of type {name[:40]!r} isn't supported; {', '.join(ROPE_KINDS)} are"
        )
    if scaling.number("partial_rotary_factor", 0, 1, default=1.0) != 1.0:
        raise ModelUnsupported(f"{fields.source}: partial_rotary_factor below 1 isn't supported")
    kind = ROPE_KINDS[name]
    theta = scaling.number("rope_theta", 1, 1e15, default=theta)
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, kind=kind, factor=scaling.number("factor", 0, 1e6))
    outer = fields.integer("original_max_position_embeddings", 1, MAX_POSITIONS, default=max_position)
    original = scaling.integer("original_max_position_embeddings", 1, MAX_POSITIONS, default=outer)
    if kind == "llama3":
        low = scaling.number("low_freq_factor", 0, 1e6)
        return RopeConfig(
            theta=theta,
            kind=kind,
            factor=scaling.number("factor", 0, 1e6),
            original_max_position=original,
            low_freq_factor=low,
            high_freq_factor=scaling.number("high_freq_factor", low, 1e6),
        )
    factor = scaling.number("factor", 0, 1e6, default=max_position / original)
    scale, scale_all = (scaling.number(key, 0, 1e3, default=1e3) for key in ("mscale", "mscale_all_dim"))
    attention_factor = yarn_attention_factor(factor)
    if "mscale" in scaling and "mscale_all_dim" in scaling:
        attention_factor = yarn_attention_factor(factor, scale) / yarn_attention_factor(factor, scale_all)
    return RopeConfig(
        theta=theta,
        kind=kind,
        factor=factor,
        original_max_position=original,
        beta_fast=scaling.number("beta_fast", 0, 1e6, default=32.0),
        beta_slow=scaling.number("beta_slow", 0, 1e6, default=1.0),
        attention_factor=scaling.number("attention_factor", 0, 1e3, default=attention_factor),
        truncate=scaling.flag("truncate", True),
    )

"""Tiny models with random weights, saved by transformers: all that most tests of the engine need.

Weights are spread so wide that the most likely token is clear, and norms and biases are random too, so that a decoder
that drops one of them gives other logits.
"""

from pathlib import Path
from typing import Any

VOCAB_SIZE = 320
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 256}
_LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

# Family -> (transformers class, what differs from _COMMON).
_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama2": ("Llama", {"num_key_value_heads": 4}),
    "llama3": ("Llama", {"rope_parameters": _LLAMA3}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-bias": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    # The default model's heads, for which all is compiled anyway.
    "llama-group3": ("Llama", {"hidden_size": 96, "num_attention_heads": 6, "head_dim": 64}),
    "mistral": ("Mistral", {"sliding_window": 24}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": (
        "Qwen2",
        {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "tie_word_embeddings": True, "no_rope_layer_interval": 4}),
    "yarn": ("Qwen2", {"rope_parameters": _YARN}),
    "linear": ("Llama", {"rope_parameters": _LINEAR}),
}
FAMILIES = tuple(_FAMILIES)


def causal_lm(family: str, seed: int = 0, **overrides: Any) -> Any:
    """A transformers `…ForCausalLM` in float32 with random weights; `overrides` are fields of its config."""
    import torch
    import transformers

    prefix, differences = _FAMILIES[family]
    fields = {**_COMMON, **differences, **overrides}
    if prefix in ("Qwen2", "SmolLM3"):
        # These two have no head_dim of their own: it follows from the hidden size and the heads.
        fields.pop("head_dim", None)
    config = getattr(transformers, f"{prefix}Config")(**fields)
    model = getattr(transformers, f"{prefix}ForCausalLM")(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        centre, spread = (1.0, 0.1) if "norm" in name else (0.0, 0.2)
        parameter.data = centre + spread * torch.randn(parameter.shape, generator=generator)
    model.tie_weights()
    return model


def build(family: str, folder: Path, seed: int = 0, **overrides: Any) -> Path:
    """Saves a tiny model of `family` (one of FAMILIES) as safetensors, without a tokenizer; gives the folder back."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.disable_progress_bar()
    causal_lm(family, seed, **overrides).save_pretrained(folder)
    return folder

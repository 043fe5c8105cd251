"""Tiny `.gguf` files, written as llama.cpp's converter writes them: its names, its permuted rows, its metadata."""

from pathlib import Path
from typing import Any

import tiny_models

_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "smollm3": "smollm3"}


def build(family: str, path: Path, quantization: str = "F32", seed: int = 0, **overrides: Any) -> Path:
    """Saves the model that `tiny_models.build` saves for these arguments; matrices are stored as `quantization`.

    K-quants, which the gguf package can't make, hold random blocks: for those the weights are what they decode to.
    """
    import gguf
    import numpy as np

    model = tiny_models.causal_lm(family, seed, **overrides)
    config = model.config
    architecture = _ARCHITECTURES[config.model_type]
    kind = gguf.GGMLQuantizationType[quantization]
    writer = gguf.GGUFWriter(path, architecture)
    _write_metadata(writer, config)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    random = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        module, suffix = name.rsplit(".", 1)
        num_heads = heads.get(module.rsplit(".", 1)[-1])
        if num_heads is not None and architecture in ("llama", "smollm3"):
            # [heads, 2, halves, ...] -> [heads, pairs, 2, ...]
            split = values.reshape(num_heads, 2, len(values) // num_heads // 2, *values.shape[1:])
            values = np.ascontiguousarray(split.swapaxes(1, 2)).reshape(values.shape)
        file_name = f"{gguf_name(module)}.{suffix}"
        if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(file_name, values.astype(np.float32))
        elif quantization.endswith("_K"):
            writer.add_tensor(file_name, random_blocks(random, kind, values.shape), raw_dtype=kind)
        else:
            writer.add_tensor(file_name, gguf.quantize(values, kind), raw_dtype=kind)
    rope = config.rope_parameters
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, model))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(module: str) -> str:
    if module in _OUTER:
        return _OUTER[module]
    _, _, layer, inner = module.split(".", 3)
    return f"blk.{layer}.{_INNER[inner]}"


def random_blocks(random: Any, kind: Any, shape: tuple[int, ...]) -> Any:  # [rows, bytes a row] uint8
    """Any bits make a K-quant block, but for its float16 scales, which are set to something small."""
    import gguf
    import numpy as np

    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    assert shape[-1] % block_elements == 0, "rows of K-quants are multiples of 256"
    blocks = random.integers(0, 256, (*shape[:-1], shape[-1] // block_elements, block_bytes), dtype=np.uint8)
    scale = np.frombuffer(np.float16(2e-4).tobytes(), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.Q6_K:
        blocks[..., -2:] = scale
    else:  # Q4_K, Q5_K: scale and minimum
        blocks[..., :2], blocks[..., 2:4] = scale, scale
    return blocks.reshape(*shape[:-1], -1)


def _write_metadata(writer: Any, config: Any) -> None:
    import gguf

    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "mistral":
        writer.add_sliding_window(config.sliding_window)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"<{token_id}>" for token_id in range(config.vocab_size)])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)


def _llama3_factors(rope: dict[str, Any], model: Any) -> Any:  # [head_dim / 2] float32
    """By how much Llama 3's ramp divides each frequency."""
    import torch

    scaled = model.model.rotary_emb.inv_freq
    exponents = torch.arange(len(scaled), dtype=torch.float32) / len(scaled)
    return (1.0 / rope["rope_theta"] ** exponents / scaled).numpy()

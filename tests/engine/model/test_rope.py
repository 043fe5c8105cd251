"""The rotary tables against transformers' own, with every parameter away from its default."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from paged_chat.engine.model.fields import Fields
from paged_chat.engine.model.hf_config import config_from_hf
from paged_chat.engine.model.rope import cos_sin_tables

YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 4096}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "default", "rope_theta": 1e5},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5},
        {**LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {**LLAMA3, "low_freq_factor": 2.0, "high_freq_factor": 8.0},
        YARN,
        {**YARN, "beta_fast": 64.0, "beta_slow": 2.0},
        {**YARN, "attention_factor": 1.5},
        {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
        {**YARN, "truncate": False},
        {**YARN, "original_max_position_embeddings": 16},
    ],
    ids=str,
)
def test_tables_equal_transformers(parameters, head_dim):
    reference = LlamaConfig(
        vocab_size=320,
        hidden_size=head_dim * 4,
        intermediate_size=64,
        num_attention_heads=4,
        max_position_embeddings=65536,
        rope_parameters=dict(parameters),
    )
    positions = torch.cat([torch.arange(300), torch.arange(4000, 4100), torch.arange(20000, 20010)])
    expected_cos, expected_sin = LlamaRotaryEmbedding(reference)(torch.zeros(1), positions[None])
    config = config_from_hf(Fields("config.json", {**reference.to_dict(), "architectures": ["LlamaForCausalLM"]}))
    cos, sin = cos_sin_tables(config.rope, head_dim, 20010)
    # transformers repeats each angle for both halves of a head.
    torch.testing.assert_close(cos[positions], expected_cos[0, :, : head_dim // 2], atol=1e-3, rtol=0)
    torch.testing.assert_close(sin[positions], expected_sin[0, :, : head_dim // 2], atol=1e-3, rtol=0)
    torch.testing.assert_close(cos[:300], expected_cos[0, :300, : head_dim // 2], atol=1e-5, rtol=0)

"""The default model as it is shipped: transformers' Llama with the same dequantised weights is the oracle."""

import subprocess
import sys

import pytest
import torch

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.model.gguf import GgufSource
from paged_chat.engine.model.gguf_config import config_from_gguf
from paged_chat.engine.model.gguf_file import GgufFile
from paged_chat.engine.model.loader import load_model
from paged_decoder import PagedDecoder

# "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
SENTENCE = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]


@pytest.fixture(scope="module")
def expected_logits(default_model_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    file = GgufFile(default_model_path)
    config = config_from_gguf(file)
    source = GgufSource(file, config)
    reference = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            max_position_embeddings=config.max_position,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=config.rope.theta,
            tie_word_embeddings=True,
        )
    )
    missing, unexpected = reference.load_state_dict({name: source.read(name) for name in source.names}, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    reference.tie_weights()
    with torch.inference_mode():
        return reference.eval()(torch.tensor([SENTENCE])).logits[0]


def test_logits_equal_transformers(default_model, expected_logits):
    loaded = load_model(EngineConfig(model=default_model, dtype="float32", kernels="cpu"))
    assert loaded.model_config.eos_token_ids == (2,)
    assert loaded.context_window == 8192
    decoder = PagedDecoder(loaded.decoder, num_blocks=16)
    logits = torch.cat([decoder.step(("a", SENTENCE[:9]))[0], decoder.step(("a", SENTENCE[9:]))[0]])
    torch.testing.assert_close(logits, expected_logits, atol=1e-3, rtol=0)


def test_a_second_load_is_fast_and_no_load_imports_transformers(default_model):
    code = (
        "import sys, time, torch\n"
        "from paged_chat.engine.config import EngineConfig\n"
        "from paged_chat.engine.model.loader import load_model\n"
        "def load():\n"
        "    started = time.perf_counter()\n"
        f"    load_model(EngineConfig(model={default_model!r}, dtype='float32', kernels='reference'))\n"
        "    return time.perf_counter() - started\n"
        "load()\n"
        "print(load() < 1.5, sorted({'transformers', 'huggingface_hub'} & set(sys.modules)))\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "True []"

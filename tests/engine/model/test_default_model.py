"""The default model as it is shipped: transformers' Llama with the same dequantised weights is the oracle."""

import subprocess
import sys

import pytest
import torch

from default_model_oracle import transformers_llama
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.model.loader import load_model
from paged_decoder import PagedDecoder

# "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
SENTENCE = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]


@pytest.fixture(scope="module")
def expected_logits(default_model_path):
    reference = transformers_llama(default_model_path)
    with torch.inference_mode():
        return reference(torch.tensor([SENTENCE])).logits[0]


def test_logits_equal_transformers(default_model, expected_logits):
    loaded = load_model(EngineConfig(model=default_model, dtype="float32", kernels="cpu"))
    assert loaded.model_config.eos_token_ids == (2,)
    assert loaded.context_window == 8192
    decoder = PagedDecoder(loaded.decoder, num_blocks=16)
    logits = torch.cat([decoder.step(("a", SENTENCE[:9]))[0], decoder.step(("a", SENTENCE[9:]))[0]])
    torch.testing.assert_close(logits, expected_logits, atol=1e-3, rtol=0)


def test_no_load_imports_transformers(default_model):
    code = (
        "import sys\n"
        "from paged_chat.engine.config import EngineConfig\n"
        "from paged_chat.engine.model.loader import load_model\n"
        f"load_model(EngineConfig(model={default_model!r}, dtype='float32', kernels='reference'))\n"
        "print(sorted({'transformers', 'huggingface_hub'} & set(sys.modules)))\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"

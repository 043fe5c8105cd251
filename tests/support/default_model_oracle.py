"""The default model as transformers computes it: its own Llama over the same dequantised weights."""

from pathlib import Path
from typing import Any


def transformers_llama(path: Path) -> Any:
    """A `LlamaForCausalLM` in float32 with the weights of a `.gguf` file."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.initialization import no_init_weights

    from paged_chat.engine.model.gguf import GgufSource
    from paged_chat.engine.model.gguf_config import config_from_gguf
    from paged_chat.engine.model.gguf_file import GgufFile

    file = GgufFile(path)
    config = config_from_gguf(file)
    source = GgufSource(file, config)
    with no_init_weights():
        model = LlamaForCausalLM(
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
    missing, unexpected = model.load_state_dict({name: source.read(name) for name in source.names}, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model.float().eval()

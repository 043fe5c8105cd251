"""What computes with a loaded model: its pool and runner, and the core above them."""

from .cache.block_manager import BlockManager
from .cache.kv_cache import KVCache, block_bytes
from .config import EngineConfig
from .core import EngineCore
from .events import EventLog
from .model.loader import LoadedModel
from .model.model_runner import ModelRunner
from .pool_size import choose_num_blocks
from .request_check import ModelLimits
from .speculation.speculator import Speculator
from .text.tokenizer import Tokenizer


def build_kv_cache(config: EngineConfig, model: LoadedModel) -> KVCache:
    """Raises OutOfMemory."""
    shape = model.model_config
    num_bytes = block_bytes(shape.num_layers, shape.num_kv_heads, shape.head_dim, config.block_size, model.dtype)
    return KVCache(
        model.backend,
        num_layers=shape.num_layers,
        num_blocks=choose_num_blocks(config, model.device, num_bytes, model.context_window),
        num_kv_heads=shape.num_kv_heads,
        block_size=config.block_size,
        head_dim=shape.head_dim,
        dtype=model.dtype,
        device=model.device,
    )


def build_core(
    config: EngineConfig, model: LoadedModel, kv_cache: KVCache, runner: ModelRunner, tokenizer: Tokenizer | None
) -> EngineCore:
    """tokenizer: None serves token ids alone."""
    shape = model.model_config
    manager = BlockManager(
        kv_cache.num_blocks,
        config.block_size,
        prefix_caching=config.prefix_caching,
        watermark_blocks=int(config.watermark * kv_cache.num_blocks),
        events=EventLog(),
    )
    limits = ModelLimits(
        vocab_size=shape.vocab_size,
        max_model_len=model.context_window,
        num_layers=shape.num_layers,
        shortest_window=min((window for window in shape.windows if window), default=None),
        end_token_ids=frozenset(shape.eos_token_ids),
        key_fields=(model.fingerprint.hex(), model.weights, str(model.dtype), model.backend.name, ""),
    )
    return EngineCore(
        runner,
        manager,
        limits,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        block_bytes=kv_cache.block_bytes,
        tokenizer=tokenizer,
        drafter=Speculator(config.max_draft_tokens) if config.speculation == "auto" else None,
        check_every_step=config.check_integrity,
    )

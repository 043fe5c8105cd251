"""What a model and its pool can never serve is refused before anything is queued."""

from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field

from .beam_search import num_looked_at
from .cache.block_manager import BlockManager
from .counted import counted
from .errors import EmptyPrompt, InvalidParameter, PromptTooLong
from .request import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What the core must know of the model it serves."""

    vocab_size: int
    max_model_len: int
    end_token_ids: frozenset[int]
    num_layers: int = 0
    shortest_window: int | None = None  # of the layers that don't see their whole context
    key_fields: tuple[str, ...] = field(default=())  # weights fingerprint, dtype and KV format, adapter

    def end_token_ids_for(self, params: SamplingParams) -> frozenset[int]:
        own = frozenset() if params.ignore_eos else self.end_token_ids
        return own.union(params.stop_token_ids) if params.stop_token_ids else own


def check_prompt(token_ids: ListOf[int], limits: ModelLimits, manager: BlockManager) -> None:
    """Raises EmptyPrompt, InvalidParameter for an id outside the vocabulary, and PromptTooLong with the numbers."""
    if not token_ids:
        raise EmptyPrompt("the prompt is empty: give it at least one token")
    vocab_size = limits.vocab_size
    for token_id in token_ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise InvalidParameter(f"token ids must be whole numbers from 0 to {vocab_size - 1}, not {token_id!r}")
    num_tokens = len(token_ids)
    if num_tokens >= limits.max_model_len:
        raise PromptTooLong(
            f"the prompt has {counted(num_tokens, 'token')}, and the model's window holds {limits.max_model_len:,}, "
            f"the reply included: shorten the prompt"
        )
    if num_tokens > manager.max_tokens:
        raise PromptTooLong(
            f"the prompt has {counted(num_tokens, 'token')} and needs "
            f"{counted(manager.blocks_for(num_tokens), 'block')}, and the pool has "
            f"{counted(manager.pool.num_blocks - 1, 'block')} for {counted(manager.max_tokens, 'token')}: shorten "
            f"the prompt, or raise num_blocks (--num-blocks) or kv_memory"
        )


def check_params(params: SamplingParams, limits: ModelLimits, max_num_seqs: int, *, has_tokenizer: bool) -> None:
    """Raises InvalidParameter for what values that are good in themselves ask too much of this model and pool."""
    if params.num_sequences > max_num_seqs:
        name, one, more = ("beam_width", "beam", "beams") if params.is_beam_search else ("n", "reply", "replies")
        most = counted(max_num_seqs, f"{one} runs", f"{more} run")
        raise InvalidParameter(
            f"{name} is {params.num_sequences}, but at most {most} at once: ask for fewer, or raise max_num_seqs"
        )
    num_needed = num_looked_at(params, limits.end_token_ids_for(params))
    if params.is_beam_search and num_needed > limits.vocab_size:
        raise InvalidParameter(
            f"beam_width is {params.beam_width}, which needs a vocabulary of {num_needed} tokens or more, and this "
            f"model's has {limits.vocab_size}: take a smaller one"
        )
    if params.stop and not has_tokenizer:
        raise InvalidParameter("stop strings need a tokenizer, and this model has none: use stop_token_ids")

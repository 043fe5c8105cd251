"""Asking an engine, and the greedy oracle that transformers is."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from paged_chat.engine import Engine, RequestOutput, SamplingParams, TokenDelta


def greedy(max_tokens: int, **fields: Any) -> SamplingParams:
    """The likeliest tokens, so many of them: an end token ends nothing."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **fields)


def drawn(max_tokens: int, **fields: Any) -> SamplingParams:
    """Drawn as `fields` say; an end token ends nothing."""
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, **fields)


def ask(
    engine: Engine, prompt: Iterable[int], params: SamplingParams | None = None, *, salt: str = "", **fields: Any
) -> RequestOutput:
    """One whole request, alone; greedy unless `fields` of SamplingParams say otherwise."""
    [output] = engine.generate([list(prompt)], params or SamplingParams(**fields), salt=salt)
    return output


def reply_ids(
    engine: Engine, prompt: Iterable[int], params: SamplingParams | None = None, *, salt: str = "", **fields: Any
) -> tuple[int, ...]:
    """The token ids of one reply."""
    return ask(engine, prompt, params, salt=salt, **fields).samples[0].token_ids


def all_steps(engine: Engine) -> list[TokenDelta]:
    """Steps until nothing is unfinished."""
    deltas: list[TokenDelta] = []
    while engine.has_unfinished:
        deltas += engine.step()
    return deltas


def ids_of(deltas: Iterable[TokenDelta], request_id: str, sample: int = 0) -> tuple[int, ...]:
    """What was streamed for one sample, in order."""
    own = [delta for delta in deltas if (delta.request_id, delta.sample) == (request_id, sample)]
    return tuple(token_id for delta in own for token_id in delta.token_ids)


@cache
def transformers_model(folder: Path) -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32", attn_implementation="eager")


def transformers_reply(model: Any, prompt: Iterable[int], max_tokens: int) -> tuple[int, ...]:
    """The greedy reply by transformers' `generate`, from the whole prompt; end tokens don't end it."""
    import torch

    token_ids = torch.tensor([list(prompt)])
    with torch.inference_mode():
        generated = model.generate(
            token_ids,
            attention_mask=torch.ones_like(token_ids),
            max_new_tokens=max_tokens,
            min_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return tuple(generated[0, token_ids.shape[1] :].tolist())

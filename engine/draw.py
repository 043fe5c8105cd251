"""Draws the tokens of one step from rows of logits, all in one compiled call.

Not by torch, which shares a row among its threads: those cost a row of 49,152 more than they save, and the compiled
step that comes next waits for its cores (docs/performance.md).
"""

from collections.abc import Sequence as ListOf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.cpu.penalties import compile_penalties
from ..kernels.cpu.token_draw import compile_draw
from .request import SamplingParams

GREEDY_BELOW = 1e-3
"""Temperatures under this are taken as 0: rounding in half precision would decide between near-equal tokens."""
NO_TOKENS = np.empty(0, np.int64)


class Draw(NamedTuple):
    """One token that is wanted."""

    logits: NDArray[np.float32]  # [vocab], one after the other in memory; after the call they are what they were
    params: SamplingParams
    number: float  # in [0, 1): where the cumulative distribution is inverted
    token_ids: NDArray[np.int64] = NO_TOKENS  # of prompt and reply together; none are needed where nothing is penalised
    num_prompt_tokens: int = 0


def draw(wanted: ListOf[Draw]) -> list[int]:
    """Inverts the cumulative distribution of what top-k, min-p and top-p leave, in the order of token ids.

    The cuts are made by value, so tokens as likely as the last one kept are kept too, however a sort orders them. All
    rows are as long as the first.
    """
    drawn = np.empty(len(wanted), np.int64)
    compile_draw()(
        np.array([each.logits.ctypes.data for each in wanted], np.uint64),
        np.array([each.token_ids.ctypes.data for each in wanted], np.uint64),
        len(wanted[0].logits),
        np.array([_settings(each.params) for each in wanted], np.float64),
        np.array([(each.params.top_k, each.num_prompt_tokens, len(each.token_ids)) for each in wanted], np.int64),
        np.array([each.number for each in wanted], np.float64),
        drawn,
    )
    tokens: list[int] = drawn.tolist()
    return tokens


def has_penalties(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def penalise(
    logits: NDArray[np.float32], params: SamplingParams, token_ids: NDArray[np.int64], num_prompt_tokens: int
) -> None:
    """Changes logits [vocab] in place. Repetition counts prompt and reply; presence and frequency the reply alone."""
    penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
    compile_penalties()(logits, token_ids, num_prompt_tokens, *map(float, penalties))


def _settings(params: SamplingParams) -> tuple[float, ...]:
    """As the compiled call takes them."""
    inverse_temperature = 0.0 if params.temperature < GREEDY_BELOW else 1 / params.temperature
    return (
        inverse_temperature,
        params.top_p,
        params.min_p,
        params.repetition_penalty,
        params.presence_penalty,
        params.frequency_penalty,
    )

"""torch's flash attention with its log-sum-exp, which torch has for a processor under a private name only.

A private name may go, or mean something else, with any version. So it is tried once on a few numbers; where it isn't
as known, `gathered_attention` masks the public `scaled_dot_product_attention` instead, which is slower.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

NAME = "_scaled_dot_product_flash_attention_for_cpu"
TOLERANCE = 1e-4

# (query, keys, values, scale, is_causal) → output, log-sum-exp of each query's scores
Flash = Callable[[Tensor, Tensor, Tensor, float, bool], tuple[Tensor, Tensor]]


def find_flash() -> Flash | None:
    """The operator, where this version of torch has it as known. [..., tokens, D] in, [..., q, D] and [..., q] out."""
    found = _try_flash()
    return None if isinstance(found, str) else found


def why_no_flash() -> str | None:
    """What is wrong with it, in a sentence; None where nothing is."""
    found = _try_flash()
    return found if isinstance(found, str) else None


@cache
def _try_flash() -> Flash | str:
    operator = getattr(torch.ops.aten, NAME, None)
    if operator is None:
        return f"torch {torch.__version__} has no {NAME}"

    def flash(query: Tensor, keys: Tensor, values: Tensor, scale: float, is_causal: bool) -> tuple[Tensor, Tensor]:
        output, log_sum_exp = operator(query, keys, values, 0.0, is_causal, scale=scale)
        return output, log_sum_exp

    try:
        is_as_known = _gives_attention(flash, 7, is_causal=False) and _gives_attention(flash, 3, is_causal=True)
    except Exception as error:  # whatever a changed operator raises
        return f"{NAME} of torch {torch.__version__} can't be called: {str(error).splitlines()[0]}"
    return flash if is_as_known else f"{NAME} of torch {torch.__version__} gives other results than it did"


def _gives_attention(flash: Flash, num_keys: int, *, is_causal: bool) -> bool:
    numbers = torch.arange(1, 1 + 2 * 16 * (3 + 2 * num_keys)).float().sin()
    query, keys, values = (part.view(1, 2, -1, 16) for part in numbers.split([96, 32 * num_keys, 32 * num_keys]))
    scores = query @ keys.mT * 0.3
    if is_causal:
        scores = scores.masked_fill(torch.ones(3, num_keys).triu(1).bool(), -torch.inf)
    output, log_sum_exp = flash(query, keys, values, 0.3, is_causal)
    is_close = torch.allclose(output, scores.softmax(-1) @ values, rtol=TOLERANCE, atol=TOLERANCE)
    return is_close and torch.allclose(log_sum_exp, scores.logsumexp(-1), rtol=TOLERANCE, atol=TOLERANCE)

"""A list of tokens that only grows, as an array."""

from collections.abc import Sequence as ListOf

import numpy as np
from numpy.typing import NDArray


class TokenHistory:
    """Kept from step to step: to make an array of a list of thousands takes as long as to draw a token."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.int64)
        self._count = 0

    def of(self, token_ids: ListOf[int]) -> NDArray[np.int64]:
        """All of them; what was asked for before must be how they begin."""
        count = len(token_ids)
        if count > len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty(count, np.int64)])  # more than is wanted now
        self._ids[self._count : count] = token_ids[self._count : count]
        self._count = count
        return self._ids[:count]

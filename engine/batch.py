"""The arrays of one step: which tokens are computed, where their KV goes, what each may see."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass over S sequences; the `num_decodes` that compute one token come first, then those in prefill.

    A row is one token that is computed. Rows follow the sequences' order.
    """

    input_ids: NDArray[np.int64]  # [num_tokens]
    positions: NDArray[np.int64]  # [num_tokens]
    slot_mapping: NDArray[np.int64]  # [num_tokens] block_id * block_size + offset
    block_tables: NDArray[np.int32]  # [S, max_blocks], padded with the null block
    context_lens: NDArray[np.int32]  # [S] tokens in the cache once this step's are written
    cu_seqlens_q: NDArray[np.int32]  # [S - num_decodes + 1] of the prefills, counted from row num_decodes
    logits_rows: NDArray[np.int64]  # [num_logits] rows whose next-token logits are wanted
    num_decodes: int
    max_query_len: int  # longest prefill chunk, 0 without one
    copies: tuple[tuple[int, int], ...] = ()  # (source block, destination block), done before anything is written

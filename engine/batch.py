"""The arrays of one step: which tokens are computed, where their KV goes, what each may see."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .sequence import Sequence


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


def build_batch(
    num_tokens: dict[Sequence, int], copies: tuple[tuple[int, int], ...], block_size: int
) -> tuple[Batch, list[Sequence]]:
    """The arrays for the next `num_tokens` tokens of each sequence, and the sequences that the logits' rows belong to.

    Only a sequence whose last token is in the batch has use for logits.
    """
    decodes = [sequence for sequence, count in num_tokens.items() if count == 1]
    prefills = [sequence for sequence, count in num_tokens.items() if count > 1]
    sequences = decodes + prefills
    counts = np.array([num_tokens[sequence] for sequence in sequences])
    ends = np.cumsum(counts)
    computed = np.array([sequence.num_computed_tokens for sequence in sequences])
    block_tables = np.zeros((len(sequences), max(len(s.block_table) for s in sequences)), dtype=np.int32)
    for row, sequence in enumerate(sequences):
        block_tables[row, : len(sequence.block_table)] = [block.block_id for block in sequence.block_table]
    owners = np.repeat(np.arange(len(sequences)), counts)
    positions = np.arange(ends[-1]) - np.repeat(ends - counts, counts) + np.repeat(computed, counts)
    input_ids = np.concatenate(
        [
            sequence.token_ids[start : start + count]
            for sequence, start, count in zip(sequences, computed, counts, strict=True)
        ]
    ).astype(np.int64)
    slots = block_tables[owners, positions // block_size].astype(np.int64) * block_size + positions % block_size
    samplers = [row for row, sequence in enumerate(sequences) if counts[row] == sequence.num_remaining_tokens]
    batch = Batch(
        input_ids=input_ids,
        positions=positions.astype(np.int64),
        slot_mapping=slots,
        block_tables=block_tables,
        context_lens=(computed + counts).astype(np.int32),
        cu_seqlens_q=(np.concatenate([[0], ends[len(decodes) :] - len(decodes)])).astype(np.int32),
        logits_rows=(ends[samplers] - 1).astype(np.int64),
        num_decodes=len(decodes),
        max_query_len=int(counts[len(decodes) :].max(initial=0)),
        copies=copies,
    )
    return batch, [sequences[row] for row in samplers]

"""The arrays of one step: which tokens are computed, where their KV goes, what each may see."""

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from .sequence import Sequence

NO_DRAFTS: Mapping[Sequence, ListOf[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass over S rows and chunks: `num_decodes` rows that stand alone come first, then chunks of prefill.

    A row is one token that is computed. One that stands alone is the next token of a sequence that decodes, or a token
    guessed to come behind it: such a row follows its sequence's own, and reads the same blocks up to itself.
    """

    input_ids: NDArray[np.int64]  # [num_tokens]
    positions: NDArray[np.int64]  # [num_tokens]
    slot_mapping: NDArray[np.int64]  # [num_tokens] block_id * block_size + offset
    block_tables: NDArray[np.int32]  # [S, max_blocks], padded with the null block
    context_lens: NDArray[np.int32]  # [S] tokens that the row, or the chunk's last one, sees, itself included
    cu_seqlens_q: NDArray[np.int32]  # [S - num_decodes + 1] of the chunks, counted from row num_decodes
    logits_rows: NDArray[np.int64]  # [num_logits] rows whose next-token logits are wanted, in order
    num_decodes: int
    max_query_len: int  # longest prefill chunk, 0 without one
    copies: tuple[tuple[int, int], ...] = ()  # (source block, destination block), done before anything is written


def build_batch(
    num_tokens: Mapping[Sequence, int],
    copies: tuple[tuple[int, int], ...],
    block_size: int,
    drafts: Mapping[Sequence, ListOf[int]] = NO_DRAFTS,
    shortest_window: int | None = None,
) -> tuple[Batch, dict[Sequence, range]]:
    """The arrays for the next `num_tokens` tokens of each sequence, and its rows of the logits.

    From the last of them its next token is drawn; behind it come those of its draft, one for each token. A prompt that
    isn't computed to its end has a row too, to tell whether what it wrote are numbers: its last token sees all others.
    Where a window hides some of them, there are rows enough that each token is seen by one.
    """
    decodes = [sequence for sequence, count in num_tokens.items() if count == 1]
    prefills = [sequence for sequence, count in num_tokens.items() if count > 1]
    sequences = decodes + prefills
    drafted = np.array([len(drafts.get(sequence, ())) for sequence in sequences])
    counts = np.array([num_tokens[sequence] for sequence in sequences]) + drafted
    ends = np.cumsum(counts)
    computed = np.array([sequence.num_computed_tokens for sequence in sequences])
    tables = np.zeros((len(sequences), max(len(s.block_table) for s in sequences)), dtype=np.int32)
    for row, sequence in enumerate(sequences):
        tables[row, : len(sequence.block_table)] = [block.block_id for block in sequence.block_table]
    owners = np.repeat(np.arange(len(sequences)), counts)
    positions = np.arange(ends[-1]) - np.repeat(ends - counts, counts) + np.repeat(computed, counts)
    input_ids = np.concatenate(
        [
            [*sequence.token_ids[start : start + num_tokens[sequence]], *drafts.get(sequence, ())]
            for sequence, start in zip(sequences, computed, strict=True)
        ]
    ).astype(np.int64)
    slots = tables[owners, positions // block_size].astype(np.int64) * block_size + positions % block_size
    logits_rows: list[int] = []
    rows_of: dict[Sequence, range] = {}
    spans = zip((ends - counts).tolist(), (ends - drafted).tolist(), ends.tolist(), strict=True)
    for sequence, (start, draft_start, end) in zip(sequences, spans, strict=True):
        looked_at = range(draft_start - 1, start - 1, -(shortest_window or end))
        rows_of[sequence] = range(len(logits_rows), len(logits_rows) + len(looked_at))
        logits_rows += [*reversed(looked_at), *range(draft_start, end)]
    num_decodes = int(counts[: len(decodes)].sum())
    batch = Batch(
        input_ids=input_ids,
        positions=positions.astype(np.int64),
        slot_mapping=slots,
        block_tables=np.concatenate([tables[owners[:num_decodes]], tables[len(decodes) :]]),
        context_lens=np.concatenate([positions[:num_decodes] + 1, (computed + counts)[len(decodes) :]]).astype(
            np.int32
        ),
        cu_seqlens_q=np.concatenate([[0], ends[len(decodes) :] - num_decodes]).astype(np.int32),
        logits_rows=np.array(logits_rows, np.int64),
        num_decodes=num_decodes,
        max_query_len=int(counts[len(decodes) :].max(initial=0)),
        copies=copies,
    )
    return batch, rows_of

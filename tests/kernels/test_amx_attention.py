"""Attention by matrix tiles: near the reference, and a row comes out the same to the bit, whatever is beside it.

Every unused slot of every pool holds NaN (E21).
"""

import itertools

import numpy as np
import pytest
import torch

from paged_chat.kernels import choose_backend, reference
from paged_chat.kernels.cpu import amx_prefill
from paged_chat.kernels.cpu.amx_attention import plan_chunks
from paged_chat.kernels.cpu.amx_pieces import PIECE_TOKENS
from paged_chat.kernels.cpu.team import Team
from tile_products import needs_tiles

pytestmark = needs_tiles

# Around the ends of blocks, tiles and pieces.
CONTEXT_LENS = [1, 15, 16, 17, 127, 128, 129, 300]
WHOLE = CONTEXT_LENS
# Chunks of longer prompts, which begin anywhere in a tile, a block and a piece; the last begins before a piece's end.
CHUNKS = [1, 2, 16, 5, 64, 33, 1, 190]
WINDOWS = [None, 40, 128]
NAN = float("nan")
# Of a row's result, by how many products of bfloat16 stand for one: queries and weights have 8 binary digits, or 16.
TOLERANCES = {1: 8e-3, 3: 3e-5}

both_terms = pytest.mark.parametrize("terms", [1, 3])


class TiledContexts:
    """Paged contexts in bfloat16, and rows of them computed by tiles."""

    def __init__(self, contexts, terms):
        self.contexts = contexts
        self.terms = terms

    def rows(self, query, query_lens, sequences=None, context_lens=None, window=None):
        """The last `query_lens` positions of some sequences' first `context_lens` tokens; of all, if not given."""
        contexts = self.contexts
        chosen = list(range(len(query_lens))) if sequences is None else sequences
        lens = contexts.context_lens[chosen] if context_lens is None else context_lens
        return amx_prefill.attention_prefill(
            query,
            contexts.key_cache,
            contexts.value_cache,
            contexts.block_tables[chosen],
            torch.as_tensor(lens, dtype=torch.int32),
            torch.tensor([0, *itertools.accumulate(query_lens)], dtype=torch.int32),
            query.shape[2] ** -0.5,
            window,
            self.terms,
        )


@pytest.fixture
def tiled(page_for, terms):
    cpu = choose_backend("cpu", torch.device("cpu"))
    return lambda context_lens=CONTEXT_LENS, **shape: TiledContexts(
        page_for(cpu, context_lens, dtype=torch.bfloat16, **shape), terms
    )


@pytest.fixture
def expected(page_for):
    """The reference's rows over the same contexts."""

    def compute(query, query_lens, context_lens=CONTEXT_LENS, window=None, **shape):
        truth = page_for(reference, context_lens, dtype=torch.bfloat16, **shape)
        return truth.prefill(query, query_lens, scale=query.shape[2] ** -0.5, window=window)

    return compute


def worst_error(rows, expected):  # both [T, H, D]
    """Of any row and head, as a share of that row's size."""
    assert not rows.isnan().any(), "NaN came through"
    assert rows.shape == expected.shape
    return ((rows - expected).norm(dim=2) / expected.norm(dim=2)).max().item()


@both_terms
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("query_lens", [WHOLE, CHUNKS], ids=["whole", "chunks"])
def test_ragged_rows_are_those_of_the_reference(tiled, expected, random, terms, query_lens, window):
    query = random(sum(query_lens), 6, 64)
    rows = tiled().rows(query, query_lens, window=window)
    assert worst_error(rows, expected(query, query_lens, window=window)) < TOLERANCES[terms]


@pytest.mark.parametrize(("head_dim", "group", "terms"), [(64, 1, 1), (64, 8, 3), (32, 3, 3), (96, 3, 1), (128, 8, 3)])
def test_each_head_size_and_group(tiled, expected, random, head_dim, group, terms):
    query = random(sum(CHUNKS), 2 * group, head_dim)
    rows = tiled(head_dim=head_dim).rows(query, CHUNKS, window=128)
    truth = expected(query, CHUNKS, window=128, head_dim=head_dim)
    assert worst_error(rows, truth) < TOLERANCES[terms]


@both_terms
@pytest.mark.parametrize("window", WINDOWS)
def test_a_row_alone_equals_the_same_row_beside_others_to_the_bit(tiled, random, window):
    contexts, query = tiled(), random(sum(WHOLE), 6, 64)
    together = contexts.rows(query, WHOLE, window=window)
    first_rows = [0, *itertools.accumulate(WHOLE)]
    for sequence, position in [(0, 0), (3, 15), (3, 16), (6, 127), (6, 128), (7, 0), (7, 31), (7, 170), (7, 299)]:
        row = first_rows[sequence] + position
        alone = contexts.rows(query[row : row + 1], [1], [sequence], [position + 1], window)
        assert alone[0].equal(together[row]), f"position {position} of sequence {sequence}"


@both_terms
@pytest.mark.parametrize("window", WINDOWS)
def test_a_prompt_in_chunks_equals_the_whole_to_the_bit(tiled, random, window):
    contexts, query = tiled(), random(300, 6, 64)
    whole = contexts.rows(query, [300], [7], window=window)
    for start, stop in itertools.pairwise([0, 7, 39, 40, 57, 127, 130, 251, 300]):
        assert contexts.rows(query[start:stop], [stop - start], [7], [stop], window).equal(whole[start:stop])


@both_terms
def test_sequences_in_another_order_are_equal_to_the_bit(tiled, random):
    contexts, query = tiled(), random(sum(CHUNKS), 6, 64)
    pieces = contexts.rows(query, CHUNKS).split(CHUNKS)
    order = [7, 2, 0, 5, 1]
    other_query = torch.cat([query.split(CHUNKS)[sequence] for sequence in order])
    rows = contexts.rows(other_query, [CHUNKS[sequence] for sequence in order], order)
    assert rows.equal(torch.cat([pieces[sequence] for sequence in order]))


@both_terms
def test_threads_that_share_the_chunks_give_the_same_bits(tiled, random, monkeypatch):
    contexts, query = tiled(), random(sum(CHUNKS), 6, 64)
    outputs = []
    for team in (Team(1), Team(3)):
        monkeypatch.setattr(amx_prefill, "shared_team", lambda team=team: team)
        monkeypatch.setattr(amx_prefill, "default_threads", lambda team=team: team.num_threads)
        outputs.append(contexts.rows(query, CHUNKS))
    assert outputs[0].equal(outputs[1])


def fill(contexts, tokens):
    """Writes the keys and values of each context; tokens: [longest, key and value, K, D]."""
    for sequence, length in enumerate(contexts.context_lens.tolist()):
        position = torch.arange(length)
        slots = contexts.block_tables[sequence].long()[position // 16] * 16 + position % 16
        key, value = tokens[:length].unbind(1)
        contexts.backend.write_kv(key, value, contexts.key_cache, contexts.value_cache, slots)


@both_terms
def test_where_the_blocks_lie_and_what_stands_in_unused_slots_changes_nothing(tiled, random):
    query, tokens = random(sum(CHUNKS), 6, 64), random(300, 2, 2, 64, dtype=torch.bfloat16)
    outputs = []
    for seed, unused in ((1, NAN), (2, 3e38)):
        scattered = tiled(seed=seed)
        scattered.contexts.pool.fill_(unused)
        fill(scattered.contexts, tokens)
        outputs.append(scattered.rows(query, CHUNKS))
    assert outputs[0].equal(outputs[1])


@both_terms
@pytest.mark.parametrize(("window", "last_seen"), [(None, 299), (40, 89), (128, 177)])
def test_nan_in_a_key_shows_in_the_rows_that_see_it_and_in_no_other(tiled, random, window, last_seen):
    contexts, query = tiled(), random(300 + 17, 6, 64)
    clean = contexts.rows(query, [300, 17], [7, 3], window=window)
    block_id = contexts.contexts.block_tables[7, 50 // 16]
    contexts.contexts.key_cache[block_id, 1, :, 50 % 16] = NAN
    spoilt = contexts.rows(query, [300, 17], [7, 3], window=window)
    sees = torch.zeros(317, 6, dtype=torch.bool)
    sees[50 : last_seen + 1, 3:] = True  # the heads of the second key head
    assert spoilt[sees].isnan().all()
    assert spoilt[~sees].equal(clean[~sees])


@both_terms
def test_nan_in_a_query_shows_in_its_row_and_head_only(tiled, random):
    contexts, query = tiled(), random(100, 6, 64)
    clean = contexts.rows(query, [100], [7])
    query[41, 4, 63] = NAN
    spoilt = contexts.rows(query, [100], [7])
    assert spoilt[41, 4].isnan().all()
    spoilt[41, 4] = clean[41, 4]
    assert spoilt.equal(clean)


@both_terms
def test_scores_of_ten_thousand_do_not_overflow(tiled, random):
    """A query along one key's direction: that token's value is the result, exactly."""
    contexts, tokens = tiled([129]), random(129, 2, 2, 64, dtype=torch.bfloat16)
    fill(contexts.contexts, tokens)
    chosen = torch.arange(129) * 2 // 3
    keys, values = (tokens[chosen, i].float().repeat_interleave(3, dim=1) for i in range(2))
    assert contexts.rows(1000 * keys, [129]).equal(values)


def test_chunks_are_as_large_as_leaves_all_threads_work():
    assert plan_chunks(np.array([700]), num_kv_heads=3, num_threads=2).tolist() == [
        [0, 128], [128, 128], [256, 128], [384, 128], [512, 128], [640, 60],
    ]  # fmt: skip
    counts = np.array([33, 1, 64])
    assert plan_chunks(counts, num_kv_heads=3, num_threads=2).tolist() == [
        [0, 32],
        [32, 1],
        [33, 1],
        [34, 32],
        [66, 32],
    ]
    assert plan_chunks(counts, num_kv_heads=1, num_threads=3).tolist() == [
        [0, 16], [16, 16], [32, 1], [33, 1], [34, 16], [50, 16], [66, 16], [82, 16],
    ]  # fmt: skip
    assert plan_chunks(np.array([], np.int64), 3, 2).shape == (0, 2)


def test_the_contexts_here_end_around_a_piece():
    assert PIECE_TOKENS == 128

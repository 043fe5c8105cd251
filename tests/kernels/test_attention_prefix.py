"""Attention over blocks that sequences share: near the reference, which is near attention of each sequence alone.

Every unused slot of every pool holds NaN, also the rest of a copied tail's source (E21).
"""

import pytest
import torch

from paged_chat.kernels import choose_backend, reference
from paged_chat.kernels.cpu import amx, amx_prefix
from paged_chat.kernels.shared_run import SharedRun, own_first_blocks, whole_units

BLOCK_SIZE = 16
# Six sequences: 0 to 3 share 19 blocks, of these 1 and 3 another 18; 4 and 5 share 8 others.
RUNS = (SharedRun(0, 19, (0, 1, 2, 3)), SharedRun(19, 37, (1, 3)), SharedRun(0, 8, (4, 5)))
CONTEXT_LENS = [19 * 16 + 1, 37 * 16 + 5, 19 * 16 + 250, 37 * 16 + 300, 8 * 16 + 7, 8 * 16 + 16]
WINDOWS = [None, 40, 330, 5000]


@pytest.fixture
def shared(page_for):
    """Contexts whose block tables hold the runs' blocks in common; what their own blocks there held is NaN."""

    def make(backend, context_lens=CONTEXT_LENS, runs=RUNS, **shape):
        contexts = page_for(backend, context_lens, **shape)
        for run in runs:
            places = slice(run.first_block, run.end_block)
            for row in run.rows[1:]:
                own = contexts.block_tables[row, places].long()
                contexts.pool[own] = float("nan")
                contexts.block_tables[row, places] = contexts.block_tables[run.rows[0], places]
        return contexts

    return make


def attend(contexts, query, runs, window=None):
    return contexts.backend.attention_prefix(
        query,
        contexts.key_cache,
        contexts.value_cache,
        contexts.block_tables,
        contexts.context_lens,
        0.125,
        window,
        runs,
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_the_reference_merges_what_it_reads_once_to_what_each_sequence_would_read(shared, random, window):
    contexts, query = shared(reference), random(6, 6, 64)
    expected = contexts.decode(query, window=window)
    torch.testing.assert_close(attend(contexts, query, RUNS, window), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", WINDOWS)
def test_groups_and_groups_within_groups(shared, random, close, backend, dtype, window):
    query = random(6, 6, 64, dtype=dtype)
    expected = shared(reference, dtype=dtype).decode(query, window=window)
    close(attend(shared(backend, dtype=dtype), query, RUNS, window), expected)


@pytest.mark.parametrize(("group", "num_kv_heads", "head_dim"), [(1, 3, 64), (7, 1, 96), (16, 2, 128), (5, 2, 80)])
def test_heads_of_other_shapes(shared, random, close, backend, group, num_kv_heads, head_dim):
    shape = {"num_kv_heads": num_kv_heads, "head_dim": head_dim, "dtype": torch.bfloat16}
    query = random(6, group * num_kv_heads, head_dim, dtype=torch.bfloat16)
    close(attend(shared(backend, **shape), query, RUNS), shared(reference, **shape).decode(query))


@pytest.mark.parametrize("num_blocks", [1, 7, 8, 9, 31])
@pytest.mark.parametrize("num_rows", [2, 23])
def test_prefixes_and_groups_of_any_size(shared, random, close, backend, num_blocks, num_rows):
    runs = (SharedRun(0, num_blocks, tuple(range(num_rows))),)
    lens = [num_blocks * BLOCK_SIZE + 1 + 9 * row for row in range(num_rows)]
    query = random(num_rows, 3, 64, dtype=torch.bfloat16)
    contexts = shared(backend, lens, runs, num_kv_heads=1, dtype=torch.bfloat16)
    expected = shared(reference, lens, runs, num_kv_heads=1, dtype=torch.bfloat16).decode(query)
    close(attend(contexts, query, runs), expected)


@pytest.mark.parametrize(
    ("num_blocks", "num_threads", "most_at_once"), [(125, 2, 64), (1000, 2, 64), (40, 1, 40), (41, 1, 48), (9, 16, 8)]
)
def test_each_thread_takes_its_share_of_a_run_in_whole_pieces_up_to_a_bound(num_blocks, num_threads, most_at_once):
    assert amx_prefix.segment_blocks((SharedRun(0, num_blocks, (0, 1)),), num_threads) == most_at_once


@pytest.fixture
def vectors(monkeypatch):
    """The CPU's kernels on a processor without matrix tiles."""
    monkeypatch.setattr(amx, "has_tiles", lambda: False)
    return choose_backend("cpu", torch.device("cpu"))


def test_whole_pieces_of_runs():
    """A run that is cut to nothing leaves its blocks to the one that continues it."""
    assert whole_units(RUNS, 16) == (SharedRun(0, 16, (0, 1, 2, 3)), SharedRun(16, 32, (1, 3)))
    deeper = (SharedRun(0, 10, (0, 1, 2)), SharedRun(10, 35, (0, 2)))
    assert whole_units(deeper, 16) == (SharedRun(0, 32, (0, 2)),)
    assert own_first_blocks(whole_units(deeper, 16), 3) == [32, 0, 32]


@pytest.mark.parametrize(
    ("group", "num_kv_heads", "head_dim", "dtype"),
    [
        (3, 2, 64, torch.bfloat16),
        (1, 1, 80, torch.float32),
        (4, 1, 96, torch.float16),
        (5, 1, 128, torch.bfloat16),
        (16, 1, 256, torch.bfloat16),
    ],
)
def test_vectors_give_to_the_bit_what_each_sequence_alone_gives(
    shared, random, vectors, group, num_kv_heads, head_dim, dtype
):
    contexts = shared(vectors, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype)
    query = random(6, group * num_kv_heads, head_dim, dtype=dtype)
    assert attend(contexts, query, RUNS).equal(contexts.decode(query))


@pytest.mark.parametrize("num_rows", [2, 23])
def test_vectors_share_several_pieces_of_many_sequences(shared, random, vectors, num_rows):
    """23 sequences of 3 heads are more than are worked on together."""
    runs = (SharedRun(0, 37, tuple(range(num_rows))),)
    lens = [37 * BLOCK_SIZE + 1 + 9 * row for row in range(num_rows)]
    contexts, query = shared(vectors, lens, runs, num_kv_heads=1), random(num_rows, 3, 64)
    assert attend(contexts, query, runs).equal(contexts.decode(query))


@pytest.mark.parametrize("window", WINDOWS)
def test_where_a_window_hides_something_nothing_is_shared(shared, random, vectors, window):
    contexts, query = shared(vectors), random(6, 6, 64)
    assert attend(contexts, query, RUNS, window).equal(contexts.decode(query, window=window))


def test_nan_in_a_query_shows_in_that_row_only_by_vectors_too(shared, random, vectors):
    contexts, query = shared(vectors), random(6, 6, 64)
    expected = attend(contexts, query, RUNS)
    query[1, :, 5] = float("nan")
    spoilt = attend(contexts, query, RUNS)
    assert spoilt[1].isnan().all()
    assert spoilt[[0, 2, 3, 4, 5]].equal(expected[[0, 2, 3, 4, 5]])


def test_a_sequence_that_has_left_the_group_reads_all_by_itself(shared, random, close, backend):
    query = random(6, 6, 64, dtype=torch.bfloat16)
    left = (SharedRun(0, 19, (0, 1, 3)), SharedRun(19, 37, (1, 3)))
    assert own_first_blocks(left, 6) == [19, 37, 0, 37, 0, 0]
    expected = shared(reference, dtype=torch.bfloat16).decode(query)
    close(attend(shared(backend, dtype=torch.bfloat16), query, left), expected)


def test_scores_of_thousands_do_not_overflow(shared, random, close, backend):
    query = 2000 * random(6, 6, 64, dtype=torch.bfloat16)
    expected = shared(reference, dtype=torch.bfloat16).decode(query)
    close(attend(shared(backend, dtype=torch.bfloat16), query, RUNS), expected)


def test_nan_in_a_query_shows_in_that_row_only(shared, random, backend):
    contexts, query = shared(backend, dtype=torch.bfloat16), random(6, 6, 64, dtype=torch.bfloat16)
    expected = attend(contexts, query, RUNS)
    query[1, :, 5] = float("nan")
    spoilt = attend(contexts, query, RUNS)
    assert spoilt[1].isnan().all()
    assert spoilt[[0, 2, 3, 4, 5]].equal(expected[[0, 2, 3, 4, 5]])


def test_nothing_shared_is_decode_to_the_bit(shared, random, backend):
    contexts, query = shared(backend, dtype=torch.bfloat16), random(6, 6, 64, dtype=torch.bfloat16)
    assert attend(contexts, query, ()).equal(contexts.decode(query))

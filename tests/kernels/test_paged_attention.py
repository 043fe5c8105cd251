"""Compiled attention over blocks in place: a row comes out the same to the bit, whoever computes it beside what."""

import pytest
import torch

from paged_chat.kernels import choose_backend, reference
from paged_chat.kernels.cpu import attention
from paged_chat.kernels.cpu.paged_attention import ROWS_BY_PIECE, count_pieces
from paged_chat.kernels.cpu.piece_attention import PIECE_TOKENS, heads_at_once
from paged_chat.kernels.cpu.team import Team

DTYPES = [torch.float32, torch.bfloat16]
# Around the ends of blocks and of pieces; more rows than are shared by piece.
CONTEXT_LENS = [1, 16, 17, 239, 240, 241, 255, 256, 257, 271, 272, 273, 511, 512, 513, 600, 3, 64, 255, 256, 257, 512]
WINDOWS = [None, 1, 16, 255, 256, 257, 300]
NAN = float("nan")


@pytest.fixture
def cpu():
    return choose_backend("cpu", torch.device("cpu"))


@pytest.fixture
def pages(cpu, page_for):
    return lambda context_lens=CONTEXT_LENS, **shape: page_for(cpu, context_lens, **shape)


def decode_rows(contexts, query, rows, window=None):
    """Attention of some of the rows alone."""
    return contexts.backend.attention_decode(
        query[rows],
        contexts.key_cache,
        contexts.value_cache,
        contexts.block_tables[rows],
        contexts.context_lens[rows],
        0.125,
        window,
    )


def test_the_contexts_here_are_shared_by_row_together_and_by_piece_alone():
    assert len(CONTEXT_LENS) > ROWS_BY_PIECE
    assert PIECE_TOKENS == 256


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_row_alone_equals_the_same_row_in_any_batch(pages, random, dtype, window):
    contexts = pages(dtype=dtype)
    query = random(len(CONTEXT_LENS), 6, 64, dtype=dtype)
    by_row = contexts.decode(query, window=window)
    for row in range(len(query)):
        assert decode_rows(contexts, query, [row], window)[0].equal(by_row[row])
    for rows in ([0, 1], [14, 6, 2, 15, 8], list(range(16)), list(range(17)), list(range(21, -1, -1))):
        assert decode_rows(contexts, query, rows, window).equal(by_row[rows])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", WINDOWS)
def test_pieces_and_windows_give_what_the_reference_gives(pages, page_for, random, close, dtype, window):
    query = random(len(CONTEXT_LENS), 6, 64, dtype=dtype)
    truth = page_for(reference, CONTEXT_LENS, dtype=dtype)
    close(pages(dtype=dtype).decode(query, window=window), truth.decode(query, window=window))


@pytest.mark.parametrize("window", [None, 40, 256])
def test_a_token_in_a_prefill_equals_the_same_token_decoded(pages, random, window):
    """Its context is then cut off behind it, whatever comes later in the same blocks."""
    contexts = pages([300, 513])
    query = random(64 + 30, 6, 64)
    prefilled = contexts.prefill(query, [64, 30], window=window)
    for sequence, first_row, num_rows in [(0, 0, 64), (1, 64, 30)]:
        for i in range(num_rows):
            alone = contexts.backend.attention_decode(
                query[first_row + i : first_row + i + 1],
                contexts.key_cache,
                contexts.value_cache,
                contexts.block_tables[sequence : sequence + 1],
                contexts.context_lens[sequence : sequence + 1] - (num_rows - 1 - i),
                0.125,
                window,
            )
            assert alone[0].equal(prefilled[first_row + i])


def test_where_the_blocks_lie_changes_nothing(pages, random):
    query = random(3, 6, 64)
    tokens = torch.randn(513, 2, 2, 64, generator=torch.Generator().manual_seed(7))
    outputs = []
    for seed in (1, 2):
        contexts = pages([257, 513, 33], seed=seed)
        for sequence, length in enumerate(contexts.context_lens.tolist()):
            position = torch.arange(length)
            slots = contexts.block_tables[sequence].long()[position // 16] * 16 + position % 16
            key, value = tokens[:length].unbind(1)
            contexts.backend.write_kv(key, value, contexts.key_cache, contexts.value_cache, slots)
        outputs.append(contexts.decode(query))
    assert outputs[0].equal(outputs[1])


@pytest.mark.parametrize("num_rows", [1, 5, 22])
def test_threads_that_share_the_rows_give_the_same_bits(pages, random, monkeypatch, num_rows):
    contexts, query = pages(), random(len(CONTEXT_LENS), 6, 64)
    rows = list(range(len(CONTEXT_LENS) - num_rows, len(CONTEXT_LENS)))
    monkeypatch.setattr(attention, "MIN_SHARED_WORK", 0)  # so little would be done by one thread
    outputs = []
    for team in (Team(1), Team(3)):
        monkeypatch.setattr(attention, "shared_team", lambda team=team: team)
        outputs.append(decode_rows(contexts, query, rows))
    assert outputs[0].equal(outputs[1])


def test_what_stands_in_unused_slots_changes_nothing(pages, random):
    contexts, query = pages(), random(len(CONTEXT_LENS), 6, 64)
    with_nan = contexts.decode(query)
    assert contexts.pool.isnan().any()
    assert not with_nan.isnan().any()
    contexts.pool.nan_to_num_(nan=3e38)
    assert contexts.decode(query).equal(with_nan)


@pytest.mark.parametrize("rows", [list(range(22)), [4, 8, 13, 14]])
def test_nan_in_a_query_shows_in_that_row_only(pages, random, rows):
    contexts, query = pages(), random(len(CONTEXT_LENS), 6, 64)
    expected = decode_rows(contexts, query, rows)
    query[13, :, 5] = NAN
    spoilt = decode_rows(contexts, query, rows)
    place = rows.index(13)
    assert spoilt[place].isnan().all()
    others = [i for i in range(len(rows)) if i != place]
    assert spoilt[others].equal(expected[others])


def test_nan_in_one_head_of_a_query_shows_in_that_head_only(pages, random):
    contexts, query = pages([300]), random(1, 6, 64)
    expected = contexts.decode(query)
    query[0, 4, 63] = NAN
    spoilt = contexts.decode(query)
    assert spoilt[0, 4].isnan().all()
    assert spoilt[0, [0, 1, 2, 3, 5]].equal(expected[0, [0, 1, 2, 3, 5]])


def test_nan_in_a_token_that_is_seen_shows(pages, random):
    contexts, query = pages([300, 20]), random(2, 6, 64)
    block_id = int(contexts.block_tables[0, 3])
    contexts.key_cache[block_id, 1] = NAN
    output = contexts.decode(query)
    assert output[0, 3:].isnan().all()  # the heads of the second key head
    assert not output[0, :3].isnan().any()
    assert not output[1].isnan().any()


def test_scores_of_thousands_do_not_overflow(pages, page_for, random, close):
    query = 2000 * random(3, 6, 64)
    truth = page_for(reference, [257, 512, 40])
    close(pages([257, 512, 40]).decode(query), truth.decode(query))


def test_pieces_are_counted_by_position():
    import numpy as np

    lens, nothing = np.array([0, 1, 256, 257, 1000]), np.zeros(5, np.int64)
    assert count_pieces(lens, 0, nothing).tolist() == [0, 0, 1, 2, 4, 8]
    # A window of 300 tokens begins at 700, in the third piece of the last context.
    assert count_pieces(lens, 300, nothing).tolist() == [0, 0, 1, 2, 4, 6]
    # What others have read before is no piece of a row's own, unless it ends within one.
    assert count_pieces(lens, 0, np.array([0, 0, 0, 256, 528])).tolist() == [0, 0, 1, 2, 3, 5]


def test_heads_that_share_registers_divide_their_group():
    assert [heads_at_once(group, 64) for group in (1, 3, 4, 7, 8, 9, 16)] == [1, 3, 4, 1, 4, 3, 4]
    assert [heads_at_once(16, head_dim) for head_dim in (16, 80, 96, 128, 256)] == [16, 4, 4, 2, 1]

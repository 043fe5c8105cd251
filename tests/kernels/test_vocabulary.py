"""A vocabulary in chunks: the largest logits, and what its tokens weigh."""

import numpy as np
import pytest

from paged_chat.kernels.cpu.vocabulary import CHUNK, compile_tops, num_chunks, weigh_chunk


def tops_of(rows: np.ndarray) -> tuple[list[float], list[int]]:
    num_rows, vocab_size = rows.shape
    tops, likeliest = np.empty(num_rows, np.float32), np.empty(num_rows, np.int64)
    compile_tops()(np.uint64(rows.ctypes.data), rows.strides[0], vocab_size, tops, likeliest)
    return tops.tolist(), likeliest.tolist()


@pytest.mark.parametrize("vocab_size", [1, 255, 256, 257, 1000, 49_152])
def test_the_largest_logit_is_found_wherever_it_stands(vocab_size):
    rng = np.random.default_rng(vocab_size)
    rows = rng.standard_normal((5, vocab_size + 3)).astype(np.float32)[:, :vocab_size]  # a part of wider ones
    rows[1, 0] = rows[2, -1] = rows[3, vocab_size // 2] = 9.0
    rows[4] = -np.inf
    tops, likeliest = tops_of(rows)
    assert tops == rows.max(axis=1).tolist()
    assert likeliest == rows.argmax(axis=1).tolist()


@pytest.mark.parametrize("place", [0, 100, 255, 256, 300])
def test_a_nan_counts_as_the_largest(place):
    rows = np.zeros((2, 301), np.float32)
    rows[0, place] = np.nan
    tops, _ = tops_of(rows)
    assert np.isnan(tops).tolist() == [True, False]


def test_of_equal_logits_the_first_is_the_likeliest():
    rows = np.full((1, 600), 2.0, np.float32)
    rows[0, :300] = 1.0
    assert tops_of(rows) == ([2.0], [300])


@pytest.mark.parametrize("vocab_size", [1, 255, 256, 257, 1000])
@pytest.mark.parametrize("temperature", [0.001, 0.7, 100.0])
def test_chunks_weigh_what_their_tokens_do(vocab_size, temperature):
    logits = (3 * np.random.default_rng(vocab_size).standard_normal(vocab_size)).astype(np.float32)
    logits = np.minimum(logits, 8.9)
    logits[::7] = -np.inf
    logits[-1] = 9.0
    count = num_chunks(vocab_size)
    rest, found = np.empty(CHUNK, np.float32), np.empty((count, CHUNK), np.float32)
    sums, heaviest = np.empty(count, np.float32), np.empty(count, np.float32)
    for chunk in range(count):
        inverse = np.float32(1 / temperature)
        weigh_chunk(logits, chunk, rest, np.float32(9.0), inverse, sums, heaviest, found[chunk])
    expected = np.zeros(count * CHUNK)
    with np.errstate(over="ignore", under="ignore"):
        expected[:vocab_size] = np.exp((logits.astype(np.float64) - 9.0) / temperature)
    expected = expected.reshape(-1, CHUNK)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-37)
    np.testing.assert_allclose(sums, expected.sum(axis=1), rtol=2e-5, atol=1e-36)
    assert heaviest.tolist() == found.max(axis=1).tolist()
    assert found[-1, (vocab_size - 1) % CHUNK] == 1

"""Likelihoods of a vocabulary's tokens, chunk by chunk."""

import numpy as np
import pytest

from paged_chat.kernels.cpu.token_weights import CHUNK, TokenWeights


@pytest.mark.parametrize("vocab_size", [1, 255, 256, 257, 1000, 49_152])
@pytest.mark.parametrize("temperature", [0.001, 0.7, 100.0])
def test_chunks_weigh_what_their_tokens_do(vocab_size, temperature):
    logits = (3 * np.random.default_rng(vocab_size).standard_normal(vocab_size)).astype(np.float32)
    logits = np.minimum(logits, 8.9)
    logits[::7] = -np.inf
    logits[-1] = 9.0
    weights = TokenWeights(logits, 9.0, temperature)
    expected = np.zeros(-(-vocab_size // CHUNK) * CHUNK)
    with np.errstate(over="ignore", under="ignore"):
        expected[:vocab_size] = np.exp((logits.astype(np.float64) - 9.0) / temperature)
    expected = expected.reshape(-1, CHUNK)
    found = weights.of_all()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-37)
    np.testing.assert_allclose(weights.sums, expected.sum(axis=1), rtol=2e-5, atol=1e-36)
    assert weights.peaks.tolist() == found.max(axis=1).tolist()
    assert found[-1, (vocab_size - 1) % CHUNK] == 1
    some = np.flatnonzero(weights.peaks == weights.peaks.max())
    assert weights.of_chunks(some).tolist() == found[some].tolist()


def test_what_weighs_nothing_is_zero():
    weights = TokenWeights(np.array([0.0, -np.inf, -200.0], np.float32), 0.0, 1.0)
    assert weights.of_all()[0, :4].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert (weights.sums.tolist(), weights.peaks.tolist()) == ([1.0], [1.0])

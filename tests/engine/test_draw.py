"""The cumulative distribution inverted: which token a number stands for."""

import numpy as np
import pytest

from paged_chat.engine.draw import draw
from paged_chat.engine.request import SamplingParams

FAR = np.nextafter(1.0, 0.0)  # the largest number that is drawn
ALL = SamplingParams(temperature=1.0)


@pytest.mark.parametrize("vocab_size", [1, 2, 255, 256, 257, 1000, 49_152])
@pytest.mark.parametrize("share_left_out", [0.0, 0.5, 0.999])
def test_a_number_stands_for_the_first_token_with_which_the_sum_passes_it(vocab_size, share_left_out):
    rng = np.random.default_rng(vocab_size)
    logits = (3 * rng.standard_normal(vocab_size)).astype(np.float32)
    logits[1:][rng.random(vocab_size - 1) < share_left_out] = -np.inf
    weights = np.exp(logits.astype(np.float64))
    sums_to = np.cumsum(weights) / weights.sum()
    for number in (0.0, FAR, *rng.random(50)):
        token = draw(logits, ALL, float(number))
        assert weights[token] > 0
        assert sums_to[token] >= number - 1e-6
        assert token == 0 or sums_to[token - 1] <= number + 1e-6


@pytest.mark.parametrize("likely", [0, 255, 256, 299])
def test_a_token_with_all_the_weight_is_drawn_wherever_it_stands(likely):
    logits = np.full(300, -np.inf, np.float32)
    logits[likely] = 5.0
    assert {draw(logits, ALL, number) for number in (0.0, 0.5, FAR)} == {likely}


def test_logits_are_left_as_they_are():
    logits = np.array([1.0, 2.0, 3.0], np.float32)
    draw(logits, SamplingParams(temperature=0.7, top_k=2, top_p=0.9, min_p=0.1), 0.5)
    assert logits.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("vocab_size", [300, 1000, 60_000])
@pytest.mark.parametrize("rank", [1, 3, 200, 299])
def test_of_the_likeliest_every_one_may_be_drawn_and_no_other(vocab_size, rank):
    rng = np.random.default_rng(vocab_size)
    logits = rng.permutation(np.linspace(-0.5, 0.5, vocab_size).astype(np.float32))
    drawn = {draw(logits, SamplingParams(temperature=1.0, top_k=rank), number) for number in np.linspace(0, FAR, 9000)}
    assert drawn == set(np.argsort(-logits)[:rank].tolist())

"""The cumulative distribution inverted: which token a number stands for."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paged_chat.engine.draw import Draw, draw, penalise
from paged_chat.engine.request import SamplingParams

FAR = np.nextafter(1.0, 0.0)  # the largest number that is drawn
ALL = SamplingParams(temperature=1.0)


def draw_one(logits, params, number) -> int:
    [token] = draw([Draw(logits, params, float(number))])
    return token


@pytest.mark.parametrize("vocab_size", [1, 2, 255, 256, 257, 1000, 49_152])
@pytest.mark.parametrize("share_left_out", [0.0, 0.5, 0.999])
def test_a_number_stands_for_the_first_token_with_which_the_sum_passes_it(vocab_size, share_left_out):
    rng = np.random.default_rng(vocab_size)
    logits = (3 * rng.standard_normal(vocab_size)).astype(np.float32)
    logits[1:][rng.random(vocab_size - 1) < share_left_out] = -np.inf
    weights = np.exp(logits.astype(np.float64))
    sums_to = np.cumsum(weights) / weights.sum()
    for number in (0.0, FAR, *rng.random(50)):
        token = draw_one(logits, ALL, number)
        assert weights[token] > 0
        assert sums_to[token] >= number - 1e-6
        assert token == 0 or sums_to[token - 1] <= number + 1e-6


@pytest.mark.parametrize("likely", [0, 255, 256, 299])
def test_a_token_with_all_the_weight_is_drawn_wherever_it_stands(likely):
    logits = np.full(300, -np.inf, np.float32)
    logits[likely] = 5.0
    assert {draw_one(logits, ALL, number) for number in (0.0, 0.5, FAR)} == {likely}


def test_logits_are_left_as_they_are():
    logits = np.array([1.0, 2.0, 3.0], np.float32)
    penalised = SamplingParams(
        temperature=0.7, top_k=2, top_p=0.9, min_p=0.1, repetition_penalty=1.3, presence_penalty=1.0
    )
    history = np.array([2, 0, 2, 2])
    assert draw([Draw(logits, penalised, 0.5, history, 1), Draw(logits, ALL, FAR)]) == [1, 2]
    assert logits.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("vocab_size", [300, 1000, 60_000])
@pytest.mark.parametrize("rank", [1, 3, 200, 299])
def test_of_the_likeliest_every_one_may_be_drawn_and_no_other(vocab_size, rank):
    rng = np.random.default_rng(vocab_size)
    logits = rng.permutation(np.linspace(-0.5, 0.5, vocab_size).astype(np.float32))
    params = SamplingParams(temperature=1.0, top_k=rank)
    drawn = set(draw([Draw(logits, params, float(number)) for number in np.linspace(0, FAR, 9000)]))
    assert drawn == set(np.argsort(-logits)[:rank].tolist())


@pytest.mark.parametrize("vocab_size", [5, 300, 1000])
@settings(max_examples=40)
@given(data=st.data())
def test_what_may_be_drawn_is_what_sorting_says(vocab_size, data):
    """Against the cuts as they are defined, on numbers of which many are equal."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    logits = rng.choice(np.linspace(-9, 9, data.draw(st.integers(1, 400))), vocab_size).astype(np.float32)
    top_k, top_p = data.draw(st.integers(0, vocab_size + 1) | st.just(2**31 - 1)), data.draw(st.floats(0.01, 1.0))
    min_p, temperature = data.draw(st.sampled_from([0.0, 0.01, 0.3])), data.draw(st.sampled_from([0.2, 1.0, 3.0]))
    number = data.draw(st.floats(0, FAR))
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    least = max(min_p, np.sort(weights)[-top_k] if 0 < top_k <= vocab_size else 0.0)
    left = np.where(weights >= least * (1 - 1e-6), weights, 0.0)
    heaviest_first = np.sort(left)[::-1]
    reached = heaviest_first.cumsum() >= top_p * left.sum() * (1 - 1e-6)
    least_kept = heaviest_first[reached.argmax()] if top_p < 1 else 0.0
    kept = np.where(left >= least_kept * (1 - 1e-6), left, 0.0)
    token = draw_one(logits, params, number)
    sums_to = kept.cumsum() / kept.sum()
    # Where the sum is within rounding of the cut, one value more may be kept.
    assume(abs(heaviest_first.cumsum() / left.sum() - top_p).min() > 1e-5 or top_p == 1)
    assert kept[token] > 0
    assert sums_to[token] >= number - 1e-5
    assert token == 0 or sums_to[token - 1] <= number + 1e-5


def test_each_row_is_drawn_with_its_own_settings():
    logits = np.array([0.0, 1.0, 2.0, 3.0], np.float32)
    wanted = [
        Draw(logits, SamplingParams(repetition_penalty=2.0), 0.0, np.array([3]), 1),
        Draw(logits, SamplingParams(temperature=1.0, top_k=1), 0.0),
        Draw(logits, ALL, 0.0),
        Draw(logits, SamplingParams(presence_penalty=5.0), 0.0, np.array([3, 3, 2]), 2),
    ]
    assert draw(wanted) == [2, 3, 0, 3]
    assert draw(wanted[::-1]) == [3, 0, 3, 2]


def test_penalties_without_end_take_the_likeliest():
    """A logit that a penalty makes infinite leaves no likelihoods to compare."""
    logits = np.array([1.0, 3e38, 3e38], np.float32)
    params = SamplingParams(temperature=1.0, repetition_penalty=0.5)
    assert draw([Draw(logits, params, FAR, np.array([2, 0]), 2)]) == [2]


def test_penalties_are_those_of_their_definition():
    logits = np.array([2.0, -1.0, 0.5, 4.0, 0.0], np.float32)
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    penalise(logits, params, np.array([0, 1, 3, 3, 1, 4]), 2)
    # Token 0 stands in the prompt alone; of the reply 3 and 4 once or twice, 1 in both.
    assert logits.tolist() == [1.0, -2.75, 0.5, 0.75, -0.75]

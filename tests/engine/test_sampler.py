"""The sampler: which token is drawn from which logits."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from paged_chat.engine.cache.block import Root
from paged_chat.engine.request import SamplingParams, TokenLogprobs
from paged_chat.engine.sampler import sample, uniform
from paged_chat.engine.sequence import Sequence
from paged_chat.engine.step_logits import StepLogits

NUM_DRAWS = 2000
FOUR = StepLogits(torch.tensor([[1.0, 4.0, 2.0, 3.0]]))


def sequence(
    params: SamplingParams, *, seed: int = 0, prompt: tuple[int, ...] = (9,), reply: tuple[int, ...] = ()
) -> Sequence:
    return Sequence(
        request_id="r1",
        params=params,
        root=Root(b"", b""),
        token_ids=[*prompt, *reply],
        num_prompt_tokens=len(prompt),
        max_len=1000,
        seed=seed,
    )


def draw(
    logits: list[float], *, seed: int = 0, prompt: tuple[int, ...] = (9,), reply: tuple[int, ...] = (), **params: Any
) -> int:
    """One token from one row of logits."""
    own = sequence(SamplingParams(**params), seed=seed, prompt=prompt, reply=reply)
    [token] = sample(StepLogits(torch.tensor([logits])), [own], [0])
    return token.token_id


def frequencies(probabilities: list[float], **params: Any) -> list[float]:
    """How often each token is drawn, over seeds 0, 1, 2, …"""
    logits = torch.tensor([[math.log(p) if p else -math.inf for p in probabilities]])
    own = SamplingParams(**{"temperature": 1.0, **params})
    sequences = [sequence(own, seed=seed) for seed in range(NUM_DRAWS)]
    counts = Counter(token.token_id for token in sample(StepLogits(logits), sequences, [0] * NUM_DRAWS))
    return [counts[token_id] / NUM_DRAWS for token_id in range(len(probabilities))]


def assert_near(measured: list[float], expected: list[float]) -> None:
    """Within four standard deviations; what has no probability is never drawn."""
    for got, probability in zip(measured, expected, strict=True):
        assert abs(got - probability) <= 4 * math.sqrt(probability * (1 - probability) / NUM_DRAWS)


# The uniform numbers


def test_the_number_of_a_seed_and_a_position_is_philoxs():
    for seed, position in ((0, 0), (0, 1), (7, 12), (7, 63), (7, 64), (7, 200), (2**63 - 1, 2**40)):
        generator = np.random.Generator(np.random.Philox(key=seed, counter=position))
        assert uniform(seed, position) == generator.random()


def test_numbers_of_neighbouring_seeds_and_positions_have_nothing_to_do_with_each_other():
    numbers = np.array([[uniform(seed, position) for position in range(60)] for seed in range(60)])
    assert len(np.unique(numbers)) == 3600
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 / math.sqrt(12 * 3600)
    for shifted in (np.roll(numbers, 1, axis=0), np.roll(numbers, 1, axis=1)):
        assert abs(np.corrcoef(numbers.ravel(), shifted.ravel())[0, 1]) < 4 / 60


# Temperature


def test_temperature_0_takes_the_likeliest():
    assert draw([0.1, 3.0, 2.9], temperature=0.0) == 1


def test_of_equally_likely_ones_temperature_0_takes_the_first():
    assert draw([1.0, 3.0, 3.0, 3.0], temperature=0.0) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-4])
def test_tiny_temperatures_agree_with_the_likeliest_in_half_precision(dtype, temperature):
    generator = torch.Generator().manual_seed(0)
    logits = (20 * torch.randn(50, 300, generator=generator)).to(dtype)
    for rows in (logits, logits.float()):
        own = [sequence(SamplingParams(temperature=temperature, logprobs=0), seed=seed) for seed in range(50)]
        tokens = sample(StepLogits(rows), own, list(range(50)))
        assert [token.token_id for token in tokens] == logits.argmax(dim=-1).tolist()
        assert all(math.isfinite(token.logprobs.logprob) for token in tokens)


@pytest.mark.parametrize("temperature", [1e-6, 1e-4, 1e-3, 2e-3, 100.0])
@pytest.mark.parametrize("others", [{}, {"top_p": 0.5}, {"min_p": 0.1}, {"top_k": 2}, {"repetition_penalty": 1.5}])
def test_extreme_logits_and_temperatures_never_give_nan(temperature, others):
    for logits in ([6e4, -6e4, 0.0], [-3e38, 3e38, 0.0], [-math.inf, -math.inf, 5.0], [0.0, 0.0, 0.0]):
        tokens = {draw(logits, prompt=(0, 1), temperature=temperature, seed=seed, **others) for seed in range(20)}
        assert tokens <= {0, 1, 2}
        if logits[0] == -math.inf:
            assert tokens == {2}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_sharpens_and_flattens(temperature):
    probabilities = [0.5, 0.3, 0.15, 0.05]
    powers = [p ** (1 / temperature) for p in probabilities]
    assert_near(frequencies(probabilities, temperature=temperature), [p / sum(powers) for p in powers])


def test_a_token_without_probability_is_never_drawn():
    assert_near(frequencies([0.0, 0.6, 0.0, 0.4, 0.0]), [0.0, 0.6, 0.0, 0.4, 0.0])


# What is cut off


@pytest.mark.parametrize(
    ("top_k", "expected"),
    [
        (0, [0.15, 0.5, 0.05, 0.3]),
        (1, [0, 1, 0, 0]),
        (2, [0, 0.625, 0, 0.375]),
        (3, [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95]),
        (4, [0.15, 0.5, 0.05, 0.3]),
        (1000, [0.15, 0.5, 0.05, 0.3]),
    ],
)
def test_top_k_keeps_the_k_likeliest(top_k, expected):
    assert_near(frequencies([0.15, 0.5, 0.05, 0.3], top_k=top_k), expected)


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (1e-9, [0, 1, 0, 0]),
        (0.49, [0, 1, 0, 0]),
        (0.51, [0, 0.625, 0, 0.375]),
        (0.79, [0, 0.625, 0, 0.375]),
        (0.81, [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95]),
        (0.96, [0.15, 0.5, 0.05, 0.3]),
        (1.0, [0.15, 0.5, 0.05, 0.3]),
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(top_p, expected):
    assert_near(frequencies([0.15, 0.5, 0.05, 0.3], top_p=top_p), expected)


def test_top_p_reaches_far_into_a_flat_distribution():
    """400 tokens share 0.4 evenly behind one of 0.6: to reach 0.8 half of them are needed, and no fewer."""
    probabilities = [0.6, *[0.4 * (1 + i / 1e4) / (400 * 1.01995) for i in range(400)]]
    kept = [token_id for token_id, share in enumerate(frequencies(probabilities, top_p=0.8)) if share]
    assert kept[0] == 0
    assert 199 <= min(kept[1:]) <= 205
    assert max(kept) >= 395


@pytest.mark.parametrize(
    ("min_p", "expected"),
    [
        (0.0, [0.15, 0.5, 0.05, 0.3]),
        (0.2, [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95]),
        (0.5, [0, 0.625, 0, 0.375]),
        (0.7, [0, 1, 0, 0]),
        (1.0, [0, 1, 0, 0]),
    ],
)
def test_min_p_drops_what_is_far_less_likely_than_the_likeliest(min_p, expected):
    assert_near(frequencies([0.15, 0.5, 0.05, 0.3], min_p=min_p), expected)


def test_top_p_counts_among_what_top_k_has_left():
    # Of the two likeliest, 0.4 and 0.3, the first alone is 0.57 of the rest.
    assert_near(frequencies([0.4, 0.3, 0.2, 0.1], top_k=2, top_p=0.5), [1, 0, 0, 0])
    assert_near(frequencies([0.4, 0.3, 0.2, 0.1], top_p=0.5), [4 / 7, 3 / 7, 0, 0])


def test_temperature_comes_before_the_cuts():
    # At temperature 2 the probabilities are 0.43, 0.33, 0.24: one token no longer reaches 0.5.
    powers = [math.sqrt(p) for p in (0.51, 0.3, 0.19)]
    expected = [powers[0] / sum(powers[:2]), powers[1] / sum(powers[:2]), 0]
    assert_near(frequencies([0.51, 0.3, 0.19], temperature=2.0, top_p=0.5), expected)


# Penalties


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    assert draw([2.0, 1.01, -5.0], prompt=(0,), repetition_penalty=2.0) == 1
    assert draw([2.0, 0.99, -5.0], prompt=(0,), repetition_penalty=2.0) == 0
    assert draw([-1.0, -1.99, -5.0], prompt=(0,), repetition_penalty=2.0) == 1
    assert draw([-1.0, -2.01, -5.0], prompt=(0,), repetition_penalty=2.0) == 0


def test_repetition_penalty_counts_prompt_and_reply_and_each_token_once():
    assert draw([2.0, 1.01, -5.0], prompt=(2,), reply=(0,), repetition_penalty=2.0) == 1
    assert draw([2.0, 0.99], prompt=(0, 0), reply=(0, 0, 0), repetition_penalty=2.0) == 0


def test_presence_and_frequency_penalties_leave_the_prompt_alone():
    assert draw([2.0, 1.9], prompt=(0, 0, 0), presence_penalty=5.0, frequency_penalty=5.0) == 0
    assert draw([2.0, 1.9], prompt=(5,), reply=(0,), presence_penalty=0.2) == 1
    assert draw([2.0, 1.9], prompt=(5,), reply=(0,), frequency_penalty=0.2) == 1


def test_presence_penalty_is_subtracted_once():
    assert draw([2.0, 0.9], reply=(0, 0, 0), presence_penalty=1.0) == 0
    assert draw([2.0, 1.1], reply=(0, 0, 0), presence_penalty=1.0) == 1


def test_frequency_penalty_is_subtracted_for_each_occurrence():
    assert draw([2.0, 1.45], reply=(0, 1, 0), frequency_penalty=0.5) == 0  # 1.0 and 0.95
    assert draw([2.0, 1.55], reply=(0, 1, 0), frequency_penalty=0.5) == 1  # 1.0 and 1.05


def test_a_negative_penalty_invites_repetition():
    assert draw([1.0, 2.0], reply=(0,), presence_penalty=-1.1) == 0
    assert draw([1.0, 2.0], reply=(0, 0), frequency_penalty=-0.6) == 0


def test_penalties_change_the_odds_of_a_draw():
    logits = torch.tensor([[math.log(0.5), math.log(0.5)]])
    own = SamplingParams(temperature=1.0, presence_penalty=math.log(3))
    sequences = [sequence(own, seed=seed, reply=(0,)) for seed in range(NUM_DRAWS)]
    counts = Counter(token.token_id for token in sample(StepLogits(logits), sequences, [0] * NUM_DRAWS))
    assert_near([counts[0] / NUM_DRAWS, counts[1] / NUM_DRAWS], [0.25, 0.75])


def test_penalties_leave_the_logits_of_others_in_the_same_row_alone():
    logits = torch.tensor([[2.0, 1.5, 0.0]])
    penalised = sequence(SamplingParams(repetition_penalty=2.0), prompt=(0,))
    plain = sequence(SamplingParams(), prompt=(0,))
    assert [token.token_id for token in sample(StepLogits(logits), [penalised, plain, penalised], [0, 0, 0])] == [
        1,
        0,
        1,
    ]
    assert logits.tolist() == [[2.0, 1.5, 0.0]]


# Log probabilities


def test_logprobs_are_natural_and_come_before_temperature_and_penalties():
    probabilities = [0.15, 0.5, 0.05, 0.3]
    logits = torch.tensor([[math.log(p) + 3 for p in probabilities]])
    params = SamplingParams(temperature=0.3, repetition_penalty=50.0, logprobs=2)
    [token] = sample(StepLogits(logits), [sequence(params, prompt=(1,), seed=5)], [0])
    logprobs = token.logprobs
    assert isinstance(logprobs, TokenLogprobs)
    assert logprobs.token_id == token.token_id
    assert logprobs.logprob == pytest.approx(math.log(probabilities[token.token_id]), abs=1e-6)
    assert [token_id for token_id, _ in logprobs.top] == [1, 3]
    assert [value for _, value in logprobs.top] == pytest.approx([math.log(0.5), math.log(0.3)], abs=1e-6)


@pytest.mark.parametrize(("wanted", "num_top"), [(0, 0), (1, 1), (3, 3), (60, 4)])
def test_as_many_alternatives_as_asked_for(wanted, num_top):
    [token] = sample(FOUR, [sequence(SamplingParams(logprobs=wanted))], [0])
    assert [token_id for token_id, _ in token.logprobs.top] == [1, 3, 2, 0][:num_top]
    assert token.logprobs.token_id == 1


def test_no_logprobs_unless_asked_for():
    [token] = sample(FOUR, [sequence(SamplingParams())], [0])
    assert token.logprobs is None


# Determinism


def test_a_seeded_draw_is_the_same_alone_and_among_others():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(8, 200, generator=generator)
    params = SamplingParams(temperature=1.2, top_p=0.9)
    sequences = [sequence(params, seed=seed) for seed in range(8)]
    together = [token.token_id for token in sample(StepLogits(logits), sequences, list(range(8)))]
    alone = [sample(StepLogits(logits[i : i + 1]), [sequences[i]], [0])[0].token_id for i in range(8)]
    assert together == alone


def test_the_position_counts_prompt_and_reply_together():
    logits = [0.0] * 100
    first = draw(logits, temperature=1.0, prompt=(1, 2, 3), reply=(4,), seed=3)
    second = draw(logits, temperature=1.0, prompt=(1, 2), reply=(3, 4), seed=3)
    assert first == second == int(uniform(3, 4) * 100)


def test_seeds_and_positions_draw_differently():
    logits = [0.0] * 1000
    by_seed = {draw(logits, temperature=1.0, seed=seed) for seed in range(30)}
    by_position = {draw(logits, temperature=1.0, reply=(1,) * count) for count in range(30)}
    assert len(by_seed) >= 28
    assert len(by_position) >= 28


def test_several_may_draw_from_one_row_each_with_its_own_seed():
    logits = torch.zeros(2, 1000)
    own = SamplingParams(temperature=1.0)
    tokens = sample(StepLogits(logits), [sequence(own, seed=seed) for seed in range(3)], [1, 1, 1])
    assert [token.token_id for token in tokens] == [int(uniform(seed, 1) * 1000) for seed in range(3)]

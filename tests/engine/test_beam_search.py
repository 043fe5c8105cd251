"""Beam search over the stand-in model: what it finds, what its beams hold, and that nothing around it changes it."""

import math
from itertools import product

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from beam_oracle import assert_found, beams, search_plainly
from paged_chat.engine.beam_search import BeamSearch, Continuation, num_looked_at
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams
from slot_runner import (
    Listener,
    SlotRunner,
    ask_all,
    entry,
    make_core,
    preempt_all,
    prompt,
    random_logits,
    reply_to,
)

FEW = settings(deadline=None, suppress_health_check=list(HealthCheck))

# The definition


@st.composite
def searches(draw: st.DrawFn) -> SamplingParams:
    width = draw(st.integers(2, 5))
    return SamplingParams(
        beam_width=width,
        n=draw(st.integers(1, width)),
        max_tokens=draw(st.integers(1, 7)),
        length_penalty=draw(st.sampled_from((1.0, 0.0, -0.5, 2.0, 0.6))),
        early_stopping=draw(st.sampled_from((False, True, "never"))),
        ignore_eos=True,
        stop_token_ids=draw(st.lists(st.integers(0, 49), max_size=5, unique=True)),
    )


@settings(FEW, max_examples=150)
@given(params=searches(), seed=st.integers(0, 10**6))
def test_a_search_is_its_definition(params, seed):
    def logprobs_after(tokens: tuple[int, ...]) -> list[float]:
        history = [seed.to_bytes(4, "little")]
        for token_id in tokens:
            history.append(entry(history, token_id))
        return torch.log_softmax(random_logits(history).double(), 0).tolist()

    ends = frozenset(params.stop_token_ids)
    search = BeamSearch(params, params.max_tokens or 0)
    while not search.is_over:
        continuations = [
            Continuation(rank, token_id, beam.score + logprob, token_id in ends)
            for rank, beam in enumerate(search.beams)
            for token_id, logprob in enumerate(logprobs_after(beam.token_ids))
        ]
        search.advance(continuations, num_looked_at(params, ends))
    found = [(reply.token_ids, reply.score) for reply in search.best(params.n)]
    expected = search_plainly(logprobs_after, ends, params)
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected])


def test_as_wide_as_all_there_is_a_search_finds_the_likeliest_reply_of_all():
    table = torch.log_softmax(torch.tensor([[0.3, 1.1, -0.4], [2.0, 0.1, 0.2], [-1.0, 0.5, 0.9]]), -1).tolist()

    def total(tokens: tuple[int, ...]) -> float:
        return sum(table[before][after] for before, after in zip((0, *tokens), tokens, strict=False))

    params = SamplingParams(beam_width=27, max_tokens=4)
    search = BeamSearch(params, 4)
    while not search.is_over:
        search.advance(
            [
                Continuation(rank, after, beam.score + table[(0, *beam.token_ids)[-1]][after])
                for rank, beam in enumerate(search.beams)
                for after in range(3)
            ],
            num_looked_at(params, ()),
        )
    [best] = search.best(1)
    assert best.token_ids == max(product(range(3), repeat=4), key=total)
    assert best.score == pytest.approx(total(best.token_ids) / 4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": 0.7}, "beam_width 3 looks for the likeliest replies and draws nothing: set temperature to 0"),
        ({"n": 4}, "n is 4, but a search with beam_width 3 finds no more than 3 replies"),
        ({"early_stopping": "always"}, 'early_stopping must be True, False or "never"'),
        ({"length_penalty": math.nan}, "length_penalty must be at least -10 and at most 10, not nan"),
        ({"beam_width": 65}, "beam_width must be a whole number from 1 to 64"),
    ],
)
def test_what_excludes_each_other_is_refused_in_words(fields, words):
    with pytest.raises(InvalidParameter, match=words):
        SamplingParams(**{"beam_width": 3, **fields})


def test_more_beams_than_places_or_tokens_are_refused_when_asked_for():
    with pytest.raises(InvalidParameter, match="beam_width is 5, but at most 4 beams run at once"):
        make_core(max_num_seqs=4).submit([1], beams(5, 3))
    with pytest.raises(InvalidParameter, match="needs a vocabulary of 52 tokens or more, and this model's has 50"):
        make_core().submit([1], beams(26, 3))


# Over the core


@pytest.mark.parametrize("length", [1, 15, 16, 17, 33])
def test_the_core_finds_what_a_search_without_blocks_finds(length):
    params = beams(4, 20)
    assert_found(ask_all(make_core(), prompt(length), params), prompt(length), params)


@settings(FEW, max_examples=60)
@given(data=st.data(), asked=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=3))
def test_whatever_runs_beside_it_and_is_taken_from_it_a_search_finds_the_same(data, asked):
    block_size = data.draw(st.sampled_from((1, 2, 4)), label="block_size")
    runner = SlotRunner(block_size)
    core = make_core(
        runner,
        num_blocks=data.draw(st.integers(-(-16 // block_size), 64 // block_size), label="num_blocks") + 1,
        block_size=block_size,
        max_num_seqs=data.draw(st.integers(5, 7), label="max_num_seqs"),
        max_num_batched_tokens=data.draw(st.sampled_from((1, 2, 3, 64)), label="budget"),
        prefix_caching=data.draw(st.booleans(), label="prefix_caching"),
        watermark_blocks=data.draw(st.integers(0, 2), label="watermark"),
    )
    listener = Listener(core)
    wanted = {}
    for tokens in asked:
        params = data.draw(searches(), label="params")
        wanted[core.submit(tokens, params)] = (tokens, params)
        greedy = core.submit(tokens, SamplingParams(max_tokens=5))
        wanted[greedy] = (tokens, None)
        for _ in range(data.draw(st.integers(0, 3), label="steps")):
            listener.step()
        if data.draw(st.booleans(), label="preempts"):
            preempt_all(core)
    listener.run()
    for request_id, (tokens, params) in wanted.items():
        if params is None:
            assert tuple(listener.reply(request_id).token_ids) == reply_to(tokens, 5)
        else:
            assert_found([listener.reply(request_id, sample) for sample in range(params.n)], tokens, params)
    assert core.snapshot().num_referenced == 0

"""Beam search over the stand-in model: what it finds, what its beams hold, and that nothing around it changes it."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from paged_chat.engine.beam_search import BeamSearch, Continuation, num_looked_at
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.events import EventKind
from paged_chat.engine.request import BlockUse, SamplingParams
from slot_runner import (
    Heard,
    Listener,
    SlotRunner,
    ask,
    ask_all,
    entry,
    make_core,
    preempt_all,
    random_logits,
    reply_to,
)
from tiny_tokenizer import BOS, spelled, tokenizer_in

FEW = settings(deadline=None, suppress_health_check=list(HealthCheck))

Logprobs = Callable[[tuple[int, ...]], list[float]]


def beams(width: int, max_tokens: int, **others: object) -> SamplingParams:
    fields = {"n": width, "ignore_eos": True, **others}
    return SamplingParams(beam_width=width, max_tokens=max_tokens, **fields)  # type: ignore[arg-type]


def prompt(length: int, first: int = 0) -> list[int]:
    return [first, *((first + i * 7) % 50 for i in range(1, length))]


# The definition


def search_plainly(
    logprobs_after: Logprobs, ends: frozenset[int], params: SamplingParams
) -> list[tuple[tuple[int, ...], float]]:
    """Straight from the definition, each step over every continuation of every beam: (reply, score), best first."""
    width, penalty = params.beam_width, params.length_penalty
    limit = params.max_tokens or 0
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    done: list[tuple[tuple[int, ...], float]] = []
    for length in range(1, limit + 1):
        longer = [
            ((*tokens, token_id), total + logprob)
            for tokens, total in live
            for token_id, logprob in enumerate(logprobs_after(tokens))
        ]
        longer.sort(key=lambda beam: -beam[1])
        longer = longer[: max(2, 1 + len(ends)) * width]
        has_ended = {tokens: length == limit or tokens[-1] in ends for tokens, _ in longer}
        done += [(tokens, total / length**penalty) for tokens, total in longer[:width] if has_ended[tokens]]
        done = sorted(done, key=lambda reply: -reply[1])[:width]
        live = [beam for beam in longer if not has_ended[beam[0]]][:width]
        if not live:
            break
        reach = limit if params.early_stopping == "never" and penalty > 0 else length
        if len(done) == width and (params.early_stopping is True or live[0][1] / reach**penalty <= done[-1][1]):
            break
    return done[: params.n]


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


def found(replies: list[Heard]) -> list[tuple[tuple[int, ...], float | None]]:
    return [(tuple(reply.token_ids), reply.score) for reply in replies]


def expect(asked: list[int], params: SamplingParams) -> list[tuple[tuple[int, ...], float]]:
    """What the stand-in model's search finds when nothing is paged."""

    def logprobs_after(tokens: tuple[int, ...]) -> list[float]:
        history: list[bytes] = []
        for token_id in (*asked, *tokens):
            history.append(entry(history, token_id))
        return torch.log_softmax(random_logits(history), 0).tolist()

    return search_plainly(logprobs_after, frozenset(params.stop_token_ids), params)


def assert_found(replies: list[Heard], asked: list[int], params: SamplingParams) -> None:
    expected = expect(asked, params)
    assert [tuple(reply.token_ids) for reply in replies] == [ids for ids, _ in expected]
    assert [reply.score for reply in replies] == pytest.approx([score for _, score in expected], abs=1e-4)


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


# What beams hold


def chain(vocab_size: int, likely: dict[int, tuple[tuple[int, float], ...]], first: int | None = None):
    """Logits that depend on the last token alone; after one that isn't in `likely`, or has none, all are equal.

    first: the one token after any other that isn't in `likely`.
    """

    def logits_of(history):
        before = b"".join(history[:-1])
        last = next(token_id for token_id in range(vocab_size) if entry([before], token_id) == history[-1])
        following = likely.get(last, () if first is None else ((first, 2.0),))
        logits = torch.full((vocab_size,), -20.0 if following else 0.0)
        for token_id, logit in following:
            logits[token_id] = logit
        return logits

    return logits_of


def test_a_dropped_beam_frees_its_blocks_in_the_same_step():
    """Blocks of one token, and a model in which the second beam's ways beat the first one's: both new beams go on
    from it, so the first one's block is free with the step that drops it, and the shared prompt's are not.
    """

    likely = {8: ((1, 1.0), (2, 0.9)), 1: (), 2: ((3, 1.0), (4, 0.9))}  # after 1 all tokens are as good
    core = make_core(SlotRunner(1, chain(50, likely)), block_size=1, num_blocks=16)
    request_id = core.submit([7, 8], beams(2, 4))
    core.step()  # the prompt: beams [1] and [2]
    assert [sequence.token_ids[2:] for sequence in core._requests[request_id].sequences] == [[1], [2]]
    before = core.snapshot()
    assert (before.num_referenced, before.num_shared) == (2, 2)
    core.step()  # both are computed, each in a block of its own; [2, 3] and [2, 4] win
    first, second = core._requests[request_id].sequences
    assert [first.token_ids[2:], second.token_ids[2:]] == [[2, 3], [2, 4]]
    after = core.snapshot()
    # The prompt's two blocks and that of token 2, all shared; that of token 1 is let go, findable for a while.
    assert (after.num_referenced, after.num_shared, after.num_cached) == (3, 3, 1)
    assert after.frees - before.frees == 1
    kinds = EventKind
    assert [(event.kind, event.block_id) for event in core.events.since(before.num_events)] == [
        (kinds.ALLOCATED, 3),
        (kinds.ALLOCATED, 4),
        (kinds.PUBLISHED, 3),
        (kinds.PUBLISHED, 4),
        (kinds.FREED, 3),
        (kinds.SHARED, 1),
        (kinds.SHARED, 2),
        (kinds.SHARED, 4),
    ]
    assert first.block_table == second.block_table


def test_beams_share_their_prompt_and_say_how_much_they_share():
    core = make_core(num_blocks=64)
    listener = Listener(core)
    request_id = core.submit(prompt(100), beams(4, 12))
    listener.step()
    assert core.snapshot().num_shared == 7  # the prompt's six full blocks, and its tail until somebody writes on
    listener.run()
    use = listener.reply(request_id).stats.block_use
    # 6 full blocks of the prompt; tails of 4 prompt tokens and up to 11 of a beam, one a beam at most.
    assert use == BlockUse(num_blocks=10, num_blocks_alone=28, num_sequences=4)


def test_the_second_search_reuses_the_prompt_of_the_first():
    core = make_core()
    first, second = (ask_all(core, prompt(40), beams(3, 6)) for _ in range(2))
    assert found(first) == found(second)
    assert (first[0].stats.num_cached_tokens, second[0].stats.num_cached_tokens) == (0, 39)


def test_the_next_turn_reuses_the_best_reply_to_its_end():
    core = make_core()
    [best, *_] = ask_all(core, prompt(20), beams(3, 9))
    after = ask(core, [*prompt(20), *best.token_ids, 1, 2], SamplingParams(max_tokens=1))
    assert after.stats.num_cached_tokens == 28  # all but the last token of the reply, which was never computed


def test_a_budget_smaller_than_the_beams_makes_them_wait_for_each_other():
    runner = SlotRunner()
    params = beams(4, 5)
    replies = ask_all(make_core(runner, max_num_batched_tokens=3), prompt(5), params)
    assert runner.steps == [[3], [2], *[[1, 1, 1], [1]] * 4]
    assert_found(replies, prompt(5), params)


def test_a_pool_too_small_for_all_beams_at_once_serves_them_in_turns():
    core = make_core(block_size=4, num_blocks=5)
    params = beams(4, 9)
    replies = ask_all(core, prompt(7), params)
    assert_found(replies, prompt(7), params)
    assert core.snapshot().preemptions > 0
    assert replies[0].stats.num_preemptions > 0


# Ends


def test_stopped_midway_a_search_gives_what_it_has_best_first():
    core = make_core()
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(3, 30))
    for _ in range(6):
        assert listener.step() == []
    [preview] = core.beam_previews()
    assert core.abort(request_id, 1) is False  # its replies haven't parted
    assert core.abort(request_id)
    listener.run()
    replies = [listener.reply(request_id, sample) for sample in range(3)]
    assert [(len(reply.token_ids), reply.finish_reason) for reply in replies] == [(6, "abort")] * 3
    assert tuple(replies[0].token_ids) == preview.token_ids == expect(prompt(20), beams(3, 6))[0][0]
    assert replies[0].score == preview.score
    assert (preview.num_beams, core.snapshot().num_referenced) == (3, 0)


def test_stopped_before_its_first_token_a_search_ends_with_empty_replies():
    core = make_core()
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(2, 5))
    assert core.beam_previews() == []
    core.abort(request_id)
    listener.run()
    assert [(r.token_ids, r.score, r.finish_reason) for r in (listener.reply(request_id, i) for i in range(2))] == [
        ([], None, "abort")
    ] * 2


def test_a_step_that_fails_again_and_again_ends_the_search_and_frees_its_blocks():
    runner = SlotRunner()
    core = make_core(runner)
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(2, 9))
    listener.step()
    runner.failures += [RuntimeError("out of luck")] * 2
    listener.run()
    assert [listener.reply(request_id, sample).finish_reason for sample in range(2)] == ["error", "error"]
    assert core.snapshot().num_referenced == 0


def test_a_step_that_fails_once_changes_nothing_that_a_search_finds():
    runner = SlotRunner()
    core = make_core(runner)
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(3, 9))
    for _ in range(2):
        listener.step()
        runner.failures.append(RuntimeError("a bad step"))
        for _ in range(4):  # it fails, and each of the three beams is computed alone
            listener.step()
    listener.run()
    found = [listener.reply(request_id, sample) for sample in range(3)]
    assert [tuple(reply.token_ids) for reply in found] == [ids for ids, _ in expect(prompt(20), beams(3, 9))]


def test_replies_that_begin_with_given_tokens_are_searched_behind_them():
    core = make_core()
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(2, 8), reply_start=[5, 6, 7])
    listener.run()
    expected = expect([*prompt(20), 5, 6, 7], beams(2, 5))
    replies = [listener.reply(request_id, sample).token_ids for sample in range(2)]
    assert replies == [[5, 6, 7, *ids] for ids, _ in expected]


def test_log_probabilities_of_each_token_add_up_to_the_score():
    [best, _] = ask_all(make_core(), prompt(9), replace(beams(2, 7), logprobs=2, length_penalty=0.0))
    assert [logprobs.token_id for logprobs in best.logprobs] == best.token_ids
    assert sum(logprobs.logprob for logprobs in best.logprobs) == pytest.approx(best.score, abs=1e-4)
    assert all(len(logprobs.top) == 2 for logprobs in best.logprobs)


def test_a_stop_string_ends_a_beam_like_an_end_token(tmp_path):
    """The model goes on with b after a, and with c nearly as gladly; "ab" is a stop string."""
    tokenizer = tokenizer_in(tmp_path)
    a, b, c, d = spelled("abcd")
    likely = {a: ((b, 2.0), (c, 1.9)), c: ((d, 2.0),), d: ((d, 2.0),)}
    core = make_core(SlotRunner(16, chain(320, likely, first=a)), tokenizer=tokenizer, vocab_size=320)
    replies = ask_all(core, [BOS], beams(2, 5, stop="ab"))
    assert [(reply.text, reply.token_ids, reply.finish_reason) for reply in replies] == [
        ("acddd", [a, c, d, d, d], "length"),
        ("", [a, b], "stop"),
    ]
    # Without it both go on.
    assert ask_all(core, [BOS], beams(2, 2))[0].text == "ab"

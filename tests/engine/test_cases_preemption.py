"""Faults that users of other systems met, each as a story: preempted and stopped replies."""

import pytest

from case_prompts import PROMPT, steps_until
from replies import all_steps, ask, drawn, greedy, ids_of, reply_ids
from slot_runner import preempt

# E6, E7, E9: preemption


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("num_tokens", [15, 16, 17, 33])
def test_e6_preempted_twice_in_a_row_nothing_is_streamed_twice_or_lost(make_engine, num_tokens, prefix_caching):
    engine = make_engine(prefix_caching=prefix_caching)
    expected = reply_ids(make_engine(), PROMPT[:10], greedy(30))
    request_id = engine.submit(PROMPT[:10], greedy(30))
    deltas = steps_until(engine, request_id, num_tokens)
    for _ in range(2):
        preempt(engine._open_core(), request_id)
        assert engine.snapshot().num_referenced == 0
        deltas += engine.step()
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == expected
    assert deltas[-1].stats.num_preemptions == 2
    assert deltas[-1].stats.num_generated_tokens == 30


def test_e6_preempted_again_before_it_is_back(make_engine):
    engine = make_engine(max_num_batched_tokens=8, prefix_caching=False)
    expected = reply_ids(make_engine(), PROMPT[:10], greedy(20))
    request_id = engine.submit(PROMPT[:10], greedy(20))
    deltas = steps_until(engine, request_id, 20)
    for _ in range(2):
        preempt(engine._open_core(), request_id)
        assert engine.step() == []  # 8 of its 20 tokens are computed again, and nothing is streamed
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == expected


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_e6_preempted_for_want_of_space(make_engine, prefix_caching):
    engine = make_engine(num_blocks=7, prefix_caching=prefix_caching)
    prompts = [PROMPT[i * 20 : i * 20 + 15] for i in range(4)]
    outputs = engine.generate(prompts, greedy(40))
    plain = make_engine(prefix_caching=False)
    assert [output.samples[0].token_ids for output in outputs] == [reply_ids(plain, p, greedy(40)) for p in prompts]
    assert engine.snapshot().preemptions > 0


def test_e7_a_seeded_reply_preempted_at_token_10_is_the_same(make_engine):
    params = drawn(30, temperature=1.0, seed=7)
    engine = make_engine()
    request_id = engine.submit(PROMPT[:20], params)
    deltas = steps_until(engine, request_id, 20 + 10)
    preempt(engine._open_core(), request_id)
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == reply_ids(make_engine(), PROMPT[:20], params)


def test_e9_penalties_usage_and_length_do_not_notice_preemption(make_engine):
    params = drawn(25, temperature=0.8, seed=3, repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.3)
    [alone] = ask(make_engine(), PROMPT[:20], params).samples
    engine = make_engine()
    request_id = engine.submit(PROMPT[:20], params)
    deltas = steps_until(engine, request_id, 20 + 12)
    preempt(engine._open_core(), request_id)
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == alone.token_ids
    stats = deltas[-1].stats
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_generated_tokens) == (20, 0, 25)
    assert deltas[-1].finish_reason == alone.finish_reason == "length"
    # The penalties do something here.
    assert alone.token_ids != reply_ids(make_engine(), PROMPT[:20], drawn(25, temperature=0.8, seed=3))


# E19: stop


@pytest.mark.parametrize("n", [1, 3])
def test_e19_stopped_at_token_40_the_chat_goes_on_where_it_was(make_engine, n):
    engine = make_engine()
    request_id = engine.submit(PROMPT[:20], drawn(200, temperature=1.0, seed=6, n=n))
    deltas = steps_until(engine, request_id, 20 + 40)
    assert engine.abort(request_id)
    assert engine.snapshot().num_referenced == 0
    deltas += engine.step()
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["abort"] * n
    for sample in range(n):
        assert len(ids_of(deltas, request_id, sample)) == 40
    assert not engine.has_unfinished
    history = [*PROMPT[:20], *ids_of(deltas, request_id, n - 1), 9, 9]
    output = ask(engine, history, greedy(5))
    assert output.num_cached_tokens == 20 + 39
    assert output.samples[0].token_ids == reply_ids(make_engine(), history, greedy(5))

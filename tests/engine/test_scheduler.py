"""The scheduler: who computes how many tokens in which step. Blocks hold 16 tokens."""

import pytest

from paged_chat.engine import scheduler as scheduler_module
from paged_chat.engine.errors import InvalidParameter
from slot_runner import Listener, SlotRunner, ask, greedy, make_core, prompt, reply_to


@pytest.fixture
def runner() -> SlotRunner:
    return SlotRunner()


def run_steps(listener: Listener, count: int) -> None:
    for _ in range(count):
        listener.step()


# Budget and chunks


def test_a_prompt_is_computed_at_once_and_each_token_after_it_in_a_step(runner):
    reply = ask(make_core(runner), prompt(40), greedy(4))
    # The last token is sampled and never computed.
    assert runner.steps == [[40], [1], [1], [1]]
    assert tuple(reply.token_ids) == reply_to(prompt(40), 4)


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks(runner):
    reply = ask(make_core(runner, max_num_batched_tokens=16), prompt(40), greedy(3))
    assert runner.steps == [[16], [16], [8], [1], [1]]
    assert tuple(reply.token_ids) == reply_to(prompt(40), 3)


@pytest.mark.parametrize("budget", [1, 2, 5, 15, 17, 31, 100])
def test_however_a_prompt_is_cut_the_reply_is_the_same(budget):
    runner = SlotRunner()
    reply = ask(make_core(runner, max_num_batched_tokens=budget), prompt(50), greedy(5))
    assert tuple(reply.token_ids) == reply_to(prompt(50), 5)
    assert max(sum(step) for step in runner.steps) == min(budget, 50)


def test_one_step_mixes_a_decode_with_a_chunk_of_another_prompt(runner):
    core = make_core(runner, max_num_batched_tokens=16)
    listener = Listener(core)
    first = core.submit(prompt(10), greedy(6))
    listener.step()
    second = core.submit(prompt(40, first=1), greedy(2))
    listener.run()
    assert runner.steps == [[10], [1, 15], [1, 15], [1, 10], [1, 1], [1]]
    assert tuple(listener.reply(first).token_ids) == reply_to(prompt(10), 6)
    assert tuple(listener.reply(second).token_ids) == reply_to(prompt(40, first=1), 2)


def test_one_step_computes_several_prompts(runner):
    core = make_core(runner, max_num_batched_tokens=64)
    listener = Listener(core)
    for first in range(3):
        core.submit(prompt(25, first), greedy(1))
    listener.run()
    assert runner.steps == [[25, 25, 14], [11]]


def test_the_budget_is_never_exceeded_and_never_wasted_while_prompts_wait(runner):
    core = make_core(runner, num_blocks=200, max_num_batched_tokens=32)
    listener = Listener(core)
    for first in range(12):
        core.submit(prompt(50, first), greedy(8))
    while core.snapshot().num_waiting:
        listener.step()
        assert sum(runner.steps[-1]) == 32
    listener.run()
    assert max(sum(step) for step in runner.steps) == 32


def test_a_prompt_for_which_nothing_is_left_of_the_budget_takes_no_blocks_yet(runner):
    core = make_core(runner, max_num_batched_tokens=16)
    listener = Listener(core)
    core.submit(prompt(16), greedy(1))
    core.submit(prompt(16, first=1), greedy(1))
    listener.step()
    assert (core.snapshot().num_waiting, core.snapshot().num_referenced) == (1, 0)
    listener.run()
    assert runner.steps == [[16], [16]]


# Decodes first, nobody starves


def test_decodes_go_first_and_a_prompt_gets_what_they_leave(runner):
    core = make_core(runner, max_num_batched_tokens=8)
    listener = Listener(core)
    decoding = [core.submit(prompt(2, first), greedy(20)) for first in range(3)]
    listener.step()
    core.submit(prompt(24, first=9), greedy(1))
    run_steps(listener, 5)
    assert runner.steps == [[2, 2, 2], *[[1, 1, 1, 5]] * 4, [1, 1, 1, 4]]
    assert [len(listener.reply(request_id).token_ids) for request_id in decoding] == [6, 6, 6]


def test_where_the_budget_is_too_small_for_all_decodes_they_take_turns(runner):
    core = make_core(runner, max_num_batched_tokens=2)
    listener = Listener(core)
    request_id = core.submit([7], greedy(40, n=3))
    run_steps(listener, 20)
    lengths = [len(listener.reply(request_id, sample).token_ids) for sample in range(3)]
    assert sum(lengths) == 3 + 19 * 2
    assert max(lengths) - min(lengths) <= 1
    listener.run()
    for sample in range(3):
        assert tuple(listener.reply(request_id, sample).token_ids) == reply_to([7], 40)


def test_a_prompt_is_served_while_decodes_could_take_the_whole_budget(runner):
    core = make_core(runner, max_num_batched_tokens=2)
    listener = Listener(core)
    core.submit([7], greedy(40, n=3))
    listener.step()
    late = core.submit(prompt(6, first=9), greedy(1))
    run_steps(listener, 8)
    assert runner.steps[1:] == [[1, 1]] * 8
    assert len(listener.reply(late).token_ids) == 1


def test_an_eighth_of_the_budget_is_kept_for_prompts(runner):
    core = make_core(runner, max_num_batched_tokens=24)
    listener = Listener(core)
    core.submit([7], greedy(3, n=24))
    listener.step()
    core.submit(prompt(9, first=9), greedy(1))
    listener.step()
    assert runner.steps == [[1], [*[1] * 21, 3]]


def test_a_budget_of_one_token_is_a_replys_before_it_is_a_prompts(runner):
    core = make_core(runner, max_num_batched_tokens=1)
    listener = Listener(core)
    first = core.submit([7], greedy(3))
    listener.step()
    second = core.submit(prompt(4, first=9), greedy(1))
    run_steps(listener, 2)
    assert listener.reply(first).finish_reason == "length"
    run_steps(listener, 4)
    assert listener.reply(second).finish_reason == "length"


def test_a_long_prompt_is_served_while_short_ones_keep_coming(runner):
    core = make_core(runner, max_num_batched_tokens=8)
    listener = Listener(core)
    long = core.submit(prompt(64), greedy(2))
    for number in range(40):
        core.submit([1 + number % 40] * 4, greedy(2))
        listener.step()
    assert listener.reply(long).finish_reason == "length"
    listener.run()


def test_one_that_needs_many_blocks_is_not_overtaken_for_ever():
    core = make_core(num_blocks=8)
    listener = Listener(core)
    core.submit(prompt(48, first=1), greedy(10))
    listener.step()
    large = core.submit(prompt(100, first=2), greedy(2))  # 7 blocks, all there are
    for number in range(60):
        core.submit([3 + number % 40] * 20, greedy(4))
        listener.step()
        if listener.reply(large).finish_reason:
            break
    assert listener.reply(large).finish_reason == "length"
    assert tuple(listener.reply(large).token_ids) == reply_to(prompt(100, first=2), 2)


def test_first_come_first_served():
    core = make_core(max_num_seqs=2)
    listener = Listener(core)
    requests = [core.submit(prompt(5, first), greedy(3)) for first in range(6)]
    order = []
    while core.has_unfinished:
        order += [delta.request_id for delta in listener.step() if delta.finish_reason]
    assert [sorted(order[i : i + 2]) for i in (0, 2, 4)] == [requests[0:2], requests[2:4], requests[4:6]]


# Places


def test_no_more_sequences_run_than_there_are_places(runner):
    core = make_core(runner, max_num_seqs=3)
    listener = Listener(core)
    for first in range(8):
        core.submit(prompt(5, first), greedy(4))
    while core.has_unfinished:
        listener.step()
        assert core.snapshot().num_running <= 3
    assert max(len(step) for step in runner.steps) == 3


def test_each_of_n_replies_takes_a_place_from_the_start(runner):
    core = make_core(runner, max_num_seqs=4, max_num_batched_tokens=16)
    listener = Listener(core)
    first = core.submit(prompt(40), greedy(3, n=3))
    second = core.submit(prompt(5, first=1), greedy(3, n=2))
    third = core.submit(prompt(5, first=2), greedy(3))
    # While the first is still one sequence in its prompt, its three places are taken, and the second needs two.
    listener.step()
    assert (core.snapshot().num_running, core.snapshot().num_waiting) == (1, 2)
    run_steps(listener, 2)
    assert (core.snapshot().num_running, core.snapshot().num_waiting) == (3, 2)
    while core.has_unfinished:
        listener.step()
        assert core.snapshot().num_running <= 4
    assert tuple(listener.reply(second, 1).token_ids) == reply_to(prompt(5, first=1), 3)
    assert listener.reply(first, 2).finish_reason == listener.reply(third).finish_reason == "length"


def test_more_replies_than_places_are_refused_with_both_numbers():
    with pytest.raises(InvalidParameter, match=r"n is 5.* 4 "):
        make_core(max_num_seqs=4).submit(prompt(5), greedy(1, n=5))


def test_replies_that_part_stand_beside_the_first_and_before_later_requests():
    core = make_core()
    listener = Listener(core)
    first, second = core.submit(prompt(5), greedy(3, n=3)), core.submit(prompt(5, first=1), greedy(3))
    listener.step()
    running = [(sequence.request_id, sequence.sample) for sequence in core.scheduler.running]
    assert running == [(first, 0), (first, 1), (first, 2), (second, 0)]
    listener.run()


# Each block is computed once


def test_equal_prompts_submitted_together_wait_for_the_first(runner):
    core = make_core(runner, max_num_batched_tokens=32)
    listener = Listener(core)
    requests = [core.submit(prompt(64), greedy(4)) for _ in range(8)]
    listener.run()
    assert {tuple(listener.reply(request_id).token_ids) for request_id in requests} == {reply_to(prompt(64), 4)}
    assert runner.steps[:2] == [[32], [32]]
    # 64 for the first; the last token alone for each of the others; 3 tokens of each reply.
    assert runner.num_tokens == 64 + 7 + 8 * 3
    assert core.snapshot().misses == 64 + 7
    assert core.snapshot().hits == 7 * 63


def test_one_that_waits_for_a_block_holds_up_nobody_behind_it(runner):
    core = make_core(runner)
    listener = Listener(core)
    core.submit(prompt(64), greedy(1))
    core.submit(prompt(64), greedy(1))
    third = core.submit(prompt(10, first=3), greedy(1))
    listener.step()
    assert listener.reply(third).finish_reason == "length"
    listener.run()
    assert runner.steps == [[64, 10], [1]]


def test_without_the_cache_nobody_waits_for_another(runner):
    core = make_core(runner, prefix_caching=False)
    listener = Listener(core)
    core.submit(prompt(20), greedy(1))
    core.submit(prompt(20), greedy(1))
    listener.run()
    assert runner.steps == [[20, 20]]


@pytest.mark.parametrize(
    ("most_steps", "steps"),
    [
        (0, [[17, 33, 49, 65]]),
        (1, [[17], [16, 32, 48]]),
        (2, [[17], [16], [16, 32]]),
        (256, [[17], [16], [16], [16]]),
    ],
)
def test_the_wait_for_another_is_bounded(runner, monkeypatch, most_steps, steps):
    """Each prompt goes on where the one before it ends, so it waits until all before it are computed."""
    monkeypatch.setattr(scheduler_module, "MAX_STEPS_DEFERRED", most_steps)
    core = make_core(runner)
    listener = Listener(core)
    requests = {length: core.submit(prompt(length), greedy(1)) for length in (17, 33, 49, 65)}
    listener.run()
    assert runner.steps == steps
    for length, request_id in requests.items():
        assert tuple(listener.reply(request_id).token_ids) == reply_to(prompt(length), 1)


def test_the_order_of_the_batch_is_decodes_then_prefills(runner):
    core = make_core(runner, max_num_batched_tokens=64)
    listener = Listener(core)
    core.submit(prompt(60, first=1), greedy(9))
    core.submit(prompt(50, first=2), greedy(9))
    listener.step()
    listener.step()
    # The first decodes, the second still has 46 tokens of its prompt to go.
    assert runner.steps == [[60, 4], [1, 46]]

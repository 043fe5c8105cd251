"""Threads that share a step: nothing is left out, nothing is done twice, and nobody waits for who doesn't come."""

import threading

import numpy as np
import pytest

from paged_chat.kernels.cpu.simd import compiled
from paged_chat.kernels.cpu.team import Team, default_threads
from paged_chat.kernels.cpu.work_sharing import items, items_ahead, new_counters
from patience import PATIENCE_S

NUM_STAGES = 6


@compiled()
def count_items(counters, per_claim, num_done):
    """num_done [stages, items] += 1 for each item that this thread does."""
    for stage in range(num_done.shape[0]):
        for item in items(counters, stage, num_done.shape[1], per_claim):
            num_done[stage, item] += 1


@compiled()
def add_neighbours(counters, values):
    """values [stages + 1, items]: each stage needs two items of the one before, whoever did them."""
    num_items = values.shape[1]
    for stage in range(values.shape[0] - 1):
        for item in items(counters, stage, num_items, 1):
            values[stage + 1, item] = values[stage, item] + values[stage, (item + 1) % num_items]


@compiled()
def follow_items(counters, num_done, following):
    """num_done [items] += 1, and following [items] gets what the thread is to do next."""
    for item, after in items_ahead(counters, 0, num_done.shape[0], 1):
        num_done[item] += 1
        following[item] = after


def run_stages(team, seed, num_items=5):
    values = np.zeros((NUM_STAGES + 1, num_items), np.int64)
    values[0] = np.arange(num_items) + seed
    team.run(add_neighbours, new_counters(NUM_STAGES), values)
    return values


def expected_stages(seed, num_items=5):
    values = np.zeros((NUM_STAGES + 1, num_items), np.int64)
    values[0] = np.arange(num_items) + seed
    for stage in range(NUM_STAGES):
        values[stage + 1] = values[stage] + np.roll(values[stage], -1)
    return values


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("per_claim", [1, 3, 200])
@pytest.mark.parametrize("num_items", [0, 1, 2, 7, 100])
def test_each_item_is_done_once(num_threads, per_claim, num_items):
    team = Team(num_threads)
    for _ in range(20):
        counters, num_done = new_counters(NUM_STAGES), np.zeros((NUM_STAGES, num_items), np.int64)
        team.run(count_items, counters, per_claim, num_done)
        np.testing.assert_array_equal(num_done, 1)
        assert (counters[:, 8] == num_items).all()


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_a_stage_begins_when_the_one_before_is_whole(num_threads):
    team = Team(num_threads)
    for seed in range(100):
        np.testing.assert_array_equal(run_stages(team, seed, num_items=13), expected_stages(seed, num_items=13))


def test_two_thousand_small_steps_in_a_row_do_not_mix():
    """A helper that comes late finds a newer step, or one that is complete, and harms neither."""
    team = Team(3)
    results = [run_stages(team, seed) for seed in range(2000)]
    for seed, values in enumerate(results):
        np.testing.assert_array_equal(values, expected_stages(seed))


class SleepsInHelpers:
    """A step that holds every helper until it is told to let go."""

    def __init__(self):
        self.caller = threading.current_thread()
        self.num_asleep = threading.Semaphore(0)
        self.let_go = threading.Event()

    def __call__(self):
        if threading.current_thread() is not self.caller:
            self.num_asleep.release()
            assert self.let_go.wait(PATIENCE_S)


def test_steps_are_complete_without_a_helper_that_never_wakes():
    team, sleep = Team(3), SleepsInHelpers()
    team.run(sleep)
    for _ in range(2):
        assert sleep.num_asleep.acquire(timeout=PATIENCE_S)
    results = [run_stages(team, seed) for seed in range(10)]
    sleep.let_go.set()
    # Now the helpers wake up, find the newest step complete, and help with the next ones.
    results += [run_stages(team, seed) for seed in range(10, 100)]
    for seed, values in enumerate(results):
        np.testing.assert_array_equal(values, expected_stages(seed))


def test_a_team_of_one_has_no_helpers():
    before = threading.active_count()
    np.testing.assert_array_equal(run_stages(Team(1), 3), expected_stages(3))
    assert threading.active_count() == before


@pytest.mark.parametrize(("wished", "expected"), [("3", 3), ("1", 1), ("0", None), ("4,2", None), ("", None)])
def test_the_number_of_threads_is_omps_or_that_of_the_cores(monkeypatch, wished, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", wished)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5}, raising=False)
    assert default_threads() == (expected or 6)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_each_item_comes_once_with_the_one_that_its_thread_does_next(num_threads):
    for num_items in (0, 1, 50):
        num_done, following = np.zeros(num_items, np.int64), np.full(num_items, -2)
        Team(num_threads).run(follow_items, new_counters(1), num_done, following)
        assert num_done.tolist() == [1] * num_items
        after = sorted(following[following >= 0].tolist())
        assert len(set(after)) == len(after)  # nobody prepares what another does
        assert all(after > item for item, after in enumerate(following) if after >= 0)
        # Each thread's last item is followed by nothing.
        assert num_items - len(after) == len(following[following == -1]) <= num_threads
        if num_threads == 1 and num_items:
            assert following.tolist() == [*range(1, num_items), -1]

"""A small run of the simulation behind docs/performance.md: its figures are exact, and grow as the paper's do."""

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parent.parent / "benchmarks" / "sharing_simulation.py"


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("sharing_simulation", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_parallel_sampling_saves_what_follows_from_the_lengths(simulation):
    lengths, count = simulation.ALPACA, 12
    for n in (2, 4):
        steps = simulation.parallel_sampling(lengths, n, count, seed=1)
        alone = saved = 0
        for num_prompt, num_reply in lengths.requests(count, seed=1):
            alone += n * sum(-(-(num_prompt + i) // 16) for i in range(1, num_reply + 1))
            saved += (n - 1) * (num_prompt // 16) * num_reply
        assert (steps.num_alone, steps.num_alone - steps.num_together) == (alone, saved)


def test_the_figures_of_a_small_run(simulation):
    small = [
        round(100 * simulation.parallel_sampling(lengths, n, 10, seed=1).share_saved, 1)
        for lengths in (simulation.ALPACA, simulation.SHAREGPT)
        for n in (2, 4)
    ]
    assert small == [3.0, 4.4, 9.8, 14.6]


def test_beams_save_more_than_replies(simulation):
    beams = simulation.beam_search(simulation.ALPACA, 4, 4, seed=1)
    replies = simulation.parallel_sampling(simulation.ALPACA, 4, 4, seed=1)
    assert (beams.num_alone, beams.num_together) == (3524, 1471)
    assert beams.share_saved > 3 * replies.share_saved

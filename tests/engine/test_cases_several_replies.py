"""Faults that users of other systems met, each as a story: several replies to one prompt."""

import pytest

from case_prompts import KERNELS, PROMPT
from replies import all_steps, ask, drawn, greedy, ids_of, reply_ids


@pytest.mark.parametrize("kernels", KERNELS)
def test_e8_four_seeded_replies_differ_and_each_is_that_of_its_own_seed(make_engine, kernels):
    engine = make_engine(kernels=kernels)
    output = ask(engine, PROMPT[:20], drawn(20, temperature=1.2, seed=42, n=4))
    replies = [sample.token_ids for sample in output.samples]
    assert len(set(replies)) == 4
    alone = make_engine(kernels=kernels, prefix_caching=False)
    assert replies == [reply_ids(alone, PROMPT[:20], drawn(20, temperature=1.2, seed=42 + i)) for i in range(4)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_e10_one_block_is_copied_for_each_reply_that_parts_and_none_for_the_last(make_engine, temperature):
    engine = make_engine()
    output = ask(engine, PROMPT[:20], drawn(40, temperature=temperature, seed=10, n=3))
    assert engine.snapshot().copies == 2
    alone = make_engine(prefix_caching=False)
    assert [sample.token_ids for sample in output.samples] == [
        reply_ids(alone, PROMPT[:20], drawn(40, temperature=temperature, seed=10 + i)) for i in range(3)
    ]


def test_e10_the_prompt_is_computed_and_stored_once(make_engine):
    engine = make_engine()
    engine.submit(PROMPT[:100], drawn(5, temperature=1.0, seed=1, n=8))
    engine.step()
    snapshot = engine.snapshot()
    assert (snapshot.num_referenced, snapshot.num_shared, max(snapshot.ref_counts)) == (7, 7, 8)
    assert (snapshot.hits, snapshot.misses) == (0, 100)


@pytest.mark.parametrize("length", [20, 32])
def test_e11_eight_replies_with_two_free_blocks(make_engine, length):
    engine = make_engine(num_blocks=5)  # four blocks: two for the prompt, two free
    output = ask(engine, PROMPT[:length], drawn(24, temperature=1.2, seed=5, n=8))
    alone = make_engine(prefix_caching=False)
    assert [sample.token_ids for sample in output.samples] == [
        reply_ids(alone, PROMPT[:length], drawn(24, temperature=1.2, seed=5 + i)) for i in range(8)
    ]
    assert engine.snapshot().num_referenced == 0


def test_e11_eight_replies_beside_one_that_leaves_two_free_blocks(make_engine):
    engine = make_engine(num_blocks=10)
    first = engine.submit(PROMPT[200:300], greedy(12))  # seven of nine blocks
    deltas = engine.step()
    second = engine.submit(PROMPT[:20], drawn(20, temperature=1.2, seed=5, n=8))
    deltas += all_steps(engine)
    alone = make_engine(prefix_caching=False)
    assert ids_of(deltas, first) == reply_ids(alone, PROMPT[200:300], greedy(12))
    for i in range(8):
        expected = reply_ids(alone, PROMPT[:20], drawn(20, temperature=1.2, seed=5 + i))
        assert ids_of(deltas, second, sample=i) == expected

"""A block looked at closely, in each state it can be in. Blocks hold 4 tokens."""

import pytest

from paged_chat.engine.cache.block_detail import BlockDetail
from paged_chat.engine.errors import InvalidParameter
from slot_runner import Listener, SlotRunner, greedy, make_core, reply_to

PROMPT = list(range(10, 19))  # two blocks and one token


@pytest.fixture
def core():
    return make_core(SlotRunner(4), num_blocks=16, block_size=4)


def test_a_free_block_holds_nothing(core):
    detail = core.block(5)
    assert (detail.ref_count, detail.token_ids, detail.first_position, detail.holders) == (0, (), None, ())
    assert detail.block_hash is None


def test_a_published_block_says_where_it_stands_and_who_holds_it(core):
    listener = Listener(core)
    request_id = core.submit(PROMPT, greedy(4, n=2))
    listener.step()
    second = core.block(2)
    assert second.token_ids == tuple(PROMPT[4:8])
    assert (second.first_position, second.parent_id, second.ref_count) == (4, 1, 2)
    assert second.holders == ((request_id, 0), (request_id, 1))
    assert len(second.block_hash) == 32
    assert core.block(1).parent_id is None


def test_a_block_that_is_being_written_shows_what_is_computed(core):
    listener = Listener(core)
    request_id = core.submit(PROMPT, greedy(4))
    listener.step()
    third = core.block(3)
    assert third.token_ids == (PROMPT[8],)
    assert (third.first_position, third.parent_id, third.block_hash) == (8, 2, None)
    assert third.holders == ((request_id, 0),)


def test_a_prompts_first_block_is_seen_while_it_is_written_with_the_one_who_writes_it_alone():
    core = make_core(SlotRunner(4), num_blocks=16, block_size=4, max_num_batched_tokens=8)
    listener = Listener(core)
    short = core.submit([9, 9], greedy(9))
    listener.step()
    long = core.submit(PROMPT, greedy(9))
    listener.step()
    own = core.block(1)
    assert own.token_ids == (9, 9, *reply_to([9, 9], 1))
    assert (own.first_position, own.parent_id, own.holders) == (0, None, ((short, 0),))
    assert (core.block(2).holders, core.block(4).holders) == (((long, 0),), ((long, 0),))
    # Of its nine tokens seven are computed; the last block is held and empty.
    assert [core.block(block_id).token_ids for block_id in (2, 3, 4)] == [tuple(PROMPT[:4]), tuple(PROMPT[4:7]), ()]


def test_without_the_cache_a_whole_block_shows_its_own_tokens_alone():
    core = make_core(SlotRunner(4), num_blocks=16, block_size=4, prefix_caching=False)
    listener = Listener(core)
    core.submit(PROMPT, greedy(4))
    listener.step()
    assert [core.block(block_id).token_ids for block_id in (1, 2, 3)] == [
        tuple(PROMPT[:4]),
        tuple(PROMPT[4:8]),
        (PROMPT[8],),
    ]


def test_others_learn_only_how_many_hold_a_block(core):
    listener = Listener(core)
    core.submit(PROMPT, greedy(4), salt="ann")
    listener.step()
    whole = core.block(2, salt="ann")
    assert whole == core.block(2)
    assert (whole.token_ids, whole.is_withheld) == (tuple(PROMPT[4:8]), False)
    assert core.block(2, salt="bob") == BlockDetail(
        block_id=2,
        ref_count=1,
        token_ids=(),
        first_position=None,
        block_hash=None,
        parent_id=None,
        holders=(),
        root=whole.root,
        is_withheld=True,
    )
    assert not core.block(9, salt="bob").is_withheld  # it holds nothing
    # The third is still being written.
    assert core.block(3, salt="ann").token_ids == (PROMPT[8],)
    assert core.block(3, salt="bob") == core.block(3).without_contents()


def test_a_cached_block_keeps_its_tokens_when_nobody_holds_it(core):
    listener = Listener(core)
    core.submit(PROMPT, greedy(1))
    listener.run()
    assert core.block(1).ref_count == 0
    assert core.block(1).token_ids == tuple(PROMPT[:4])
    second = core.block(2)
    assert (second.first_position, second.parent_id, second.root, second.holders) == (4, 1, core.root(""), ())
    assert core.snapshot().token_counts[:5] == (0, 4, 4, 1, 0)


@pytest.mark.parametrize("block_id", [-1, 0, 16])
def test_an_id_that_the_pool_has_not_is_refused(core, block_id):
    with pytest.raises(InvalidParameter, match="block ids go from 1 to 15"):
        core.block(block_id)


def test_steps_that_are_mostly_prompts_are_timed(core):
    listener = Listener(core)
    core.submit(PROMPT, greedy(4))
    listener.step()
    after_prompt = core.snapshot()
    listener.run()
    assert after_prompt.prefill_tokens == 9
    assert after_prompt.prefill_s > 0
    assert core.snapshot().prefill_tokens == 9

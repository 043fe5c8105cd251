"""What sharing saves, in words; and that what is worked out from stored replies is what the engine counted."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from paged_chat.app.cache_view.search_words import search_words
from paged_chat.app.cache_view.sharing import sharing_of_replies, sharing_of_request
from paged_chat.app.chats import Message, ReplyVariant
from paged_chat.app.service.reply_cost import cost_of
from paged_chat.engine.request import BeamPreview, BlockUse, SamplingParams
from slot_runner import SlotRunner, ask_all, make_core

SEVERAL = SamplingParams(n=8, temperature=1.0, seed=5, max_tokens=64)
ALIKE = SamplingParams(n=3, temperature=0.0, max_tokens=40)


def replies_to(num_prompt_tokens: int, params: SamplingParams = SEVERAL):
    prompt = [i * 7 % 50 for i in range(num_prompt_tokens)]
    return ask_all(make_core(SlotRunner(), num_blocks=512), prompt, params)


def test_eight_replies_to_800_tokens_take_87_per_cent_fewer_prompt_blocks():
    """50 blocks hold the prompt once; each reply has 63 tokens computed, in 4 blocks of its own."""
    last = max((reply.stats.block_use for reply in replies_to(800)), key=lambda use: use.num_blocks)
    assert last == BlockUse(num_blocks=50 + 8 * 4, num_blocks_alone=8 * 54, num_sequences=8)
    num_prompt_blocks, num_alone = last.num_blocks - 8 * 4, 8 * 50
    assert 1 - num_prompt_blocks / num_alone == 0.875
    assert str(sharing_of_request(last)) == "8 replies used 82 blocks instead of 432"


def test_a_prompt_that_ends_inside_a_block_is_copied_by_all_writers_but_the_last():
    [first, *_] = sorted((r.stats.block_use for r in replies_to(810)), key=lambda use: -use.num_blocks)
    # 50 full blocks once; each reply's own: the block of the prompt's last 10 tokens, and 63 - 6 tokens in 4 more.
    assert first == BlockUse(num_blocks=50 + 8 * 5, num_blocks_alone=8 * 55, num_sequences=8)


def stored(replies):
    """The replies as a chat has them."""
    return [
        Message(
            id=sample,
            chat_id="c",
            parent_id=0,
            role="assistant",
            text="",
            token_ids=tuple(reply.token_ids),
            cost=cost_of(reply.stats, sample),
            created_at=datetime.now(UTC),
        )
        for sample, reply in enumerate(replies, 1)
    ]


@pytest.mark.parametrize("num_prompt_tokens", [16, 17, 100, 800, 810])
@pytest.mark.parametrize("params", [SEVERAL, ALIKE], ids=["drawn", "all alike"])
def test_stored_replies_tell_the_same(num_prompt_tokens, params):
    replies = replies_to(num_prompt_tokens, params)
    counted = max((reply.stats.block_use for reply in replies), key=lambda use: use.num_sequences)
    assert sharing_of_replies(stored(replies)) == sharing_of_request(counted)


def test_replies_of_a_comparison_share_under_one_system_prompt():
    first, second, *_ = stored(replies_to(100))
    kind, terse = ReplyVariant("kind", "Be kind."), ReplyVariant("terse", "Be terse.")
    assert sharing_of_replies([replace(first, variant=kind), replace(second, variant=terse)]) is None
    together = sharing_of_replies([replace(first, variant=kind), replace(second, variant=kind)])
    # 100 tokens fill 6 blocks, and 163 tokens take 11.
    assert str(together) == "2 replies used 16 blocks instead of 22"


def test_nothing_is_said_where_nothing_is_shared():
    assert sharing_of_request(None) is None
    alone = replies_to(40, SamplingParams(max_tokens=3))
    assert (alone[0].stats.block_use, sharing_of_replies(stored(alone)), sharing_of_replies([])) == (None, None, None)
    short = replies_to(9, SamplingParams(n=2, temperature=1.0, seed=1, max_tokens=3))
    assert sharing_of_replies(stored(short)) is None


def test_nothing_is_said_while_one_is_written():
    first, second, *_ = stored(replies_to(100))
    assert sharing_of_replies([first, replace(second, status="draft")]) is None
    assert sharing_of_replies([first, replace(second, cost=None)]) is None


def test_a_single_block_is_called_so():
    assert str(sharing_of_request(BlockUse(1, 2, 2))) == "2 replies used 1 block instead of 2"


def test_beams_are_called_so():
    assert str(sharing_of_request(BlockUse(10, 28, 4), beam_width=4)) == "4 beams used 10 blocks instead of 28"


def test_a_search_is_told_by_the_end_of_its_best_beam():
    assert search_words(BeamPreview("r1", 4, (5,), "", -1.0)) == "4 beams · 1 token"
    words = search_words(BeamPreview("r1", 4, (5, 6), "x" * 200, -1.0))
    assert words == "4 beams · 2 tokens · …" + "x" * 160

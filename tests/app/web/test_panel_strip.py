"""The strip under a reply, as it is sent. Blocks hold 16 tokens."""

from chat_samples import cost
from paged_chat.app.web.panel_strip import StripView, strip_view


def test_found_copied_and_computed_blocks_in_order_the_last_one_in_part():
    assert strip_view(cost(37, 3, 60)) == StripView(
        runs=(("reused", 2), ("copied", 1), ("computed", 4)),
        is_partial=True,
        words="reused 2 blocks, copied 1, computed 4",
    )


def test_a_last_block_that_is_full():
    assert strip_view(cost(0, 31, 2)) == StripView((("computed", 2),), False, "computed 2 blocks")


def test_where_nothing_was_computed_there_is_no_strip():
    assert strip_view(None) is None
    assert strip_view(cost(0, 0, 0)) is None

"""A reply's blocks, from its counts alone. Blocks hold 16 tokens."""

from dataclasses import replace

import pytest

from chat_samples import cost
from paged_chat.app.cache_view.block_strip import strip_of
from paged_chat.app.service.reply_cost import cost_words, rate_words


@pytest.mark.parametrize(
    ("num_cached", "num_computed", "num_generated", "letters", "is_partial"),
    [
        (0, 16, 1, "h", False),  # the one token that was written is in no block
        (0, 16, 2, "hh", True),
        (32, 16, 17, "sshh", False),
        (37, 3, 20, "ssyh", True),
        (47, 1, 1, "ssy", False),
        (48, 0, 4, "sssh", True),  # a sibling of the first reply, which computed the prompt for all
        (0, 0, 0, "", False),
    ],
)
def test_the_strip_of_a_reply(num_cached, num_computed, num_generated, letters, is_partial):
    strip = strip_of(cost(num_cached, num_computed, num_generated), 16)
    assert (strip.letters, strip.num_blocks, strip.is_partial) == (letters, len(letters), is_partial)


def test_a_strip_says_what_it_shows():
    assert str(strip_of(cost(37, 3, 60), 16)) == "reused 2 blocks, copied 1, computed 4"
    assert str(strip_of(cost(0, 3, 2), 16)) == "computed 1 block"
    assert strip_of(cost(37, 3, 60)).short_letters == "2s y 4h"


def test_the_line_under_a_reply():
    whole = cost(1212, 31, 9, ttft_ms=47.6, tokens_per_s=118.4)
    assert cost_words(whole, "smollm2-135m") == "smollm2-135m · 1,212 reused · 31 computed · TTFT 48 ms · 118 tok/s"
    assert cost_words(cost(0, 5, 0)) == "0 reused · 5 computed"
    guessed = replace(whole, num_accepted_tokens=4)
    assert cost_words(guessed) == "1,212 reused · 31 computed · TTFT 48 ms · 118 tok/s · 4 guessed"


def test_a_slow_reply_has_a_rate_too():
    assert [rate_words(rate) for rate in (1180.4, 118.2, 9.96, 8.24, 0.366, 0.04)] == [
        "1,180", "118", "10", "8.2", "0.37", "0.04"
    ]  # fmt: skip

"""Thinking and answer."""

import pytest

from paged_chat.tui.thinking import ThoughtReply, split_thinking


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris.", ThoughtReply("", "Paris.")),
        ("<think>Capital?</think>\n\nParis.", ThoughtReply("Capital?", "Paris.")),
        ("\n<think>\nCapital", ThoughtReply("Capital", "", is_open=True)),
        ("Capital?</think>Paris.", ThoughtReply("Capital?", "Paris.")),
        ("The tag <think> opens, </think> closes.", ThoughtReply("", "The tag <think> opens, </think> closes.")),
    ],
)
def test_splitting(text, expected):
    assert split_thinking(text) == expected

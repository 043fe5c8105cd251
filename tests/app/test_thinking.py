"""A reply's thinking, apart from its answer."""

import pytest

from paged_chat.app.thinking import Thinking, split_thinking


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("Paris.", None, "Paris."),
        ("<think>Capital?</think>\n\nParis.", Thinking("Capital?", False), "Paris."),
        ("\n<think>\nCapital", Thinking("Capital", True), ""),
        ("Capital?</think>Paris.", Thinking("Capital?", False), "Paris."),
        ("<think>\n\n</think>\n\nParis.", None, "Paris."),
        ("The tag <think> opens, </think> closes.", None, "The tag <think> opens, </think> closes."),
    ],
)
def test_splitting(text, thinking, answer):
    assert split_thinking(text) == (thinking, answer)

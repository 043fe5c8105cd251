"""Code in colours, for as long as that takes no time worth speaking of."""

import re
from html import unescape

import pytest

from paged_chat.app.web import highlight as module
from paged_chat.app.web.highlight import MAX_COLOURED_LENGTH, highlight


def test_each_token_of_a_known_language_has_its_colour_and_others_are_escaped():
    assert highlight("x = 1", "python") == (
        '<span class="hl-n">x</span> <span class="hl-o">=</span> <span class="hl-mi">1</span>\n'
    )
    assert highlight("a < b", "brainfog") == "a &lt; b"


def test_what_is_too_long_or_takes_too_long_is_escaped_without_colours(monkeypatch):
    assert highlight("1" * (MAX_COLOURED_LENGTH + 1), "python") == "1" * (MAX_COLOURED_LENGTH + 1)
    monkeypatch.setattr(module, "MAX_LEXING_S", -1.0)
    assert highlight("1 < 2", "c") == "1 &lt; 2"


@pytest.mark.parametrize(
    ("language", "piece"), [("css", "("), ("html", "<"), ("go", '"'), ("matlab", "\n"), ("c++", "<")]
)
def test_texts_made_to_take_long_end_and_are_shown_whole(language, piece):
    text = piece * MAX_COLOURED_LENGTH
    assert unescape(re.sub(r"<[^>]+>", "", highlight(text, language))).rstrip("\n") == text.rstrip("\n")

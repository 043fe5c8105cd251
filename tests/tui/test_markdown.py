"""Markdown as lines of a terminal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_chat.tui.markdown.blocks import Code, code_blocks, parse
from paged_chat.tui.markdown.growing import GrowingMarkdown
from paged_chat.tui.markdown.lines import MAX_HIGHLIGHTED, whole_lines
from paged_chat.tui.plain_text import plain


def shown(text, width=40):
    return [line.plain.rstrip() for line in whole_lines(text, width)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# Title\n\ntext **bold**", ["Title", "", "text bold"]),
        ("one\ntwo  \nthree", ["one", "two", "three"]),
        ("- a\n  - b\n- c", ["• a", "  • b", "• c"]),
        ("9. a\n10. b\n\n    c", [" 9. a", "10. b", "", "    c"]),
        ("> said\n>\n> - so", ["▌ said", "▌", "▌ • so"]),
        ("[here](https://a.b) <https://c.d>", ["here (https://a.b) https://c.d"]),
        ("![cat](https://a.b/c.png)", ["cat (https://a.b/c.png)"]),
        ("<b>html</b> is &amp; shown", ["<b>html</b> is & shown"]),
        ("***", ["─" * 40]),
        ("|a|bb|\n|-:|--|\n|1|世界|", ["a │ bb", "──┼─────", "1 │ 世界"]),
        ("", []),
    ],
)
def test_blocks(text, lines):
    assert shown(text) == lines


def test_code_has_its_language_and_a_word_that_copies_it_above():
    head, *code = shown("```python\nif x:\n\tprint(1)\n```")
    assert head.split() == ["python", "copy"]
    assert code == [" if x:", "     print(1)"]
    assert code_blocks("a\n\n- b\n  ```\n  in a list\n  ```\n\nb\n\n    indented") == ["in a list", "indented"]


@pytest.mark.parametrize(
    "broken",
    [
        "```python\nnever closed",
        "**never closed",
        "| a | b |\n|---|",
        "[link](",
        "> > > ",
        "1.\n2.",
        "- [ ] task",
        "\x00",
    ],
)
def test_what_is_broken_is_shown(broken):
    assert shown(plain(broken))


def test_a_table_that_is_too_wide_gives_way():
    table = "|a|b|c|\n|-|-|-|\n|one two three|four five six|seven eight|"
    assert max(len(line) for line in shown(table, 30)) <= 30
    assert shown(table, 14)[:2] == ["a: one two", "three"]


def test_characters_that_a_terminal_would_obey_are_pictures():
    assert plain("a\x1b[2Jb\r\nc\td\x7f\x9b\u202etxt") == "a␛[2Jb\nc\td␡\ufffd\ufffdtxt"


def test_ten_thousand_lines_of_code_are_lines_like_others():
    text = "```python\n" + "\n".join(f"x = {i}" for i in range(10_000)) + "\n```"
    assert len(text) > MAX_HIGHLIGHTED
    assert len(whole_lines(text, 80)) == 10_001
    assert shown(text, 80)[-1] == " x = 9999"


PIECES = [
    "# h\n",
    "text ",
    "**",
    "`",
    "```\n",
    "```py\n",
    "- ",
    "  - ",
    "1. ",
    "> ",
    "|a|b|\n",
    "|-|-|\n",
    "\n",
    "\n\n",
]
PIECES += ["世界 ", "👩‍👩‍👧 ", "שלום ", "    code\n", "[a](b)", "---\n", "\t", "\n", "1", ".", "-", "*"]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(PIECES), max_size=30), st.integers(12, 60))
def test_however_a_text_comes_its_lines_are_those_of_the_whole(pieces, width):
    growing = GrowingMarkdown()
    text = ""
    for piece in pieces:
        text += piece
        grown = growing.lines(text, width)
        assert [line.plain for line in grown] == [line.plain for line in whole_lines(text, width)]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_no_line_is_wider_than_the_terminal(pieces):
    assert all(line.cell_length <= 40 for line in whole_lines("".join(pieces), 40))


def test_parsing_names_the_line_where_a_block_begins():
    assert [(block.line, type(block.block)) for block in parse("a\n\n```\nb\n```")][1] == (2, Code)

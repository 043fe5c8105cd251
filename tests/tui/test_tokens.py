"""A reply token by token in the terminal, and a branch from one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.widgets import Label, OptionList

from paged_chat.app.token_view.reply_tokens import ReplyToken
from paged_chat.app.token_view.token_piece import TokenPiece
from paged_chat.tui.screens.tokens_screen import TokensScreen
from paged_chat.tui.token_lines import lines_of
from paged_chat.tui.widgets.token_text import TokenText
from terminal import open_terminal

ODDS = {"c": {"c": 0.5, "b": 0.25, "r": 0.125}, "t": {"s": 0.75, "t": 0.125}}


@pytest.fixture(autouse=True)
def odds(desk):
    desk.fake.odds |= ODDS


def shown(terminal, name):
    return str(terminal.app.screen.query_one(name, Label).render())


def choices(terminal):
    alternatives = terminal.app.screen.query_one(OptionList)
    return [str(alternatives.get_option_at_index(i).prompt).split() for i in range(alternatives.option_count)]


async def open_tokens(terminal):
    await terminal.keys("f6")
    await terminal.until(lambda: isinstance(terminal.app.screen, TokensScreen))
    await terminal.until(lambda: shown(terminal, "#place"))


async def test_a_reply_is_walked_token_by_token_and_branches_where_one_is_chosen(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/alternatives 2")
        await terminal.keys("enter")
        await terminal.send("pet?", "a cat")
        await open_tokens(terminal)
        assert shown(terminal, "#place").startswith("token 1 of 6, 100 %")
        await terminal.keys("right", "right")
        assert shown(terminal, "#place").startswith("token 3 of 6, 50 %")
        assert [(words[0], words[-2:]) for words in choices(terminal)] == [
            ("50", ["c", "written"]),
            ("25", ["━━━━━", "b"]),
        ]
        await terminal.until(lambda: "computes" in shown(terminal, "#cost"))
        assert shown(terminal, "#cost").startswith("“b” in place of “c”: reuses 1 block and 7 tokens, computes 1 token")
        desk.fake.enqueue("ird")
        await terminal.keys("enter", "enter")
        await terminal.until(lambda: terminal.texts == ["pet?", "a bird"] and terminal.is_idle)
        assert len(terminal.screen.messages.siblings(terminal.path[1].id)) == 2


async def test_esc_goes_back_step_by_step_and_changes_nothing(desk):
    async with open_terminal(desk) as terminal:
        await terminal.write("/alternatives 2")
        await terminal.keys("enter")
        await terminal.send("pet?", "a cat")
        await open_tokens(terminal)
        await terminal.keys("end", "left", "enter")
        assert terminal.app.screen.query_one(OptionList).has_focus
        await terminal.keys("escape")
        assert terminal.app.screen.query_one(TokenText).has_focus
        await terminal.keys("escape")
        assert terminal.app.screen is terminal.screen
        assert terminal.texts == ["pet?", "a cat"]


async def test_alternatives_that_were_not_kept_are_worked_out_for_a_token(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("pet?", "a cat")
        await open_tokens(terminal)
        assert "weren't kept" in str(terminal.app.screen.query("Label").first(Label).render())
        await terminal.keys("right", "right")
        assert choices(terminal) == []
        await terminal.until(lambda: "computes 1 token" in shown(terminal, "#cost"))
        assert shown(terminal, "#cost").startswith("Enter: work out its alternatives: reuses 1 block")
        desk.fake.enqueue("c")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.app.screen.query_one(OptionList).has_focus)
        assert [words[0] for words in choices(terminal)] == ["50", "25", "13"]
        assert shown(terminal, "#place") == "token 3 of 6, 50 %"
        desk.fake.enqueue("at")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.texts == ["pet?", "a bat"] and terminal.is_idle)


async def test_without_a_reply_there_are_no_tokens(desk):
    async with open_terminal(desk) as terminal:
        await terminal.keys("f6")
        await terminal.until(lambda: terminal.notices)
        assert terminal.notices == ["there is no reply yet whose tokens could be shown"]


async def test_arrows_up_and_down_go_to_the_token_that_stands_there(desk):
    async with open_terminal(desk, size=(60, 24)) as terminal:
        await terminal.send("go", "ab\n\nwxyz")
        await open_tokens(terminal)
        text = terminal.app.screen.query_one(TokenText)
        await terminal.keys("right", "down")
        assert text.token.piece.text == "\n"
        await terminal.keys("down", "right")
        assert text.token.piece.text == "x"
        await terminal.keys("up", "up")
        assert text.token.piece.text == "a"


# Lines


def tokens(*texts):
    return [ReplyToken(index, TokenPiece(index, text), None) for index, text in enumerate(texts)]


def drawn(*texts, width):
    return ["|".join(part.text for part in line) for line in lines_of(tokens(*texts), width)]


def test_words_stay_whole_and_a_line_feed_ends_a_line():
    assert drawn("The", " cat", "s", " sat", ".\n", "\n", "Go", width=9) == ["The| cat|s", " sat|.⏎", "⏎", "Go"]


def test_a_word_longer_than_a_line_is_cut():
    assert drawn("ab", " abcdefghij", "k", width=4) == ["ab", " abc", "defg", "hij|k"]


def test_wide_characters_take_two_columns():
    assert drawn("日本", "語", "で", width=5) == ["日本", "語|で"]


@settings(deadline=None)
@given(st.lists(st.text("ab 日\n\té", max_size=9), max_size=12), st.integers(2, 14))
def test_every_token_stands_once_and_no_line_is_too_long(texts, width):
    lines = lines_of(tokens(*texts), width)
    assert all(sum(part.width for part in line) <= width for line in lines)
    for line in lines:
        assert [part.column for part in line] == [sum(cell_len(one.text) for one in line[:i]) for i in range(len(line))]
    parts = [part for line in lines for part in line]
    assert [part.index for part in parts] == sorted(part.index for part in parts)
    for index, token in enumerate(tokens(*texts)):
        said = "".join(part.text for part in parts if part.index == index)
        assert said == (token.piece.flowing.replace("\n", "").replace("\t", "   ") or " ")

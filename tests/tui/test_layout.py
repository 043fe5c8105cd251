"""Where things stand, from 60 columns up, and what covers what."""

import pytest
from textual.color import Color
from textual.widgets._toast import Toast

from paged_chat.app.cache_view.block_view import BlockState
from paged_chat.tui.block_colours import letter_style
from paged_chat.tui.widgets.cache_panel import CachePanel
from paged_chat.tui.widgets.chat_list import ChatList
from paged_chat.tui.widgets.why_not_more import WhyNotMore
from terminal import open_terminal


def shown(terminal):
    return [widget.display for widget in (terminal.screen.query_one(ChatList), terminal.screen.query_one(CachePanel))]


@pytest.mark.parametrize(("width", "expected"), [(60, [False, False]), (109, [False, False]), (110, [True, True])])
async def test_side_columns_stand_beside_a_wide_conversation_only(desk, width, expected):
    async with open_terminal(desk, size=(width, 24)) as terminal:
        assert shown(terminal) == expected


async def test_a_side_column_opens_over_a_narrow_conversation_and_esc_closes_it(desk):
    async with open_terminal(desk, size=(80, 24)) as terminal:
        await terminal.send("hello", "hi")
        width = terminal.conversation.region.width
        await terminal.keys("ctrl+b")
        assert shown(terminal) == [True, False]
        assert terminal.conversation.region.width == width
        await terminal.keys("ctrl+k")
        assert shown(terminal) == [False, True]
        await terminal.keys("escape")
        assert shown(terminal) == [False, False]
        assert terminal.prompt.has_focus


async def test_choosing_a_chat_closes_the_list_that_lies_over_it(desk):
    async with open_terminal(desk, size=(80, 24)) as terminal:
        await terminal.send("hello", "hi")
        await terminal.keys("ctrl+n", "ctrl+b", "down", "enter")
        await terminal.until(lambda: terminal.texts == ["hello", "hi"])
        assert shown(terminal) == [False, False]


async def test_what_was_toggled_stays_so_when_the_terminal_changes_its_size(desk):
    async with open_terminal(desk, size=(120, 40)) as terminal:
        await terminal.keys("ctrl+k")
        assert shown(terminal) == [True, False]
        await terminal.pilot.resize_terminal(80, 24)
        await terminal.pilot.pause()
        assert shown(terminal) == [False, False]
        await terminal.pilot.resize_terminal(140, 45)
        await terminal.pilot.pause()
        assert shown(terminal) == [True, False]


async def test_what_was_looked_at_in_a_narrow_terminal_is_there_in_a_wide_one(desk):
    async with open_terminal(desk, size=(80, 24)) as terminal:
        await terminal.keys("ctrl+b", "ctrl+k", "ctrl+k")
        assert shown(terminal) == [False, False]
        await terminal.pilot.resize_terminal(140, 45)
        await terminal.pilot.pause()
        assert shown(terminal) == [True, True]


async def test_at_60_by_20_everything_needed_is_on_the_screen(desk):
    async with open_terminal(desk, size=(60, 20)) as terminal:
        await terminal.send("hello", "# A heading\n\nand text that is long enough to be broken over two lines of it")
        for widget in (terminal.conversation, terminal.prompt):
            assert widget.region.width >= 58
            assert widget.region.height >= 3
            assert widget.region.bottom <= 20


@pytest.mark.parametrize(("size", "num_shown"), [((60, 18), 2), ((80, 24), 2), ((200, 50), 6)])
async def test_notices_never_cover_the_prompt_and_esc_puts_them_away(desk, size, num_shown):
    async with open_terminal(desk, size=size, draws_notices=True) as terminal:

        def shown_notices():
            return [notice for notice in terminal.screen.query(Toast) if notice.parent.display]

        for number in range(8):
            terminal.screen.notify(f"notice {number}: " + "what went wrong, and what can be done about it; " * 4)
        await terminal.until(lambda: len(shown_notices()) == num_shown)
        assert str(shown_notices()[-1].render()).startswith("notice 7: ")
        assert shown_notices()[-1].region.bottom <= terminal.prompt.region.y
        await terminal.write("one line\n" * 5)
        await terminal.until(lambda: shown_notices()[-1].region.bottom <= terminal.prompt.region.y < size[1] - 7)
        await terminal.keys("escape")
        await terminal.until(lambda: not terminal.screen.query(Toast))
        for _ in range(2):
            terminal.screen.notify("notice 7, which was put away, once more")
        await terminal.until(lambda: len(shown_notices()) == 1)


@pytest.mark.parametrize("is_dark", [False, True])
def test_letters_of_blocks_can_be_read_by_day_and_by_night(is_dark):
    styles = [letter_style(state.look, is_dark=is_dark) for state in BlockState]
    assert styles[0] is None
    for style in styles[1:]:
        ink, ground = style.split(" on ")
        assert contrast(ink, ground) > 4.5, style  # what WCAG 2.2 asks for (1.4.3)


def contrast(*colours):
    darker, lighter = sorted(luminance(Color.parse(colour)) for colour in colours)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    """As WCAG 2.2 defines it."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


async def test_on_few_lines_all_of_a_reason_is_told_beside_the_pool(desk):
    async with open_terminal(desk, size=(80, 24)) as terminal:
        await terminal.send("one", "a1")
        await terminal.keys("ctrl+k")
        why = terminal.screen.query_one(WhyNotMore)
        panel = terminal.screen.query_one(CachePanel)
        await terminal.until(lambda: why.region.height > 4 and panel.content_region.contains_region(why.region))

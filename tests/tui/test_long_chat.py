"""A long chat: only a window of it is mounted, and nothing is seen of that."""

import pytest

from long_chat import add_long_chat
from paged_chat.tui.widgets.conversation import FAR, FIRST, NEAR, STEP
from terminal import open_terminal

LONGEST = 20  # lines of a message of the long chat, at most


@pytest.fixture
def chat(desk):
    return add_long_chat(desk.store, 60)


async def open_long_chat(terminal, chat):
    await terminal.screen.open_chat(chat.id)
    await terminal.until(lambda: terminal.conversation.scroll_y >= NEAR * terminal.conversation.size.height)
    await settle(terminal)


async def settle(terminal):
    """Until the window has moved as far as it wants to."""
    await terminal.pilot.pause()
    await terminal.until(lambda: not terminal.conversation._is_moving)
    await terminal.pilot.pause()


async def test_the_newest_messages_are_mounted_and_shown(desk, chat):
    async with open_terminal(desk) as terminal:
        await open_long_chat(terminal, chat)
        assert terminal.texts[-1].startswith("Here is answer 59")
        assert terminal.conversation.is_at_end
        num_mounted = len(terminal.texts)
        assert FIRST <= num_mounted <= FIRST + STEP
        assert str(terminal.conversation._above.render()) == f"▲ {60 - num_mounted} earlier messages"


async def test_a_screen_that_is_taller_than_its_messages_is_filled(desk, chat):
    async with open_terminal(desk, size=(120, 200)) as terminal:
        await open_long_chat(terminal, chat)
        assert terminal.conversation.views[0].region.y < 0
        assert terminal.conversation.is_at_end


async def test_scrolling_up_reaches_the_first_message_and_what_is_seen_never_jumps(desk, chat):
    async with open_terminal(desk) as terminal:
        await open_long_chat(terminal, chat)
        conversation = terminal.conversation
        seen = set()
        while conversation.scroll_y > 0:
            view = next(view for view in conversation.views if view.region.y >= conversation.region.y)
            y_before, scroll_before = view.region.y, conversation.scroll_y
            conversation.scroll_relative(y=-20, animate=False)
            await settle(terminal)
            assert view.region.y - y_before == min(20, scroll_before)
            height = conversation.size.height
            assert conversation.virtual_size.height <= (NEAR + 1 + FAR) * height + 2 * STEP * LONGEST
            seen.update(terminal.texts)
        assert len(seen) == 60
        conversation.scroll_home(animate=False)
        await terminal.until(lambda: conversation.views[0].region.y == conversation.region.y)
        await terminal.screen.conversation.show_end()
        await terminal.until(lambda: terminal.conversation.is_at_end)
        assert terminal.texts[-1].startswith("Here is answer 59")


async def test_a_reply_is_followed_only_at_the_end(desk, chat):
    async with open_terminal(desk) as terminal:
        await open_long_chat(terminal, chat)
        conversation = terminal.conversation
        desk.fake.hold()
        desk.fake.enqueue("line\n\n" * 40)
        await terminal.write("go on")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.texts[-2:] == ["go on", ""])
        desk.fake.let(60)
        await terminal.until(lambda: len(terminal.texts[-1]) >= 50)
        await terminal.until(lambda: conversation.is_at_end)
        conversation.scroll_relative(y=-20, animate=False)
        await terminal.pilot.pause()
        y_before = conversation.scroll_y
        desk.fake.go()
        await terminal.until(lambda: terminal.is_idle)
        await terminal.pilot.pause()
        assert conversation.scroll_y == y_before
        assert not conversation.is_at_end


async def test_a_message_anywhere_can_be_gone_to(desk, chat):
    async with open_terminal(desk) as terminal:
        await open_long_chat(terminal, chat)
        wanted = terminal.path[10]
        await terminal.conversation.reveal(wanted.id)
        await terminal.until(lambda: terminal.view(wanted).has_focus)
        shown = terminal.conversation.region
        await terminal.until(lambda: shown.y <= terminal.view(wanted).region.y < shown.bottom)
        assert 0 < len(terminal.conversation.views) < 60

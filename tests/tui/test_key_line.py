"""The line of keys at the bottom: what matters where the focus is."""

from paged_chat.tui.screens.help_screen import HelpScreen
from paged_chat.tui.widgets.key_line import KeyLine
from terminal import open_terminal

HELP = "f1 help  ^p palette"


def line(terminal):
    return str(terminal.screen.query_one(KeyLine).render())


async def test_it_has_the_keys_of_everywhere_and_of_a_selected_message(desk):
    async with open_terminal(desk, size=(120, 40)) as terminal:
        keys = "^n new  ^f search  ^r retry  ^e edit  ^k cache  ^b chats  esc stop  "
        assert line(terminal) == keys + HELP.rjust(118 - len(keys))
        await terminal.send("hello", "Hi")
        await terminal.keys("alt+up")
        keys = "esc prompt  r retry  e edit  ←→ versions  o side by side  f fork  t tokens  y copy  s save  "
        assert line(terminal) == keys + HELP.rjust(118 - len(keys))


async def test_while_a_reply_is_written_what_stops_it_stands_first(desk):
    desk.fake.hold()
    async with open_terminal(desk, size=(60, 20)) as terminal:
        await terminal.write("hello")
        await terminal.keys("enter")
        await terminal.until(lambda: line(terminal).startswith("esc stop  ^n new  "))
        await terminal.keys("escape")
        await terminal.until(lambda: line(terminal).startswith("^n new  ^f search  "))
        await terminal.keys("ctrl+n")
        assert line(terminal).startswith("^n new  ^f search  ")


async def test_it_stands_there_until_the_last_of_several_replies_has_ended(desk):
    desk.fake.hold()
    desk.fake.enqueue("a", "abcdefgh")
    async with open_terminal(desk, size=(60, 20)) as terminal:
        await terminal.keys(*"/n", "space", *"2", "enter")
        await terminal.write("hello")
        await terminal.keys("enter")
        desk.fake.let(4)
        await terminal.until(lambda: [message.status for message in terminal.screen.messages][1:] == ["done", "draft"])
        await terminal.until(lambda: terminal.texts[1:] == ["a", "abcd"])
        assert line(terminal).startswith("esc stop  ^n new  ")


async def test_what_does_not_fit_is_left_out_and_a_click_does_it(desk):
    async with open_terminal(desk, size=(60, 20)) as terminal:
        keys = "^n new  ^f search  ^r retry  ^e edit  "
        assert line(terminal) == keys + HELP.rjust(58 - len(keys))
        await terminal.pilot.click(KeyLine, offset=(1 + line(terminal).index("help"), 0))
        assert isinstance(await terminal.dialog(), HelpScreen)

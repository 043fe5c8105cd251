"""What goes wrong around a terminal: sizes that change, floods of text, bytes that it would obey, a locked database."""

import contextlib
import sqlite3

import pytest
from textual import events
from textual.widgets import OptionList, Static

from chat_desk import ChatDesk
from fake_engine import FakeEngine
from paged_chat.app.engine_mode import EngineMode
from paged_chat.app.errors import EngineUnavailable, StoreDamaged
from paged_chat.app.store import database
from paged_chat.tui.engine_choice import EngineChoice
from paged_chat.tui.screens import service_screen
from paged_chat.tui.widgets.cache_panel import CachePanel
from paged_chat.tui.widgets.chat_list import ChatList
from paged_chat.tui.widgets.reply_text import ReplyText
from paged_chat.tui.widgets.title_line import TitleLine
from terminal import Terminal, WatchedTui, open_terminal

SIZES = [(60, 20), (140, 45), (80, 24), (200, 60), (61, 20), (120, 40)]
MIXED = "**世界** 👩‍👩‍👧 שלום עולם\n\n| ключ | 値 |\n|---|--:|\n| é | 🙂 |\n\n```python\nname = '世界'\n```\n" * 5


@pytest.fixture
def impatient_desk(tmp_path, monkeypatch):
    """One whose store gives up soon where another program holds the database."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.1)
    with contextlib.closing(ChatDesk(tmp_path / "chats.db", FakeEngine())) as desk:
        yield desk


@contextlib.contextmanager
def held_by_another(desk):
    """Another program holds the database, meanwhile."""
    with contextlib.closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def drawn(widget):
    """The lines of a widget as they are on the screen."""
    return [widget.render_line(y).text for y in range(widget.size.height)]


async def test_the_terminal_changes_its_size_while_a_reply_grows(desk):
    desk.fake.hold()
    desk.fake.enqueue(MIXED)
    async with open_terminal(desk) as terminal:
        await terminal.write("go")
        await terminal.keys("enter")
        await terminal.until(lambda: len(terminal.texts) == 2)
        for width, height in SIZES:
            length = len(terminal.texts[1])
            desk.fake.let(40)
            await terminal.until(lambda length=length: len(terminal.texts[1]) > length)
            await terminal.pilot.resize_terminal(width, height)
            await terminal.pilot.pause()
            reply = terminal.conversation.views[1].query_one(ReplyText)
            assert all(reply.render_line(y).cell_length == reply.size.width for y in range(reply.size.height))
        desk.fake.go()
        await terminal.until(lambda: terminal.is_idle and terminal.texts[1] == MIXED)
        assert terminal.conversation.is_at_end


async def test_a_paste_of_a_megabyte_is_one_word_and_arrives_whole(desk):
    pasted = "".join(f"line {i} of a very long log\n" for i in range(37_000))
    async with open_terminal(desk) as terminal:
        terminal.app.post_message(events.Paste(pasted))
        await terminal.until(lambda: terminal.prompt.text == "[pasted 1: 37,000 lines]")
        await terminal.keys("enter")
        await terminal.until(lambda: any("window" in notice for notice in terminal.notices))
        assert terminal.prompt.expanded(terminal.prompt.text) == pasted
        assert desk.store.chats() == []


async def test_a_reply_of_ten_thousand_lines_of_code_is_shown_and_copied(desk):
    code = "\n".join(f"x = {i}" for i in range(10_000))
    chat = desk.service.create_chat()
    desk.ask(chat, "code", "short")
    with contextlib.closing(sqlite3.connect(desk.path)) as db, db:
        db.execute("UPDATE messages SET text = ? WHERE role = 'assistant'", (f"```python\n{code}\n```",))
    async with open_terminal(desk) as terminal:
        await terminal.screen.open_chat(chat.id)
        await terminal.until(lambda: terminal.conversation.max_scroll_y > 9_000)
        reply = terminal.conversation.views[1].query_one(ReplyText)
        assert drawn(reply)[-1].strip() == "x = 9999"
        await terminal.keys("alt+y")
        await terminal.until(lambda: terminal.app.clipboard == code)


async def test_nothing_of_a_message_is_obeyed_by_the_terminal(desk):
    text = "\x1b]0;owned\x07\x1b[2J\x9b31mred"
    async with open_terminal(desk) as terminal:
        await terminal.send(text, f"```\n{text}\n```\n{text}")
        await terminal.write(text)
        widgets = [terminal.prompt, *terminal.conversation.views[1].query(ReplyText)]
        widgets += [terminal.conversation.views[0]._body, terminal.screen.query_one(TitleLine)]
        widgets += [terminal.screen.query_one(ChatList)]
        for widget in widgets:
            shown = "".join(drawn(widget))
            assert "␛]0;owned" in shown
            assert not {"\x1b", "\x07", "\x9b"} & set(shown), widget
        await terminal.keys("ctrl+f")
        search = await terminal.dialog()
        search.query_one("Input").value = "owned"
        found = search.query_one(OptionList)
        await terminal.until(lambda: found.option_count)
        assert "\x1b" not in "".join(drawn(found))


async def test_chats_that_can_not_be_opened_are_said_as_long_as_it_is_so(tmp_path):
    @contextlib.contextmanager
    def open_chats(_):
        raise StoreDamaged("chats.db is damaged: move it away to start afresh")
        yield

    app = WatchedTui(
        open_chats, tmp_path / "keymap.toml", EngineChoice(EngineMode.OWN, "fake-1b", tmp_path / "engine.txt")
    )
    async with app.run_test(size=(120, 40)) as pilot:
        terminal = Terminal(app, pilot, FakeEngine())
        await terminal.until(lambda: terminal.screen.why_closed)
        shown = terminal.screen.query_one(".engine", Static)
        assert str(shown.render()) == "chats.db is damaged: move it away to start afresh"
        assert "the chats are closed" in drawn(terminal.screen.query_one(TitleLine))[0]
        await terminal.write("hello")
        await terminal.keys("enter")
        assert terminal.notices == ["chats.db is damaged: move it away to start afresh"]
        assert terminal.prompt.text == "hello"


async def test_why_a_model_did_not_load_is_said_as_long_as_it_is_so(tmp_path):
    fake = FakeEngine()
    reason = "model.gguf is gone: " + "choose another one, or look where it went; " * 8 + "see doctor"
    fake.load_error = EngineUnavailable(reason)
    with contextlib.closing(ChatDesk(tmp_path / "chats.db", fake)) as desk:
        async with open_terminal(desk, size=(60, 20)) as terminal:
            shown = terminal.screen.query_one(".engine", Static)
            await terminal.until(lambda: str(shown.render()) == reason)
            await terminal.until(lambda: " ".join("".join(drawn(shown)).split()).endswith("see doctor"))
            assert shown.region.bottom <= terminal.prompt.region.y


async def test_what_can_not_be_stored_now_stays_in_the_prompt(impatient_desk):
    async with open_terminal(impatient_desk) as terminal:
        await terminal.send("before", "fine")
        with held_by_another(impatient_desk):
            await terminal.write("while it is locked")
            await terminal.keys("enter")
            await terminal.until(lambda: "another program has been writing" in "".join(terminal.notices))
            assert terminal.prompt.text == "while it is locked"
            assert terminal.texts == ["before", "fine"]
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.texts[2:3] == ["while it is locked"] and terminal.is_idle)


async def test_the_screen_lives_on_while_another_program_holds_the_database(desk, monkeypatch):
    monkeypatch.setattr(service_screen, "WRITE_TOLD_AFTER_S", 0.1)
    async with open_terminal(desk) as terminal:
        await terminal.send("before", "fine")
        with held_by_another(desk):
            await terminal.write("while it is locked")
            await terminal.keys("enter")
            await terminal.until(lambda: any("Storing takes long" in notice for notice in terminal.notices))
            # It is still being waited for, and everything else works: typing, keys, dialogs, reading.
            await terminal.write("the next thought")
            await terminal.keys("f1")
            await terminal.dialog()
            await terminal.keys("escape")
            await terminal.keys("ctrl+k")
            assert not terminal.screen.query_one(CachePanel).display
            assert terminal.texts == ["before", "fine"]
        await terminal.until(lambda: terminal.texts[2:3] == ["while it is locked"] and terminal.is_idle)
        assert terminal.prompt.text == "the next thought"


async def test_what_was_refused_while_the_next_was_written_is_one_step_up_in_the_history(impatient_desk):
    async with open_terminal(impatient_desk) as terminal:
        await terminal.send("before", "fine")
        with held_by_another(impatient_desk):
            async with terminal.screen.writing:  # it is its turn once the next thought is written
                await terminal.write("while it is locked")
                await terminal.keys("enter")
                await terminal.until(lambda: terminal.prompt.text == "")
                await terminal.write("the next thought")
            await terminal.until(lambda: "another program has been writing" in "".join(terminal.notices))
        assert terminal.prompt.text == "the next thought"
        await terminal.keys("up")
        assert terminal.prompt.text == "while it is locked"
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.texts[2:3] == ["while it is locked"] and terminal.is_idle)


async def test_what_is_asked_for_while_the_database_is_held_is_done_in_that_order_afterwards(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("before", "fine")
        chat = terminal.screen.chat
        with held_by_another(desk):
            for command in ("/rename first", "/temp 0.5", "/rename second", "/system Be brief."):
                await terminal.write(command)
                await terminal.keys("escape", "enter")
            assert desk.service.chat(chat.id).title == "before"
        await terminal.until(lambda: desk.service.chat(chat.id).system_prompt == "Be brief.")
        stored = desk.service.chat(chat.id)
        assert (stored.title, stored.sampling.temperature) == ("second", 0.5)

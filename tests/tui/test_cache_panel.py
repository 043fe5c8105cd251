"""The cache beside the conversation."""

from textual.widgets import Static

from paged_chat.app.cache_view import block_view
from paged_chat.tui.widgets import cache_panel
from paged_chat.tui.widgets.meter import Meter
from paged_chat.tui.widgets.pool_map import PoolMap
from paged_chat.tui.widgets.why_not_more import WhyNotMore
from terminal import open_terminal


def text_of(terminal, name):
    return str(terminal.screen.query_one(f"#{name}", Static).render())


def map_of(terminal):
    return terminal.screen.query_one(PoolMap).render_line(0).text.rstrip()


async def test_the_pool_is_drawn_while_a_reply_grows_and_when_it_has_ended(desk, monkeypatch):
    monkeypatch.setattr(block_view, "RECENT_S", 3600.0)
    desk.fake.hold()
    desk.fake.enqueue("abcdefgh")
    async with open_terminal(desk) as terminal:
        await terminal.write("a question that fills two blocks")
        await terminal.keys("enter")
        desk.fake.let(2)
        await terminal.until(lambda: map_of(terminal).startswith("hhhh·"))
        await terminal.until(lambda: "4 held · 0 shared · 0 cached" in text_of(terminal, "counters"))
        desk.fake.go()
        await terminal.until(lambda: map_of(terminal).startswith("ffff"))
        monkeypatch.setattr(block_view, "RECENT_S", 0.0)
        await terminal.until(lambda: map_of(terminal).startswith("cccc"))
        assert "freed 4" in text_of(terminal, "log")
        assert "· free    c cached  h held\ns shared  y copied  f freed" in text_of(terminal, "counters")


async def test_the_block_under_the_cursor_is_told(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("a question that fills two blocks", "yes")
        terminal.screen.query_one(PoolMap).focus()
        await terminal.until(lambda: text_of(terminal, "block").startswith("block 1, ref_count 0, hash "))
        assert "tokens 0 to 15\ncached\n'user:a question'" in text_of(terminal, "block")
        await terminal.keys("right")
        await terminal.until(lambda: "tokens 16 to 31" in text_of(terminal, "block"))


async def test_it_asks_nothing_of_the_engine_while_it_is_hidden(desk, monkeypatch):
    asked = []
    ask_engine = desk.service.ask_engine
    monkeypatch.setattr(desk.service, "ask_engine", lambda look: asked.append(look) or ask_engine(look))
    async with open_terminal(desk) as terminal:
        await terminal.until(lambda: asked)
        await terminal.keys("ctrl+k")
        await terminal.pilot.pause(0.3)
        asked.clear()
        await terminal.send("hello", "hi")
        assert asked == []


async def test_a_model_that_is_there_is_read_at_once_whether_it_comes_or_the_panel_opens(desk, monkeypatch):
    monkeypatch.setattr(cache_panel, "IDLE_S", 3600.0)
    desk.fake.may_load.clear()
    async with open_terminal(desk) as terminal:
        await terminal.until(lambda: text_of(terminal, "counters") == "no model yet")
        desk.fake.may_load.set()
        await terminal.until(lambda: text_of(terminal, "counters").startswith("0 held"))
        await terminal.keys("ctrl+k")
        await terminal.send("a question that fills two blocks", "yes")
        assert text_of(terminal, "counters").startswith("0 held · 0 shared · 0 cached")
        await terminal.keys("ctrl+k")
        await terminal.until(lambda: not text_of(terminal, "counters").startswith("0 held · 0 shared · 0 cached"))
        assert text_of(terminal, "counters").startswith("0 held · 0 shared · 4 cached")


async def test_it_is_read_where_it_opens_after_the_screen_has_scrolled(desk):
    # In Textual 8.2 a widget that comes after an animated scroll is sent neither Show nor Resize.
    async with open_terminal(desk, size=(60, 20)) as terminal:
        await terminal.send("a question that fills two blocks", "a line\n\n" * 40)
        await terminal.keys("alt+up")
        await terminal.pilot.wait_for_animation()
        await terminal.keys("ctrl+k")
        await terminal.until(lambda: text_of(terminal, "counters").startswith("0 held"))
        assert terminal.screen.query_one(cache_panel.CachePanel).has_class("low")


async def test_a_model_that_is_changed_is_gone_from_the_panel_until_the_next_is_there(desk):
    async with open_terminal(desk) as terminal:
        await terminal.until(lambda: text_of(terminal, "counters").startswith("0 held"))
        desk.fake.may_load.clear()
        await terminal.write("/model acme/other-2b")
        await terminal.keys("enter")
        await terminal.until(lambda: text_of(terminal, "counters") == "no model yet")
        desk.fake.may_load.set()
        await terminal.until(lambda: text_of(terminal, "counters").startswith("0 held"))


def why_of(terminal):
    why = terminal.screen.query_one(WhyNotMore)
    return str(why.render()) if why.display else None


async def test_why_the_newest_or_the_selected_reply_found_no_more(desk):
    async with open_terminal(desk) as terminal:
        assert why_of(terminal) is None
        await terminal.send("hello", "hi")
        await terminal.until(lambda: "the cache was empty" in (why_of(terminal) or ""))
        desk.service.update_chat(terminal.screen.chat.id, system_prompt="Be brief.")
        await terminal.send("again", "yes")
        await terminal.until(lambda: "the system prompt was edited" in why_of(terminal))
        assert why_of(terminal).startswith("why not more?\n1 of ")
        assert "token 1, block 0: 's" in why_of(terminal)
        first_reply = terminal.path[1]
        await terminal.keys("alt+up", "alt+up", "alt+up")
        await terminal.until(lambda: terminal.screen.selected_id == first_reply.id)
        await terminal.until(lambda: "the cache was empty" in why_of(terminal))
        await terminal.keys("escape")
        await terminal.until(lambda: "the system prompt was edited" in why_of(terminal))


async def test_a_selected_message_says_what_can_be_done_with_it_and_what_that_takes(desk):
    async with open_terminal(desk, size=(60, 20)) as terminal:
        await terminal.send("hello", "hi")
        await terminal.keys("alt+up")
        meter = terminal.screen.query_one(Meter)
        # Where the figure of the whole window stands beside them, the words go on in the next line.
        words = "retry: 20 reused, 1 computed · fork: 23 reused, 17 computed"
        await terminal.until(lambda: " ".join(shown(meter).replace("40 / 4,096", "").split()) == words)
        assert meter.region.height <= 2
        await terminal.keys("escape")
        await terminal.until(lambda: "retry" not in shown(meter))


def shown(widget):
    return str(widget.render())

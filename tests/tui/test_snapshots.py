"""The main states as they are drawn; `pytest tests/tui/test_snapshots.py --snapshot-update` takes them anew.

Look at what changed in the report before you do.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_textual_snapshot import normalize_svg

from long_chat import add_long_chat
from paged_chat.app.cache_view.block_view import LogLine, read_pool
from paged_chat.app.service import running_reply
from terminal import Terminal, make_app

SIZES = [(80, 24), (140, 45)]
SNAPSHOTS = Path(__file__).parent / "__snapshots__" / "test_snapshots"
# How long a screen may differ from its snapshot before that is a fault, and how long a new one has to hold still.
PATIENCE_S, STILL_S = 20.0, 1.0
COST_LINE = {"ttft_ms": 48.0, "tokens_per_s": 118.0}

REPLY = """**Day one**: Alfama in the morning, before it is warm.

1. Tram 28 to the top
2. Down on foot

```python
def days(count: int) -> list[str]:
    return [f"day {i}" for i in range(count)]
```
"""


@pytest.fixture(autouse=True)
def steady(monkeypatch):
    """What depends on the clock is the same each time."""
    cost_of = running_reply.cost_of
    monkeypatch.setattr(running_reply, "cost_of", lambda stats, sample: replace(cost_of(stats, sample), **COST_LINE))
    cost_so_far = running_reply.RunningReply._cost_so_far
    monkeypatch.setattr(
        running_reply.RunningReply,
        "_cost_so_far",
        lambda reply: (cost := cost_so_far(reply)) and replace(cost, **COST_LINE),
    )
    monkeypatch.setattr("paged_chat.tui.widgets.cache_panel.time.strftime", lambda *_: "14:02:07 ")
    # How events fall into lines depends on when they are read.
    lines = [LogLine(0.0, "reused", 13, "r2"), LogLine(0.0, "copied", 1, "r2"), LogLine(0.0, "published", 2, "r2")]
    monkeypatch.setattr("paged_chat.tui.widgets.cache_panel.CachePanel.log_lines", lines)
    monkeypatch.setattr("paged_chat.app.cache_view.block_view.seconds_words", lambda _: "1.8 s")


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def snap(request, desk, snap_compare, monkeypatch):
    """`snap(story)` runs the story and compares the screen it leaves."""
    monkeypatch.setattr("paged_chat.tui.app.PagedChatTui.NOTIFICATION_TIMEOUT", 600.0)
    monkeypatch.setattr("paged_chat.tui.notices.ERROR_SHOWN_S", 600.0)

    def compare(story):
        app = make_app(desk)
        app.animation_level = "none"

        async def run(pilot):
            terminal = Terminal(app, pilot, desk.fake)
            await terminal.until(lambda: terminal.screen.engine_status and terminal.screen.engine_status.window)
            terminal.prompt.cursor_blink = False
            await story(terminal)
            await drawn(terminal, request)

        assert snap_compare(app, terminal_size=request.param, run_before=run)

    return compare


async def drawn(terminal, request):
    """Waits for what is drawn a moment later: until the screen is its snapshot, or holds still where there is none."""
    snapshot = SNAPSHOTS / f"{request.node.name}.svg"
    is_taken = request.config.option.update_snapshots or not snapshot.exists()
    stored = None if is_taken else normalize_svg(snapshot.read_text("utf-8"))
    seen, since = None, time.monotonic()
    deadline = since + PATIENCE_S
    while time.monotonic() < deadline:
        await terminal.pilot.pause()
        shown = normalize_svg(terminal.app.export_screenshot(title=terminal.app.title, simplify=True))
        if shown == stored:
            return
        if shown != seen:
            seen, since = shown, time.monotonic()
        elif is_taken and time.monotonic() > since + STILL_S:
            return
        await terminal.pilot.pause(0.05)


async def settle(terminal):
    """Until the panel has seen all that happened, and no block shows any more that it was freed just now."""
    panel = terminal.screen.query_one("#cache")
    if panel.display:
        reading = await asyncio.wrap_future(terminal.screen.service.ask_engine(read_pool.ask(0)))
        num_events = reading.snapshot.num_events
        await terminal.until(lambda: panel._follower.next_event == num_events and not panel._follower.is_fading)
        pool_map = panel.query_one("PoolMap")
        await terminal.until(lambda: "f" not in pool_map.render_line(0).text)


def test_empty(snap):
    async def story(terminal):
        await terminal.pilot.pause()

    snap(story)


def test_a_conversation(snap):
    async def story(terminal):
        await terminal.send("three days in Lisbon, no museums", REPLY)
        await terminal.send("and what to eat?", "<think>They like food.</think>Sardines.")
        await settle(terminal)

    snap(story)


def test_a_conversation_in_a_light_theme(snap):
    async def story(terminal):
        terminal.app.theme = "textual-light"
        await terminal.send("three days in Lisbon, no museums", REPLY)
        await settle(terminal)

    snap(story)


def test_a_reply_that_grows(snap, desk):
    async def story(terminal):
        desk.fake.hold()
        desk.fake.enqueue("Day one: Alfama")
        await terminal.write("three days in Lisbon")
        await terminal.keys("enter")
        desk.fake.let(1)
        await terminal.until(lambda: terminal.texts[-1:] == ["D"])
        terminal.screen.show_plan()  # of the reply as it is shown: the one before may have been of an empty one

    snap(story)


def test_a_comparison(snap, desk):
    async def story(terminal):
        await terminal.write("/compare temperature=0 temperature=0.9")
        await terminal.keys("enter")
        desk.fake.enqueue("Take the tram to the castle.")
        desk.fake.enqueue("Walk up to the castle.")
        desk.fake.hold()  # until both are asked: else it depends on the moment how much the second one finds
        await terminal.write("how do I get there?")
        await terminal.keys("enter")
        await terminal.until(lambda: len(desk.fake.models[0].submitted) == 2)
        desk.fake.go()
        await terminal.until(lambda: len(terminal.screen.messages) == 3 and terminal.is_idle)
        await settle(terminal)
        await terminal.keys("f7")
        await terminal.until(lambda: terminal.screen.query(".diff"))

    snap(story)


def test_replies_side_by_side(snap):
    async def story(terminal):
        await terminal.write("/n 2")
        await terminal.keys("enter")
        await terminal.send("name a boat", "**Alba**, for the dawn.", "**Brisa**, for the wind that it likes.")
        await settle(terminal)
        terminal.app.clear_notifications()

    snap(story)


def test_an_error(snap):
    async def story(terminal):
        await terminal.write("/halp")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices)

    snap(story)


def test_completion(snap):
    async def story(terminal):
        await terminal.write("/te")

    snap(story)


def test_help(snap, desk, monkeypatch):
    async def story(terminal):
        terminal.app.keymap_path = "~/.local/share/paged-chat/keymap.toml"
        await terminal.keys("f1")

    snap(story)


def test_search(snap):
    async def story(terminal):
        await terminal.send("three days in Lisbon, no museums", REPLY)
        await settle(terminal)
        terminal.screen.search("alfama")
        await terminal.until(lambda: terminal.app.screen is not terminal.screen)
        await terminal.until(lambda: terminal.app.screen.query_one("OptionList").option_count == 1)
        terminal.app.screen.query_one("Input").cursor_blink = False

    snap(story)


def test_settings(snap):
    async def story(terminal):
        await terminal.keys("f3")
        await terminal.until(lambda: terminal.app.screen is not terminal.screen)
        terminal.app.screen.query_one("TextArea").cursor_blink = False

    snap(story)


def test_tokens(snap, desk, monkeypatch):
    desk.fake.odds |= {"o": {"o": 0.5, "a": 0.25, "u": 0.125}, "e": {"a": 0.5, "e": 0.25}, "t": {"s": 0.75, "t": 0.125}}
    monkeypatch.setattr("fake_engine.FakeModel.expected_ttft", lambda *_: None)

    async def story(terminal):
        await terminal.write("/alternatives 3")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices)
        terminal.app.clear_notifications()
        await terminal.send("go", "The *first* of two.\n\n1. é, not much else to see for those who look at it")
        await settle(terminal)
        await terminal.keys("f6")
        await terminal.until(lambda: terminal.app.screen is not terminal.screen)
        await terminal.keys(*["right"] * 10, "enter")
        await terminal.until(lambda: "computes" in str(terminal.app.screen.query_one("#cost").render()))

    snap(story)


def test_a_long_chat(snap, desk):
    chat = add_long_chat(desk.store, 60)

    async def story(terminal):
        await terminal.screen.open_chat(chat.id)
        await terminal.until(lambda: terminal.conversation.scroll_y > terminal.conversation.size.height)
        await terminal.pilot.pause()

    snap(story)

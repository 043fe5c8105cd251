"""The terminal finds a paged-chat that runs already, and uses its engine if the person wants that."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.widgets import OptionList, Static
from typer.testing import CliRunner

from chat_desk import until
from engine_server import EngineServer, serve_engine
from fake_engine import FakeEngine
from paged_chat.app.api.running_server import RunningServer
from paged_chat.app.api.server_record import announced
from paged_chat.app.engine_mode import EngineMode
from paged_chat.app.errors import EngineUnavailable
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.engine.config import EngineConfig
from paged_chat.tui.command import app as command
from paged_chat.tui.engine_choice import EngineChoice
from paged_chat.tui.screens import service_screen
from paged_chat.tui.screens.dialogs import ChoiceDialog
from paged_chat.tui.widgets.title_line import TitleLine
from terminal import Terminal, WatchedTui


@dataclass
class Place:
    """A server that can be found, and a terminal's own chats and engine; both say what they are told to."""

    server: EngineServer
    shared: FakeEngine
    own: FakeEngine
    store: Store
    folder: Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    shared, own = FakeEngine(), FakeEngine()
    server = serve_engine(shared.open)
    with announced(server.record), Store(tmp_path / "chats.db") as store:
        yield Place(server, shared, own, store, tmp_path)
    shared.go()
    server.close()
    shared.close()
    own.close()


@contextlib.asynccontextmanager
async def started(place: Place, mode: EngineMode = EngineMode.AUTO, model: str = "fake-1b") -> AsyncIterator[Terminal]:
    @contextlib.contextmanager
    def open_chats(server: RunningServer | None) -> Iterator[ChatService]:
        with ChatService(place.store, place.own.open, config=EngineConfig(model=model), server=server) as service:
            yield service

    app = WatchedTui(
        open_chats, place.folder / "keymap.toml", EngineChoice(mode, model, place.folder / "tui-engine.txt")
    )
    async with app.run_test(size=(120, 40)) as pilot:
        yield Terminal(app, pilot, place.shared)


async def question(terminal: Terminal) -> str:
    """What is asked at the start."""
    await terminal.until(lambda: isinstance(terminal.app.screen, ChoiceDialog) and terminal.app.screen.query("Label"))
    return str(terminal.app.screen.query("Label").first().render())


async def answer(terminal: Terminal, *keys: str) -> None:
    await question(terminal)
    await terminal.keys(*keys)
    await terminal.until(lambda: terminal.screen.service is not None)


def title(terminal: Terminal) -> str:
    return str(terminal.screen.query_one(TitleLine).render())


async def ready(terminal: Terminal) -> None:
    await terminal.until(
        lambda: terminal.screen.engine_status is not None and terminal.screen.engine_status.phase == "ready"
    )


async def test_the_offer_is_a_clear_question_and_taking_it_loads_no_model(place):
    async with started(place) as terminal:
        words = f"paged-chat serve at {place.server.address} has fake-1b loaded. Which engine shall answer?"
        assert await question(terminal) == words
        assert terminal.app.screen.query_one(OptionList).option_count == 4
        await answer(terminal, "enter")
        await ready(terminal)
        assert "fake-1b (shared)" in title(terminal)
        await terminal.send("hello", "Hi from over there")
        assert terminal.texts == ["hello", "Hi from over there"]
        assert (len(place.shared.models), len(place.own.models)) == (1, 0)
        # The panel shows the other process's pool.
        counters = terminal.screen.query_one("#counters", Static)
        await terminal.until(lambda: "hit rate" in str(counters.render()))


async def test_declining_loads_a_model_here_and_esc_declines(place):
    async with started(place) as terminal:
        await answer(terminal, "escape")
        await ready(terminal)
        assert "shared" not in title(terminal)
        assert len(place.own.models) == 1


async def test_a_choice_for_always_is_remembered_until_it_is_forgotten(place):
    async with started(place) as terminal:
        await answer(terminal, "down", "down", "enter")
    async with started(place) as terminal:
        await ready(terminal)
        assert "(shared)" in title(terminal)
        await terminal.write("/engine ask")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.notices)
    async with started(place) as terminal:
        await answer(terminal, "up", "enter")  # the last one: always our own
    async with started(place) as terminal:
        await ready(terminal)
        assert "(shared)" not in title(terminal)
    async with started(place, EngineMode.SHARED) as terminal:
        await ready(terminal)
        assert "(shared)" in title(terminal), "the command line counts more"


async def test_own_never_asks_and_shared_needs_no_question(place):
    async with started(place, EngineMode.OWN) as terminal:
        await ready(terminal)
        assert "(shared)" not in title(terminal)
    async with started(place, EngineMode.SHARED, model="other-3b") as terminal:
        await ready(terminal)
        assert "fake-1b (shared)" in title(terminal)


async def test_another_model_is_said_in_the_question(place):
    async with started(place, model="other-3b") as terminal:
        assert "(Here it would be other-3b.)" in await question(terminal)
        await answer(terminal, "down", "enter")


async def test_quitting_at_the_question_ends_at_once(place):
    async with started(place) as terminal:
        await question(terminal)


async def test_a_server_that_goes_in_mid_reply_keeps_the_draft_and_a_model_of_our_own_goes_on(place):
    async with started(place, EngineMode.SHARED) as terminal:
        await ready(terminal)
        place.shared.hold()
        place.shared.enqueue("one two three four")
        await terminal.write("count")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.screen.service.running_chat_ids())
        place.shared.let(7)
        await terminal.until(lambda: "one two" in terminal.texts[-1])
        place.server.server.close()
        await terminal.until(lambda: terminal.screen.engine_status.phase == "failed")
        await terminal.until(lambda: terminal.is_idle)
        [_, reply] = terminal.path
        assert (reply.status, reply.text[:7]) == ("failed", "one two")
        assert f"the engine at {place.server.address} doesn't answer any more" in reply.error
        [told] = [notice for notice in terminal.notices if "The model has stopped: " in notice]
        assert told.endswith("; load a model here, or start the other program again. /engine own loads one here")
        assert "fake-1b has gone" in title(terminal)
        await terminal.write("/engine own")
        await terminal.keys("enter")
        await ready(terminal)
        assert "fake-1b" in title(terminal)
        place.own.enqueue(" three")
        await terminal.keys("ctrl+l")
        await terminal.until(lambda: terminal.path[-1].status == "done")
        assert terminal.path[-1].text == f"{reply.text} three"


async def test_the_engine_can_be_changed_while_it_runs(place, monkeypatch):
    monkeypatch.setattr(service_screen, "WRITE_TOLD_AFTER_S", 0.0)  # what takes its time here is no store
    async with started(place, EngineMode.OWN) as terminal:
        await ready(terminal)
        await terminal.write("/engine shared")
        await terminal.keys("enter")
        await terminal.until(lambda: "(shared)" in title(terminal))
        await ready(terminal)
        assert not [notice for notice in terminal.notices if notice.startswith("Storing takes long")]
        await terminal.send("hello", "Hi")
        assert terminal.texts == ["hello", "Hi"]


async def test_a_turn_of_one_program_is_reused_by_the_other(place, tmp_path):
    """The page's chat goes on in the terminal: all that was read and written is found, but for the last token."""
    with (
        Store(tmp_path / "chats.db") as page_store,
        ChatService(page_store, lambda config, _: place.server.host.loaded.result().served) as page,
    ):
        chat = page.create_chat()
        place.shared.enqueue("It lies on seven hills")
        page.send(chat.id, "Tell me about Lisbon")
        until(lambda: not page.running_chat_ids())
        cost = page.tree(chat.id).path(page.chat(chat.id).active_leaf_id)[-1].cost
        async with started(place, EngineMode.SHARED) as terminal:
            await ready(terminal)
            await terminal.screen.open_chat(chat.id)
            await terminal.send("And Porto?", "On two")
            second = terminal.path[-1].cost
            total = cost.num_cached_tokens + cost.num_computed_tokens + cost.num_generated_tokens
            assert second.num_cached_tokens == total - 1
            assert len(place.own.models) == 0


def test_asking_for_a_shared_engine_where_there_is_none_is_an_error_before_the_screen(tmp_path):
    result = CliRunner().invoke(command, ["--engine", "shared"])
    assert isinstance(result.exception, EngineUnavailable)
    assert "no `paged-chat web` or `serve` of yours runs here" in str(result.exception)


def test_an_unknown_choice_is_a_usage_error():
    result = CliRunner().invoke(command, ["--engine", "both"])
    assert result.exit_code == 2
    assert "'--engine': must be one of own, shared, auto, not 'both'" in result.output

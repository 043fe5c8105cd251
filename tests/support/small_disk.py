"""What the application does on a disk of two megabytes that is really full; run by tests/app/test_small_disk.py.

    python small_disk.py FOLDER

Each story fills the disk and makes room again.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from chat_desk import ChatDesk, next_update, until
from fake_engine import FakeEngine
from paged_chat.app.bench.bench_result import BenchResult, Round
from paged_chat.app.engine_mode import EngineMode
from paged_chat.app.errors import DiskFull, ExportRefused
from paged_chat.app.porting.new_file import new_file
from paged_chat.engine.model.machine_record import MachineRecord
from paged_chat.engine.request import SamplingParams
from paged_chat.tui.engine_choice import EngineChoice
from terminal import open_terminal

RESULT = BenchResult.of(
    [Round(load_s=0.5, others_cores=None, steps=())], workload="chat8", model="fake-1b", peak_rss_mib=None
)
TEXT = "All that was said while the disk was full. " * 40


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No byte fits on the disk meanwhile."""
    filler = folder / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
    for size in (65536, 4096, 1):
        with pytest.raises(OSError, match="No space left"):
            write_without_end(descriptor, size)
    os.close(descriptor)
    try:
        yield
    finally:
        filler.unlink()


def write_without_end(descriptor: int, size: int) -> NoReturn:
    while True:
        os.write(descriptor, b"x" * size)


def tell_chats(folder: Path) -> None:
    """A reply goes on and is saved once there is room; what is asked or set meanwhile is refused, with nothing lost."""
    path = folder / "chats.db"
    fake = FakeEngine()
    with closing(ChatDesk(path, fake)) as desk:
        chat = desk.service.create_chat()
        desk.ask(chat, "Before", "Fine")
        desk.service.save_sampling_preset("mine", SamplingParams(temperature=0.5))
        fake.enqueue(TEXT)
        fake.hold()
        [draft] = desk.service.send(chat.id, "Go").replies
        with full(folder), desk.service.watch(chat.id) as watcher:
            fake.go()
            while not (update := next_update(watcher)).has_ended or update.save_error is None:
                pass
            assert f"the disk that holds {path} is full" in update.save_error
            with pytest.raises(DiskFull, match="nothing was saved now: make space and try again"):
                desk.service.save_sampling_preset("mine", SamplingParams(temperature=0.9))
            with pytest.raises(DiskFull):
                desk.service.rename(chat.id, "Another title " * 1000)
        until(lambda: desk.stored(draft).status == "done")
        assert desk.texts(chat) == ["Before", "Fine", "Go", TEXT]
        assert desk.service.sampling_presets() == {"mine": SamplingParams(temperature=0.5)}
        desk.ask(chat, "After", "Fine again")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def tell_files(folder: Path) -> None:
    """A file that is written anew keeps what it had; one that isn't there yet isn't begun."""
    export, choice = folder / "chats.json", folder / "tui-engine.txt"
    export.write_text("before")
    choice.write_text("shared\n")
    with full(folder):
        refused = pytest.raises(ExportRefused, match=r"chats\.json can't be written: No space left on device")
        with refused, new_file(export, overwrite=True) as out:
            out.write("after")
        with pytest.raises(ExportRefused, match="No space left on device"), new_file(folder / "new.json") as out:
            out.write("after")
        with pytest.raises(ExportRefused, match=r"result\.json can't be written: No space left on device"):
            RESULT.write(folder / "result.json")
        MachineRecord("this machine").save()  # what isn't kept is found out again
        EngineChoice(EngineMode.AUTO, "fake-1b", choice).answer("always own")
        assert (export.read_text(), choice.read_text()) == ("before", "shared\n")
    names = {file.name for file in folder.rglob("*") if file.is_file()}
    assert not [name for name in names if name in ("new.json", "result.json", "machine.json") or name.startswith(".")]
    MachineRecord("this machine").save()
    assert (folder / "cache" / "machine.json").exists()
    EngineChoice(EngineMode.AUTO, "fake-1b", choice).answer("always own")
    assert choice.read_text() == "own\n"


async def tell_terminal(folder: Path) -> None:
    """It opens on a full disk, shows what there is, and leaves no half-written keymap behind."""
    keymap = folder / "keymap.toml"
    with closing(ChatDesk(folder / "chats.db", FakeEngine())) as desk:
        chat = desk.service.create_chat(title="Said before")
        with full(folder):
            async with open_terminal(desk) as terminal:
                await terminal.screen.open_chat(chat.id)
                await terminal.write("while it is full " * 90)
                await terminal.keys("enter")
                await terminal.until(lambda: "is full; nothing was saved now" in "".join(terminal.notices))
                assert terminal.prompt.text == "while it is full " * 90
            assert not keymap.exists()
        async with open_terminal(desk):
            assert keymap.exists()


if __name__ == "__main__":
    os.environ["PAGED_CHAT_HOME"] = sys.argv[1]
    tell_chats(Path(sys.argv[1]))
    tell_files(Path(sys.argv[1]))
    asyncio.run(tell_terminal(Path(sys.argv[1])))

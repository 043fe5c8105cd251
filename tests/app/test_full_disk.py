"""A disk that is full, wherever the application writes: an error in words or none at all, and nothing half-written.

The database has its own story (store/test_database.py, service/test_service_faults.py), as have the model's files
(engine/model/test_download.py, test_prepared.py) and compiled kernels (engine/test_compiled_kernels.py).
"""

import asyncio
import errno
import os
import tempfile

import pytest

from paged_chat.app.api import server_record
from paged_chat.app.api.server_record import announced, record_of, records
from paged_chat.app.errors import ExportRefused, ImportRefused
from paged_chat.app.porting.new_file import new_file
from paged_chat.app.web import transfer_routes


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullFile:
    """What every write to is refused."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    write = staticmethod(full)


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_export_leaves_the_file_that_was_there_and_no_other(tmp_path, monkeypatch, overwrite):
    path = tmp_path / "chats.json"
    if overwrite:
        path.write_text("before")
    monkeypatch.setattr(os, "replace", full)
    with (
        pytest.raises(ExportRefused, match=r"chats\.json can't be written: No space left on device"),
        new_file(path, overwrite=overwrite) as out,
    ):
        out.write("after")
    assert [file.read_text() for file in tmp_path.iterdir()] == (["before"] if overwrite else [])


def test_an_export_whose_text_does_not_fit_is_refused_too(tmp_path):
    with (
        pytest.raises(ExportRefused, match="No space left on device"),
        new_file(tmp_path / "chats.json") as out,
    ):
        full(out)
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_a_note_serves_all_the_same(home, monkeypatch):
    monkeypatch.setattr(server_record.json, "dump", full)
    with announced(record_of("serve", "127.0.0.1", 7861)):
        assert records() == []
        assert list((home / "servers").iterdir()) == []


def test_an_import_that_the_page_cannot_keep_while_it_arrives_is_refused_in_words(monkeypatch):
    class Upload:
        async def stream(self):
            yield b"[]"

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda _: FullFile())
    with pytest.raises(ImportRefused, match=r"^chats\.json can't be kept while it arrives \(No space left on device\)"):
        asyncio.run(transfer_routes.import_chats(Upload(), "chats.json", None, ""))

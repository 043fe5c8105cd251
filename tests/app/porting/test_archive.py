"""ChatGPT's zip, whole, split, damaged and hostile."""

import io
import json
import zipfile

import pytest

from paged_chat.app.errors import ImportRefused
from paged_chat.app.porting import read_stream
from paged_chat.app.porting.archive import conversation_files


def talk(text):
    return json.dumps([{"messages": [{"role": "user", "content": text}]}])


def zipped(files, compression=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def texts(read_chats):
    return [chat.messages[0].text for chat in read_chats.chats]


def test_the_conversations_are_read_and_nothing_else(read):
    content = zipped({"user.json": "{}", "conversations.json": talk("hello"), "chat.html": "<html>", "file-x.png": "x"})
    assert texts(read(content)) == ["hello"]


def test_numbered_files_in_a_folder_are_read_in_order(read):
    content = zipped(
        {
            "export/conversations-001.json": talk("second"),
            "export/conversations-000.json": talk("first"),
            "__MACOSX/export/._conversations-000.json": "junk",
            "export/shared_conversations.json": "junk",
        }
    )
    assert texts(read(content)) == ["first", "second"]


def test_a_fault_inside_is_named_with_the_file(fault):
    content = zipped({"conversations-000.json": talk("fine"), "conversations-001.json": '[{"messages": 5}]'})
    assert fault(content) == "f: conversations-001.json: [0].messages must be a list, not 5"


def test_a_zip_of_something_else_is_refused(fault):
    assert fault(zipped({"notes.txt": "hello"})) == "f: there is no conversations.json in it"
    assert fault(zipped({})) == "f: there is no conversations.json in it"


def test_a_bomb_is_refused_before_it_fills_the_memory():
    bomb = zipped({"conversations.json": '["' + "x" * 50_000_000 + '"]'})
    assert len(bomb) < 100_000
    sources = conversation_files(io.BytesIO(bomb), "f", max_bytes=5_000_000)
    with pytest.raises(ImportRefused) as refused:
        next(sources).value()
    assert str(refused.value) == "f: conversations.json: larger than 5,000,000 bytes, the limit for a file; split it"


def test_many_files_share_the_limit():
    content = zipped({f"conversations-{number:03}.json": "[]" + " " * 1000 for number in range(10)})

    def read_all():
        for source in conversation_files(io.BytesIO(content), "f", max_bytes=5_000):
            source.value()
            source.expect_end()

    with pytest.raises(ImportRefused) as refused:
        read_all()
    assert str(refused.value).startswith("f: conversations-004.json: larger than 992 bytes")


def test_a_cut_zip_is_refused(fault):
    assert fault(zipped({"conversations.json": talk("hello")})[:-30]) == "f: can't be unpacked: File is not a zip file"


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_packed_content_that_was_changed_is_refused(fault, compression):
    content = bytearray(zipped({"conversations.json": talk("hello")}, compression))
    content[60] ^= 1
    assert fault(bytes(content)).startswith("f: can't be unpacked: ")


def test_a_zip_with_a_password_is_refused(fault):
    content = bytearray(zipped({"conversations.json": talk("hello")}))
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag of an encrypted file
    content[6] |= 1
    assert fault(bytes(content)).startswith("f: can't be unpacked: File 'conversations.json' is encrypted")


def test_a_zip_that_cannot_be_wound_back_is_refused():
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    with pytest.raises(ImportRefused, match="a zip can be read from a file only"):
        read_stream(io.BufferedReader(Pipe(zipped({"conversations.json": "[]"}))), "f")

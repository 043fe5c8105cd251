"""The format of a file, told by its content."""

import json
import random
import zipfile
from contextlib import suppress
from io import BytesIO, StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chat_samples
from paged_chat.app.chats import MessageTree
from paged_chat.app.errors import ImportRefused
from paged_chat.app.porting import read_file, reader, write_json, write_markdown
from paged_chat.app.porting.json_source import MAX_FILE_BYTES
from paged_chat.app.porting.reader import KNOWN


@pytest.mark.parametrize("content", ["", " \n", "\ufeff"])
def test_an_empty_file_is_refused(fault, content):
    assert fault(content) == "f: the file is empty"


@pytest.mark.parametrize("content", ["hello", "# Notes", "42", '"text"', "-"])
def test_what_is_no_chat_is_refused_with_what_is(fault, content):
    assert fault(content) == f"f: not a format of chats: {KNOWN}"


@pytest.mark.parametrize(
    ("content", "place"),
    [("{}", ""), ('{"chats": []}', ""), ("[{}]", "[0] "), ('[[], {"a": 1}]', "[1] "), ('{"format": "x"}', "")],
)
def test_json_of_something_else_is_refused_with_what_is_read(fault, content, place):
    assert fault(content) == f"f: {place}isn't a chat: {KNOWN}"


@pytest.mark.parametrize("content", ["[5]", "[null]", '["x"]'])
def test_a_list_of_something_else_is_refused(fault, content):
    assert fault(content).startswith("f: [0] must be an object, not ")


def test_an_empty_list_holds_no_chats(read):
    assert read("[]").chats == ()


def test_a_picture_is_refused(fault):
    assert fault(b"\x89PNG\r\n\x1a\n") == "f: byte 0 (0x89) isn't UTF-8: invalid start byte"


def test_a_file_is_named_in_the_fault(tmp_path):
    path = tmp_path / "talk.json"
    path.write_text("[[1")
    with pytest.raises(ImportRefused) as refused:
        read_file(path)
    assert str(refused.value) == "talk.json: line 1, column 4: Expecting ',' delimiter; the file ends too early"


@pytest.mark.parametrize(("name", "reason"), [("absent.json", "No such file or directory"), ("", "Is a directory")])
def test_a_file_that_cannot_be_opened(tmp_path, name, reason):
    with pytest.raises(ImportRefused) as refused:
        read_file(tmp_path / name)
    assert str(refused.value) == f"{tmp_path / name}: can't be read: {reason}"


def test_a_huge_file_of_nothing_is_refused_at_once(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as sparse:
        sparse.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(ImportRefused) as refused:
        read_file(path)
    assert str(refused.value) == "huge.json: larger than 536,870,912 bytes, the limit for a file; split it"


def test_more_messages_than_the_memory_should_hold_are_refused(fault, monkeypatch):
    monkeypatch.setattr(reader, "MAX_MESSAGES", 3)
    message = {"role": "user", "content": ""}
    assert fault(json.dumps([message] * 4)) == f"f: {reader.TOO_MANY}"
    assert fault(json.dumps([[message] * 2] * 2)) == f"f: {reader.TOO_MANY}"


def test_more_chats_than_the_memory_should_hold_are_refused(fault, monkeypatch):
    monkeypatch.setattr(reader, "MAX_CHATS", 3)
    assert fault("[[],[],[],[]]") == f"f: {reader.TOO_MANY}"


def whole_files():
    """One small file of each format."""
    tree = MessageTree([chat_samples.message(1, None, "three days?"), chat_samples.reply(2, 1, "Alfama 👩‍👩‍👧")])
    chat = (chat_samples.chat(tree, tags=("a",), system_prompt="Be brief."), tree)
    our_json, markdown = StringIO(), StringIO()
    write_json([chat], our_json)
    write_markdown([chat], markdown)
    nodes = {
        "r": {"id": "r", "message": None, "parent": None, "children": ["q"]},
        "q": {"id": "q", "message": {"author": {"role": "user"}, "content": {"parts": ["hi"]}}, "parent": "r"},
    }
    conversations = json.dumps([{"title": "x", "create_time": 1.5, "mapping": nodes, "current_node": "q"}])
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", conversations)
    lines = '{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}\n' * 2
    texts = [our_json.getvalue(), markdown.getvalue(), conversations, lines]
    return [*(text.encode() for text in texts), packed.getvalue()]


@pytest.mark.parametrize("file", whole_files(), ids=["json", "markdown", "chatgpt", "lines", "zip"])
@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_a_file_changed_anywhere_is_read_or_refused(read, file, seed):
    """Whatever happens to a file, nothing but ImportRefused comes out; some changes only change a text."""
    chance = random.Random(seed)
    changed = bytearray(file)
    for _ in range(chance.randint(1, 3)):
        position = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[position] = chance.randrange(256)
            case 1:
                del changed[position : position + chance.randint(1, 20)]
            case 2:
                changed[position:position] = changed[position : position + chance.randint(1, 20)]
            case 3:
                changed[position:position] = chance.choice(
                    [b"null", b"-1", b"[", b"{", b'"', b"1e999", b"\\ud800", b"\xff"]
                )
    with suppress(ImportRefused):
        read(bytes(changed))

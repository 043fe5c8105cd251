"""The format of a file, told by its content."""

import pytest

from paged_chat.app.errors import ImportRefused
from paged_chat.app.porting import read_file
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
    assert str(refused.value) == "huge.json: larger than 1,073,741,824 bytes, the limit for a file; split it"

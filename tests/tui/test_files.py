"""Files named in a prompt."""

import pytest

from paged_chat.app.errors import AttachmentRefused
from paged_chat.tui.files import attachments_in, matching_paths, mentioned, missing


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("remember")
    (tmp_path / "my notes.txt").write_text("spaces")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.py").write_text("x = 1")
    (tmp_path / ".hidden").write_text("h")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\x00\x01")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("sum up @notes.txt", ["notes.txt"]),
        ("@notes.txt, and @sub/inner.py.", ["notes.txt", "sub/inner.py"]),
        ('@"my notes.txt" please', ["my notes.txt"]),
        ("@notes.txt and again @notes.txt", ["notes.txt"]),
        ("mail me@notes.txt", []),
        ("@nobody said so", []),
        ("@sub is a folder", []),
        ("@" + "x" * 5000, []),
    ],
)
def test_only_files_that_are_there_are_meant(text, names):
    assert [str(path) for path in mentioned(text)] == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@note.txt, please", ["note.txt"]),
        ('@notes.txt @"your notes.txt" @sub/', ["your notes.txt", "sub/"]),
        ("@nobody said so, write to me@example.org", []),
    ],
)
def test_a_name_like_a_files_where_none_is_may_be_mistyped(text, names):
    assert missing(text) == names


def test_files_are_read(folder):
    [attachment] = attachments_in("@sub/inner.py")
    assert (attachment.name, attachment.text) == ("inner.py", "x = 1")
    with pytest.raises(AttachmentRefused, match="isn't text in UTF-8"):
        attachments_in("@picture.png")


@pytest.mark.parametrize(
    ("word", "matches"),
    [
        ("@no", ["@notes.txt"]),
        ("@su", ["@sub/"]),
        ("@sub/", ["@sub/inner.py"]),
        ("@my", ['@"my notes.txt"']),
        ("@.h", ["@.hidden"]),
        ("@nothing", []),
        ("@gone/x", []),
        ("no", []),
    ],
)
def test_completion(word, matches):
    assert matching_paths(word) == matches

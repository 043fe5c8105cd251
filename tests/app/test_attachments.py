"""Files beside a message: what is taken, and the form that the model reads."""

import pytest

from paged_chat.app.attachments import (
    MAX_ATTACHMENT_BYTES,
    Attachment,
    attachment_from_bytes,
    read_attachment,
    with_attachments,
)
from paged_chat.app.errors import AttachmentRefused


def test_a_file_stands_before_the_message_under_its_name():
    text = with_attachments("What does it do?", [Attachment("hello.py", "print('hi')\n")])
    assert text == "File hello.py:\n```\nprint('hi')\n```\n\nWhat does it do?"


def test_several_files_in_order_and_a_message_without_words():
    text = with_attachments("", [Attachment("a.txt", "one"), Attachment("b.txt", "two")])
    assert text == "File a.txt:\n```\none\n```\n\nFile b.txt:\n```\ntwo\n```"


def test_without_files_the_message_stays_as_it_is():
    assert with_attachments(" as typed\n", []) == " as typed\n"


@pytest.mark.parametrize(
    ("content", "fence"),
    [("```\ncode\n```", "````"), ("  ````py\n````", "`````"), ("a ``` in the middle of a line", "```")],
)
def test_a_file_can_not_close_its_fence(content, fence):
    assert with_attachments("", [Attachment("n.md", content)]) == f"File n.md:\n{fence}\n{content}\n{fence}"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("naïve 你好\n".encode(), "naïve 你好\n"),
        (b"\xef\xbb\xbfbom", "bom"),
        ("utf-16 as Windows saves it".encode("utf-16"), "utf-16 as Windows saves it"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b[31mred\x1b[0m\tand\x0cform feed", "\x1b[31mred\x1b[0m\tand\x0cform feed"),
    ],
)
def test_text_is_read_as_people_save_it(content, text):
    assert attachment_from_bytes("notes.txt", content) == Attachment("notes.txt", text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\x00", "isn't text in UTF-8"),
        (b"abc\x00def", "isn't a text file"),
        (b"caf\xe9", "isn't text in UTF-8"),
        (b" \n", "is empty"),
        (b"", "is empty"),
        (b"x" * (MAX_ATTACHMENT_BYTES + 1), "has 1,000,001 bytes"),
    ],
)
def test_what_is_no_text_or_too_much_is_refused_by_name(tmp_path, content, reason):
    path = tmp_path / "thing.bin"
    path.write_bytes(content)
    with pytest.raises(AttachmentRefused, match=f"thing.bin {reason}"):
        read_attachment(path)
    with pytest.raises(AttachmentRefused, match=f"thing.bin {reason}"):
        attachment_from_bytes("folder/thing.bin", content)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(AttachmentRefused, match="can't be read: No such file"):
        read_attachment(tmp_path / "gone.txt")
    with pytest.raises(AttachmentRefused, match="can't be read"):
        read_attachment(tmp_path)


@pytest.mark.parametrize("name", ["/etc/secret/notes.txt", "C:\\Users\\me\\notes.txt", "notes.txt"])
def test_folders_are_nobody_s_business(name):
    assert attachment_from_bytes(name, b"x").name == "notes.txt"

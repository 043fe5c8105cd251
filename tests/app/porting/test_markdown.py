"""Markdown that people read, and from which chats come back to the byte."""

from io import StringIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import chat_samples
from paged_chat.app.chats import MessageTree
from paged_chat.app.errors import ImportRefused
from paged_chat.app.porting import write_markdown
from paged_chat.app.porting.markdown_reader import MarkdownReader

TREE = MessageTree(
    [
        chat_samples.message(1, None, "three days, no museums"),
        chat_samples.reply(2, 1, "Day one: Alfama.\n\n- tram 28\n- a view"),
        chat_samples.reply(4, 1, "Belém first", status="stopped"),
        chat_samples.message(5, 2, "and *the* second?"),
        chat_samples.message(6, None, "Lisbon"),
    ]
)
CHAT = chat_samples.chat(TREE, title="Trip to _Lisbon_", system_prompt="Be brief.", active_leaf_id=5)
BODY = """\
<!-- paged-chat:chat 1 -->
# Trip to \\_Lisbon\\_

<!-- paged-chat:system -->
## System prompt

Be brief.

<!-- paged-chat:message 1 -->
## You

three days, no museums

<!-- paged-chat:message 2 -->
## Assistant

Day one: Alfama.

- tram 28
- a view

<!-- paged-chat:message 5 -->
## You

and *the* second?

<!-- paged-chat:branches -->
# Other branches

<!-- paged-chat:message 4 -->
## Assistant (stopped), in reply to “three days, no museums”

Belém first

<!-- paged-chat:message 6 -->
## You, as another beginning

Lisbon

<!-- paged-chat:record
"""


def written(*chats):
    out = StringIO()
    write_markdown(chats, out)
    return out.getvalue()


def headings(document):
    """What a reader sees as headings, at the outermost level."""
    tokens = MarkdownIt("commonmark").parse(document)
    return [
        tokens[index + 1].content
        for index, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0
    ]


def test_the_shown_path_comes_first_then_the_other_branches():
    document = written((CHAT, TREE))
    assert document.startswith(BODY)
    assert document.endswith("]}\n-->\n")


@settings(deadline=None, max_examples=40)
@given(st.lists(chat_samples.chats(), min_size=1, max_size=3))
def test_any_chats_come_back_equal(read, chats):
    assert read(written(*chats)).chats == tuple(chat_samples.imported(*chat) for chat in chats)


@settings(deadline=None)
@given(chat_samples.any_text, chat_samples.any_text)
@example("```python\nprint(1)", "after a cut block")
@example("<!-- a comment", "after a cut comment")
@example("text\r", "\r\n")
@example("\n\n\n", "")
@example("- item\n  ```\n  code", "after a block in a list")
@example("<!-- paged-chat:record", r"\\<!-- paged-chat:message 2 -->")
def test_any_texts_come_back_to_the_byte_and_hide_no_heading(read, question, answer):
    tree = MessageTree([chat_samples.message(1, None, question), chat_samples.reply(2, 1, answer)])
    document = written((chat_samples.chat(tree), tree))
    [chat] = read(document).chats
    assert [message.text for message in chat.messages] == [question, answer]
    assert headings(document)[:2] == ["Trip to Lisbon", "You"]
    assert "Assistant" in headings(document)


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("```", "```"),
        ("````python\nx", "````"),
        ("~~~~", "~~~~"),
        ("```\nx\n```", None),
        ("> ```\n> x", None),
        ("<pre>", "</pre>"),
        ("<SCRIPT>", "</pre>"),
        ("<!-- x", "-->"),
        ("<!-- x -->", None),
        ("<?php", "?>"),
        ("<![CDATA[", "]]>"),
        ("<!DOCTYPE", ">"),
        ("<div>", None),
        ("1 < 2", None),
    ],
)
def test_what_a_cut_reply_leaves_open_is_closed(read, text, closing):
    tree = MessageTree([chat_samples.message(1, None, text)])
    document = written((chat_samples.chat(tree), tree))
    ending = f"{text}\n\n<!-- paged-chat:record" if closing is None else f"{text}\n{closing}\n\n<!-- paged-chat:record"
    assert ending in document
    assert ("<!-- paged-chat:message 1 closed -->" in document) == (closing is not None)
    assert read(document).chats[0].messages[0].text == text


def test_edited_texts_are_taken_as_they_are(read):
    document = (
        written((CHAT, TREE)).replace("Day one: Alfama.", "Day one:\n\nGraça.").replace("no museums\n\n<", "none\n<")
    )
    [chat] = read(document).chats
    assert chat.messages[1].text == "Day one:\n\nGraça.\n\n- tram 28\n- a view"
    assert chat.messages[0].text == "three days, none"
    assert [message.token_ids for message in chat.messages] == [None, None, (26, 77, 2), None, None]


def test_a_file_whose_line_ends_an_editor_changed_is_read(read):
    document = written((CHAT, TREE)).replace("\n", "\r\n")
    assert read(document).chats == (chat_samples.imported(CHAT, TREE),)
    assert read("\ufeff" + document).chats == (chat_samples.imported(CHAT, TREE),)


def changed(old, new):
    document = written((CHAT, TREE))
    assert old in document
    return document.replace(old, new, 1)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<html>", "f: line 1: not Markdown that paged-chat wrote, which begins with <!-- paged-chat:chat 1 -->"),
        ("<b>\n" + BODY, "f: line 1: not Markdown that paged-chat wrote, which begins with <!-- paged-chat:chat 1 -->"),
        (
            BODY[: BODY.index("<!-- paged-chat:record")],
            "f: line 40: the file ends too early: <!-- paged-chat:record is missing",
        ),
        (BODY, "f: line 40: the record must end with a line --> and nothing may follow it"),
        (BODY * 2, "f: line 40: the record must end with a line --> and nothing may follow it"),
        (
            changed(" -->\n# Other", " -->\n<!-- paged-chat:chat 1 -->\n# Other"),
            "f: line 28: the chat before this one has no record at its end",
        ),
        (
            changed("<!-- paged-chat:chat 1 -->", "<!-- paged-chat:system -->"),
            "f: line 1: a chat must begin with <!-- paged-chat:chat 1 -->",
        ),
        (
            changed("chat 1 -->", "chat 2 -->"),
            "f: line 1: version 2, from a newer paged-chat; this one reads version 1: update it, then import again",
        ),
        (
            changed("message 4 -->", "message four -->"),
            'f: line 30: "<!-- paged-chat:message four -->" isn\'t a comment that this version knows',
        ),
        (
            changed("message 4 -->", "message 4"),
            'f: line 30: "<!-- paged-chat:message 4" isn\'t a comment that this version knows',
        ),
        (
            changed("message 1 -->", "system -->"),
            "f: line 9: the chat has a system prompt already",
        ),
        (changed("message 4 -->", "message 5 -->"), "f: line 30: message 5 is in line 22 too"),
        (
            changed("message 4 -->", "message 8 -->"),
            "f: record in line 40: messages[2].id is 4, which no text in the file has",
        ),
        (changed('{"id": 6,', '{"id": 4,'), "f: record in line 40: messages[4].id is 4, which no text in the file has"),
        (
            changed("## Assistant\n\n", "Assistant: "),
            "f: line 15: a heading (## …) and an empty line must stand before a text",
        ),
        (
            changed('"role": "assistant"', '"role": "robot"'),
            'f: record in line 40: messages[1].role must be "user" or "assistant", not "robot"',
        ),
        (changed('"role": "assistant",', '"role": "assistant"'), "f: line 43, column 44: Expecting ',' delimiter"),
        (
            changed("]}\n-->", "]}\n-->\nmore"),
            "f: line 40: the record must end with a line --> and nothing may follow it",
        ),
        (changed("<!-- paged-chat:record\n", "<!-- paged-chat:record\n5 "), "f: line 41, column 3: Extra data"),
        (BODY.encode()[:200] + b"\xff", "f: byte 200 (0xff) isn't UTF-8: invalid start byte"),
    ],
)
def test_a_fault_is_named_with_its_place(fault, content, expected):
    assert fault(content) == expected


def test_a_message_that_the_record_lost_is_named(fault):
    document = written((CHAT, TREE))
    [line] = [line for line in document.splitlines(keepends=True) if line.startswith('{"id": 4,')]
    assert fault(document.replace(line, "")) == "f: line 30: message 4 isn't in the chat's record"


def test_a_file_larger_than_the_limit_is_refused(tmp_path):
    path = tmp_path / "f.md"
    path.write_text(written((CHAT, TREE)))
    with path.open("rb") as stream, pytest.raises(ImportRefused) as refused:
        MarkdownReader(stream, "f.md", max_bytes=1000)
    assert str(refused.value) == "f.md: larger than 1,000 bytes, the limit for Markdown; export to JSON"

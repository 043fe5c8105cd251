"""Titles, and the tree of messages, without a database."""

from datetime import UTC, datetime

import pytest

from paged_chat.app.attachments import Attachment, with_attachments
from paged_chat.app.chats import Message, MessageTree, own_title, title_from

NOTES = Attachment("notes.md", "# Notes\n```\ncode\n```")

#  1 ─ 2 ─ 3 ─ 4
#   │   └─ 5 ─ 6     two ways to go on below 2, and two replies to 5
#   │       └─ 7
#   └─ 8             another reply to 1
#  9                 the first message, edited
PARENTS = {1: None, 2: 1, 3: 2, 4: 3, 5: 2, 6: 5, 7: 5, 8: 1, 9: None}


@pytest.fixture
def tree() -> MessageTree:
    return MessageTree(
        Message(id=id, chat_id="c", parent_id=parent, role="user", text=str(id), created_at=datetime.now(UTC))
        for id, parent in PARENTS.items()
    )


def ids(messages: list[Message]) -> list[int]:
    return [message.id for message in messages]


def test_a_path_leads_from_the_root_to_the_leaf(tree):
    assert ids(tree.path(7)) == [1, 2, 5, 7]
    assert ids(tree.path(9)) == [9]
    assert tree.path(None) == []


def test_siblings_stand_in_the_order_in_which_they_were_added(tree):
    assert ids(tree.siblings(7)) == [6, 7]
    assert ids(tree.siblings(8)) == [2, 8]
    assert ids(tree.siblings(1)) == [1, 9]
    assert ids(tree.children(None)) == [1, 9]
    assert tree.children(4) == []


def test_walking_to_a_sibling_goes_on_by_its_newest_children(tree):
    assert tree.newest_leaf(2) == 7
    assert tree.newest_leaf(3) == 4
    assert tree.newest_leaf(9) == 9


def test_a_branch_is_a_message_and_all_below_it(tree):
    assert tree.branch(2) == {2, 3, 4, 5, 6, 7}
    assert tree.branch(4) == {4}


def test_a_tree_is_asked_by_id(tree):
    assert tree[5].text == "5"
    assert 5 in tree
    assert 10 not in tree
    assert len(tree) == 9
    assert ids(list(tree)) == list(PARENTS)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Three days in Lisbon", "Three days in Lisbon"),
        ("\n  \n  What is \t a monad?  \nIn one sentence.", "What is a monad?"),
        ("", "New chat"),
        (" \n\t\n", "New chat"),
        ("word " * 30, "word word word word word word word word word word word word…"),
        ("x" * 61, "x" * 59 + "…"),
        ("x" * 60, "x" * 60),
        ("x" * 59 + " tail", "x" * 59 + "…"),
        ("a " + "x" * 80, "a " + "x" * 57 + "…"),
        ("日本語で三日間の旅程を考えてください。" * 4, ("日本語で三日間の旅程を考えてください。" * 4)[:59] + "…"),
        (with_attachments("When is\nthe vote?", [NOTES, NOTES]), "When is"),
        (with_attachments("", [NOTES, Attachment("b.txt", "b")]), "notes.md"),
        ("File notes.md:\n```\nthat never ends", "File notes.md:"),
    ],
)
def test_the_first_line_is_the_title(text, title):
    assert title_from(text) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  Lisbon\n\tin May ", "Lisbon in May"),
        (" \n", ""),
        ("x" * 300, "x" * 300),
        ("x" * 1_000_000, "x" * 299 + "…"),
        ("x" * 298 + " tail of it", "x" * 298 + "…"),
    ],
)
def test_a_title_that_somebody_gives_is_one_line_that_a_list_can_show(text, title):
    assert own_title(text) == title

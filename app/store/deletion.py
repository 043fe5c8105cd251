"""Deleting that can be undone: what is deleted is marked, and removed when the store that deleted it closes.

Deleted things are in no list, tree or search, but keep their ids. A branch is marked from its top down; what was
deleted below it before keeps its own mark, so undoing the later deletion doesn't undo the earlier one.
"""

from __future__ import annotations

from sqlite3 import Connection

from ..chats import Chat, MessageTree
from ..errors import ChatNotFound, MessageNotFound
from . import chat_table, message_table
from .writer_id import is_alive

CANNOT_RESTORE = "this can't be brought back any more: the program in which it was deleted has been closed"


def delete_chat(connection: Connection, chat_id: str, *, by: str) -> None:
    """Raises ChatNotFound."""
    chat_table.touch(connection, chat_id, deleted_by=by)


def restore_chat(connection: Connection, chat_id: str) -> Chat:
    """Undoes `delete_chat`; raises ChatNotFound where it is gone. Without effect on a chat that isn't deleted."""
    found = connection.execute(
        "UPDATE chats SET version = version + 1, deleted_by = NULL WHERE id = ? AND deleted_by IS NOT NULL", (chat_id,)
    )
    if not found.rowcount:
        raise ChatNotFound(CANNOT_RESTORE)
    return chat_table.get(connection, chat_id)


def delete_message(connection: Connection, message_id: int, *, by: str) -> Chat:
    """Deletes a message and all that hangs below it; what is shown moves to the newest of what is left beside or above.

    Raises MessageNotFound.
    """
    message = message_table.get(connection, message_id)
    chat = chat_table.get(connection, message.chat_id)
    tree = message_table.tree(connection, message.chat_id)
    branch = tree.branch(message_id)
    connection.executemany(
        "UPDATE messages SET deleted_by = ?, deleted_with = ? WHERE id = ?",
        [(by, message_id, deleted_id) for deleted_id in branch],
    )
    active_leaf_id = chat.active_leaf_id
    if active_leaf_id in branch:
        connection.execute("UPDATE messages SET active_leaf_before = ? WHERE id = ?", (active_leaf_id, message_id))
        active_leaf_id = _leaf_beside(tree, message_id)
    chat_table.touch(connection, chat.id, active_leaf_id=active_leaf_id)
    return chat_table.get(connection, chat.id)


def restore_message(connection: Connection, chat_id: str, message_id: int) -> Chat:
    """Undoes `delete_message`, what was shown too.

    Raises ChatNotFound, and MessageNotFound where it is gone, its parent is deleted, or it is another chat's.
    """
    chat = chat_table.get(connection, chat_id)
    row = connection.execute(
        "SELECT parent_id, active_leaf_before FROM messages WHERE id = ? AND chat_id = ? AND deleted_with = id",
        (message_id, chat_id),
    ).fetchone()
    if row is None:
        raise MessageNotFound(CANNOT_RESTORE)
    if row["parent_id"] is not None:
        message_table.get(connection, row["parent_id"])
    connection.execute(
        "UPDATE messages SET deleted_by = NULL, deleted_with = NULL, active_leaf_before = NULL WHERE deleted_with = ?",
        (message_id,),
    )
    chat_table.touch(connection, chat_id, active_leaf_id=row["active_leaf_before"] or chat.active_leaf_id)
    return chat_table.get(connection, chat_id)


def purge(connection: Connection, *, of: str) -> None:
    """Removes for good what the store `of` deleted, and what such deleted as don't live any more."""
    deleters = connection.execute(
        "SELECT deleted_by FROM chats WHERE deleted_by IS NOT NULL "
        "UNION SELECT deleted_by FROM messages WHERE deleted_with IS NOT NULL"
    ).fetchall()
    for (deleter,) in deleters:
        if deleter == of or not is_alive(deleter):
            connection.execute("DELETE FROM chats WHERE deleted_by = ?", (deleter,))
            # What was deleted below it before, perhaps by a store that still lives, can't be brought back without it.
            connection.execute(
                """
                WITH RECURSIVE gone (id) AS (
                    SELECT id FROM messages WHERE deleted_with IS NOT NULL AND deleted_by = ?
                    UNION SELECT messages.id FROM messages JOIN gone ON messages.parent_id = gone.id
                )
                DELETE FROM messages WHERE id IN gone
                """,
                (deleter,),
            )


def _leaf_beside(tree: MessageTree, message_id: int) -> int | None:
    others = [sibling.id for sibling in tree.siblings(message_id) if sibling.id != message_id]
    return tree.newest_leaf(others[-1]) if others else tree[message_id].parent_id

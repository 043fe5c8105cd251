"""What stands in a conversation from top to bottom: the path to the leaf, and where versions stand side by side."""

from __future__ import annotations

from dataclasses import dataclass

from paged_chat.app.chats import Message, MessageTree


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in one place of the path: a message, or several of its siblings side by side.

    place: of the message among its siblings; of several, of the one that was asked for.
    """

    messages: tuple[Message, ...]
    place: int = 0
    num_siblings: int = 1

    @property
    def key(self) -> tuple[int, ...]:
        return tuple(message.id for message in self.messages)

    @property
    def is_group(self) -> bool:
        return len(self.messages) > 1


def rows_of(tree: MessageTree, leaf_id: int | None, compared_id: int | None) -> list[Row]:
    """The path to the leaf; where `compared_id` is on it, its siblings side by side end the view."""
    rows = []
    for message in tree.path(leaf_id):
        siblings = tree.siblings(message.id)
        place = siblings.index(message)
        if message.id == compared_id and len(siblings) > 1:
            rows.append(Row(tuple(siblings), place))
            break
        rows.append(Row((message,), place, len(siblings)))
    return rows

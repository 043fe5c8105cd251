"""What stands in a conversation from top to bottom: the path to the leaf, and where versions stand side by side."""

from __future__ import annotations

from dataclasses import dataclass

from paged_chat.app.chats import Message, MessageTree


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in one place of the path: a message, or several of its siblings side by side.

    place: of the message that is on the path, among its siblings.
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
    """The path to the leaf; where `compared_id` or a sibling of it is on it, all of them side by side end the view."""
    rows = []
    for message in tree.path(leaf_id):
        siblings = tree.siblings(message.id)
        place = siblings.index(message)
        if len(siblings) > 1 and compared_id in [sibling.id for sibling in siblings]:
            rows.append(Row(tuple(siblings), place))
            break
        rows.append(Row((message,), place, len(siblings)))
    return rows

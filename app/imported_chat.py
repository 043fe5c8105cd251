"""A chat that isn't in a store yet: its messages know each other by their place in a list."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from paged_chat.engine.request import SamplingParams

from .chats import MessageContent


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage(MessageContent):
    """One message; `parent` is an index into the chat's `messages`.

    A "draft" becomes "stopped": nobody is writing it.
    """

    parent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedChat:
    """A whole chat; the fields are those of `Chat`, but `active_leaf` is an index into `messages`.

    Always: a message stands after its parent, and siblings in the order in which they were added. Whoever reads a file
    checks this and names the place of the fault; here it is only asserted.
    """

    title: str
    has_own_title: bool = False
    is_pinned: bool = False
    is_archived: bool = False
    tags: tuple[str, ...] = ()
    system_prompt: str | None = None
    model: str | None = None
    sampling: SamplingParams | None = None  # of a program that doesn't tell: as a new chat's, where it comes to
    messages: tuple[ImportedMessage, ...] = ()
    active_leaf: int | None = None
    created_at: datetime  # with a time zone
    updated_at: datetime

    def __post_init__(self) -> None:
        for index, message in enumerate(self.messages):
            assert message.parent is None or 0 <= message.parent < index, f"message {index} stands before its parent"
        assert self.active_leaf is None or 0 <= self.active_leaf < len(self.messages), "the active leaf doesn't exist"


def with_sampling(chats: Iterable[ImportedChat], default: SamplingParams) -> Iterator[ImportedChat]:
    """The chats; those that don't tell how their replies are drawn with `default`."""
    for chat in chats:
        yield chat if chat.sampling is not None else replace(chat, sampling=default)

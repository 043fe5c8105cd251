"""People's chats: each one a tree of messages that never change, and the leaf that is shown.

Editing, retrying and asking for several replies add siblings; nothing is overwritten. What is shown is the path from a
root to the active leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal

from paged_chat.engine.request import FinishReason, TokenLogprobs

# Also for the terminal's screens, which import nothing of the engine.
from paged_chat.engine.request import SamplingParams as SamplingParams

from .attachments import without_attachments
from .errors import MessageNotFound

MessageRole = Literal["user", "assistant"]
MessageStatus = Literal["draft", "done", "stopped", "failed"]

# One for each token of a reply, None where it wasn't kept; empty where none was.
KeptLogprobs = tuple[TokenLogprobs | None, ...]

# Messages of temporary chats have ids from here on, so that an id alone tells where a message is kept. JavaScript and
# JSON hold such numbers exactly.
FIRST_TEMPORARY_MESSAGE_ID = 2**52

UNTITLED = "New chat"
MAX_TITLE_LENGTH = 60
MAX_OWN_TITLE_LENGTH = 300


def title_from(text: str) -> str:
    """A chat's title: the first line with something in it, cut between words where it is long.

    What is attached is no title; where a message is nothing else, the first file's name is.
    """
    lines = (" ".join(line.split()) for line in without_attachments(text).splitlines())
    line = next(filter(None, lines), UNTITLED)
    if len(line) <= MAX_TITLE_LENGTH:
        return line
    cut = line[: MAX_TITLE_LENGTH - 1]
    # Chinese and Japanese have no spaces to cut at; nor does an address.
    words = cut.rpartition(" ")[0] if not line[MAX_TITLE_LENGTH - 1].isspace() else cut
    return (words if len(words) > MAX_TITLE_LENGTH // 2 else cut).rstrip() + "…"


def own_title(text: str) -> str:
    """A title that a person or a file gives, as it is kept: one line, no longer than a list can show."""
    title = " ".join(text.split())
    return title if len(title) <= MAX_OWN_TITLE_LENGTH else title[: MAX_OWN_TITLE_LENGTH - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """What is known about a chat beside its messages; `version` counts every change to the chat or its messages.

    user: whose chat it is; "" is the one person of a machine without accounts.
    has_own_title: the person named it, so the first line of a message no longer does.
    model: the one that the person wants here; None is whatever answers. See `ModelNotice` for when it isn't loaded.
    active_leaf_id: the last message of the path that is shown; None while the chat is empty.
    """

    id: str  # 32 hex digits, drawn at random: ids of other people's chats can't be guessed
    user: str = ""
    title: str
    has_own_title: bool = False
    is_pinned: bool = False
    is_archived: bool = False
    is_temporary: bool = False  # kept in memory only
    tags: tuple[str, ...] = ()
    system_prompt: str | None = None
    model: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    active_leaf_id: int | None = None
    version: int = 0
    created_at: datetime  # with a time zone, UTC
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCost:
    """What a reply took, and what the cache saved: token counts, milliseconds, tokens a second after the first."""

    num_cached_tokens: int
    num_computed_tokens: int
    num_generated_tokens: int
    ttft_ms: float | None
    tokens_per_s: float | None
    num_accepted_tokens: int = 0  # of the generated ones, those that were guessed ahead and saved a step


@dataclass(frozen=True, slots=True)
class ReplyVariant:
    """Under which name a reply was asked for in a comparison, and the system prompt that its question stood under.

    system_prompt: None is none, whatever the chat's own says now.
    """

    name: str
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContent:
    """What a message says and how it came about, wherever it stands.

    token_ids: of a reply, as the model wrote it, the end token included; None for what a person wrote.
    model, sampling, cost: of a reply.
    variant: of a reply that was asked for beside others of other settings.
    status: "draft" while a reply grows; "stopped" by the person, or by the end of the process that was writing it.
    error: why it failed, for people to read.
    """

    role: MessageRole
    text: str
    token_ids: tuple[int, ...] | None = None
    model: str | None = None
    sampling: SamplingParams | None = None
    variant: ReplyVariant | None = None
    cost: ReplyCost | None = None
    finish_reason: FinishReason | None = None
    status: MessageStatus = "done"
    error: str | None = None
    created_at: datetime  # with a time zone, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(MessageContent):
    """One message of a chat."""

    id: int
    chat_id: str
    parent_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReply:
    """A reply that is about to be written: by which model (None is the default one), and how it is drawn.

    sampling: this reply's own: n is 1, and the seed is the one it will be drawn with.
    variant: of one of several settings that are compared.
    text, token_ids, logprobs: what it begins with, of a branch from within another reply.
    """

    model: str | None
    sampling: SamplingParams
    variant: ReplyVariant | None = None
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: KeptLogprobs = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What `Store.add_turn` added: the person's message, unless it was a retry, and the drafts of the replies."""

    user_message: Message | None
    replies: tuple[Message, ...]


class MessageTree:
    """The messages of one chat, by id; siblings stand in the order in which they were added.

    Always: a parent's id is smaller than its children's, and belongs to the same tree.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._by_id: Mapping[int, Message] = {message.id: message for message in messages}

    def __getitem__(self, message_id: int) -> Message:
        return self._by_id[message_id]

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._by_id

    def __iter__(self) -> Iterator[Message]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, message_id: int) -> Message:
        """Raises MessageNotFound for one that isn't here, where `tree[message_id]` takes it for granted."""
        if message_id not in self._by_id:
            raise MessageNotFound("there is no such message in this chat, or it was deleted; open the chat again")
        return self._by_id[message_id]

    def path(self, leaf_id: int | None) -> list[Message]:
        """From a root to the leaf; empty for None. Raises MessageNotFound."""
        path: list[Message] = []
        while leaf_id is not None:
            message = self.find(leaf_id)
            path.append(message)
            leaf_id = message.parent_id
        return path[::-1]

    def children(self, message_id: int | None) -> list[Message]:
        """Those that answer a message; the roots for None."""
        return self._children.get(message_id, [])

    def siblings(self, message_id: int) -> list[Message]:
        """All children of a message's parent, itself among them."""
        return self.children(self._by_id[message_id].parent_id)

    def newest_leaf(self, message_id: int) -> int:
        """Where the path goes on from a message when the person walks to it: always by the newest child."""
        while children := self.children(message_id):
            message_id = children[-1].id
        return message_id

    def branch(self, message_id: int) -> set[int]:
        """The ids of a message and of all that hangs below it."""
        branch: set[int] = set()
        waiting = [message_id]
        while waiting:
            branch.add(top_id := waiting.pop())
            waiting += [child.id for child in self.children(top_id)]
        return branch

    @cached_property
    def _children(self) -> dict[int | None, list[Message]]:
        children: dict[int | None, list[Message]] = {}
        for message in sorted(self._by_id.values(), key=lambda message: message.id):
            children.setdefault(message.parent_id, []).append(message)
        return children

"""What a page shows of chats and messages, as it is sent: plain values, in JSON under the names of the fields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..chats import Chat, Message, MessageRole, MessageStatus, MessageTree, ReplyCost
from ..load_words import STAGE_WORDS
from ..service.chat_events import EngineStatus
from ..store.chat_search import SearchHit
from .markdown import render_question, render_reply
from .panel_strip import StripView, strip_view


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEntry:
    """A chat in the list."""

    id: str
    title: str
    is_pinned: bool
    is_archived: bool
    is_temporary: bool
    is_running: bool
    updated_at: float  # seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """A message on the page.

    blocks: its HTML; None for a reply that is being written here, whose text comes bit by bit.
    sibling_ids: in the order of their making, the message's own among them.
    name: of one that was asked for under several settings.
    can_continue: it was cut short, and nothing follows it.
    """

    id: int
    role: MessageRole
    status: MessageStatus
    text: str
    blocks: tuple[str, ...] | None
    sibling_ids: tuple[int, ...]
    can_continue: bool
    model: str | None
    name: str | None
    cost: ReplyCost | None
    strip: StripView | None
    finish_reason: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HitView:
    """A place where a search found something: pieces of text, every other one (the second, the fourth) a match."""

    chat_id: str
    message_id: int | None
    title: str
    pieces: tuple[str, ...]


def chat_entry(chat: Chat, running_chat_ids: Iterable[str]) -> ChatEntry:
    return ChatEntry(
        id=chat.id,
        title=chat.title,
        is_pinned=chat.is_pinned,
        is_archived=chat.is_archived,
        is_temporary=chat.is_temporary,
        is_running=chat.id in running_chat_ids,
        updated_at=chat.updated_at.timestamp(),
    )


def message_view(message: Message, tree: MessageTree, *, is_live: bool) -> MessageView:
    """is_live: this program is writing it, so that its text is told elsewhere."""
    is_reply = message.role == "assistant"
    is_cut = message.status in ("stopped", "failed") or message.finish_reason == "length"
    render = render_reply if is_reply else render_question
    return MessageView(
        id=message.id,
        role=message.role,
        status=message.status,
        text="" if is_live else message.text,
        blocks=None if is_live else render(message.text),
        sibling_ids=tuple(sibling.id for sibling in tree.siblings(message.id)),
        can_continue=is_reply and not is_live and is_cut and not tree.children(message.id),
        model=message.model,
        name=None if message.variant is None else message.variant.name,
        cost=message.cost,
        strip=strip_view(message.cost),
        finish_reason=message.finish_reason,
        error=message.error,
    )


def hit_view(hit: SearchHit) -> HitView:
    pieces: list[str] = []
    position = 0
    for start, end in hit.highlights:
        pieces += [hit.snippet[position:start], hit.snippet[start:end]]
        position = end
    return HitView(
        chat_id=hit.chat.id,
        message_id=hit.message_id,
        title=hit.chat.title,
        pieces=(*pieces, hit.snippet[position:]),
    )


def engine_view(status: EngineStatus) -> dict[str, Any]:
    """How the model stands; the stage of its loading has `words`."""
    view = asdict(status)
    if status.progress is not None:
        view["progress"]["words"] = STAGE_WORDS[status.progress.stage].capitalize()
    if status.fetch is not None and status.fetch.progress is not None:
        view["fetch"]["progress"]["words"] = STAGE_WORDS[status.fetch.progress.stage].capitalize()
    return view


def columns_of(tree: MessageTree, leaf_id: int | None) -> tuple[int, ...]:
    """The replies that were asked for at once with the leaf and wait for one to be picked; empty if it is alone.

    Once one is answered, it was picked.
    """
    if leaf_id is None or tree[leaf_id].role != "assistant":
        return ()
    leaf = tree[leaf_id]
    group = [sibling for sibling in tree.siblings(leaf_id) if sibling.created_at == leaf.created_at]
    if len(group) < 2 or any(tree.children(reply.id) for reply in group):
        return ()
    return tuple(reply.id for reply in group)

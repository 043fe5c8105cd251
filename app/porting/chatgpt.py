"""ChatGPT's export: conversations whose messages stand in a `mapping` of nodes, with every branch.

A node without a message is a root. Between what a person wrote and what was answered stand nodes that ChatGPT doesn't
show either: its own system messages, calls of tools and what they gave, reasoning. They are left out, and what follows
them answers the last message that is kept. Replies that then follow each other without a branch become one, as they are
on its page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from paged_chat.engine.request import FinishReason

from ..chats import MessageRole, title_from
from ..imported_chat import ImportedChat, ImportedMessage
from .content_parts import parts_text
from .fields import Fields, is_shown_everywhere, shown

# The content types that are left out, and as what they are counted.
LEFT_OUT_TYPES = {
    "thoughts": "reasoning",
    "reasoning_recap": "reasoning",
    "user_editable_context": "custom instructions",
    "model_editable_context": "custom instructions",
}
FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "max_tokens": "length", "interrupted": "abort"}


def chat_from_conversation(fields: Fields, left_out: Counter[str], now: datetime) -> ImportedChat:
    """One conversation with all its branches; what a chat can't hold is counted in `left_out`."""
    created_at = fields.optional("create_time", lambda name: _moment(fields, name)) or now
    conversation = Conversation(created_at, left_out)
    for node_id, parent_id, node in _in_order(fields.fields("mapping")):
        conversation.add(node_id, parent_id, node.optional("message", node.fields))
    messages, index_of = conversation.messages()
    active_leaf = len(messages) - 1 if messages else None
    current_id = fields.optional("current_node", fields.text)
    if current_id is not None:
        if current_id not in index_of:
            fields.refuse("current_node", f"names {shown(current_id)}, which isn't in the mapping")
        active_leaf = index_of[current_id]
    title = fields.optional("title", fields.text)
    return ImportedChat(
        title=title or title_from(next((message.text for message in messages if message.role == "user"), "")),
        has_own_title=bool(title),
        is_archived=bool(fields.optional("is_archived", fields.flag)),
        system_prompt=conversation.system_prompt,
        messages=messages,
        active_leaf=active_leaf,
        created_at=created_at,
        updated_at=fields.optional("update_time", lambda name: _moment(fields, name)) or created_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMessage:
    """What is kept of a node's message; `parent_id` is the nearest node above it that is kept."""

    parent_id: str | None
    role: MessageRole
    text: str
    model: str | None
    finish_reason: FinishReason | None
    is_stopped: bool
    created_at: datetime


class Conversation:
    """Takes the nodes of a mapping, each after its parent, and gives the messages that are left of them."""

    def __init__(self, created_at: datetime, left_out: Counter[str]) -> None:
        self.system_prompt: str | None = None
        self._created_at = created_at
        self._left_out = left_out
        self._kept: dict[str, KeptMessage] = {}
        self._nearest: dict[str, str | None] = {}  # of every node: itself where it is kept, else the nearest above it
        self._num_answers = Counter[str | None]()

    def add(self, node_id: str, parent_id: str | None, message: Fields | None) -> None:
        above = None if parent_id is None else self._nearest[parent_id]
        kept = None if message is None else self._keep(message, above)
        self._nearest[node_id] = above
        if kept is not None:
            self._kept[node_id] = kept
            self._nearest[node_id] = node_id
            self._num_answers[above] += 1

    def messages(self) -> tuple[tuple[ImportedMessage, ...], dict[str, int | None]]:
        """The messages, and for each node the index of the one it ended up in, or after."""
        runs: list[list[KeptMessage]] = []
        index_of: dict[str | None, int | None] = {None: None}
        for node_id, message in self._kept.items():
            above = index_of[message.parent_id]
            if above is not None and self._goes_on(message, runs[above][-1]):
                index_of[node_id] = above
                runs[above].append(message)
            else:
                index_of[node_id] = len(runs)
                runs.append([message])
        messages = tuple(
            ImportedMessage(
                parent=index_of[run[0].parent_id],
                role=run[0].role,
                text="\n\n".join(message.text for message in run),
                model=run[-1].model,
                finish_reason=run[-1].finish_reason,
                status="stopped" if run[-1].is_stopped else "done",
                created_at=run[0].created_at,
            )
            for run in runs
        )
        return messages, {node_id: index_of[nearest] for node_id, nearest in self._nearest.items()}

    def _goes_on(self, message: KeptMessage, above: KeptMessage) -> bool:
        return message.role == above.role == "assistant" and self._num_answers[message.parent_id] == 1

    def _keep(self, message: Fields, above: str | None) -> KeptMessage | None:
        role = message.fields("author").text("role")
        content = message.optional("content", message.fields)
        metadata = message.optional("metadata", message.fields) or Fields({}, message.file_name, message.place)
        kind = None if content is None else content.optional("content_type", content.text)
        if content is None or kind in LEFT_OUT_TYPES:
            self._left_out.update([LEFT_OUT_TYPES[kind]] if kind is not None else [])
            return None
        if metadata.optional("is_visually_hidden_from_conversation", metadata.flag):
            return None
        recipient = message.optional("recipient", message.text) or "all"
        if role not in ("user", "assistant", "system") or (role == "assistant" and recipient != "all"):
            self._left_out["tool messages"] += 1
            return None
        text = self._text(content, metadata)
        if role == "system":
            self._take_system_message(text, is_first=above is None)
            return None
        if not text:
            return None
        details = metadata.optional("finish_details", metadata.fields)
        finish = None if details is None else details.optional("type", details.text)
        return KeptMessage(
            parent_id=above,
            role="user" if role == "user" else "assistant",
            text=text,
            model=metadata.optional("model_slug", metadata.text) if role == "assistant" else None,
            finish_reason=FINISH_REASONS.get(finish or ""),
            is_stopped=finish == "interrupted",
            created_at=message.optional("create_time", lambda name: _moment(message, name)) or self._created_at,
        )

    def _text(self, content: Fields, metadata: Fields) -> str:
        if "parts" in content:
            texts = [parts_text(content, "parts", self._left_out)]
        else:
            texts = [content.optional("text", content.text) or ""]
        for file in metadata.optional("attachments", metadata.each) or ():
            # An image stands among the parts too.
            if not (file.optional("mime_type", file.text) or "").startswith("image/"):
                texts.append(f"[attachment: {file.optional('name', file.text) or 'without a name'}]")
                self._left_out["attachments"] += 1
        return "\n\n".join(text for text in texts if text)

    def _take_system_message(self, text: str, is_first: bool) -> None:
        if not text:
            return
        if is_first and self.system_prompt is None:
            self.system_prompt = text
        else:
            self._left_out["system messages"] += 1


def _in_order(mapping: Fields) -> Iterator[tuple[str, str | None, Fields]]:
    """The nodes with their parents' ids, each after its parent, siblings in the order in which it names them."""
    nodes = {node_id: mapping.fields(node_id) for node_id in mapping.names}
    children: dict[str | None, list[str]] = {}
    for node_id, node in nodes.items():
        parent_id = node.optional("parent", node.text)
        if parent_id is not None and parent_id not in nodes:
            node.refuse("parent", f"names {shown(parent_id)}, which isn't in the mapping")
        children.setdefault(parent_id, []).append(node_id)
    waiting: list[tuple[str, str | None]] = [(node_id, None) for node_id in reversed(children.get(None, []))]
    while waiting:
        node_id, parent_id = waiting.pop()
        yield node_id, parent_id, nodes[node_id]
        named = nodes[node_id].optional("children", nodes[node_id].texts) or ()
        rank = {child_id: position for position, child_id in enumerate(named)}
        answers = sorted(children.pop(node_id, ()), key=lambda child_id: rank.get(child_id, len(rank)))
        waiting.extend((child_id, node_id) for child_id in reversed(answers))
    children.pop(None, None)
    if children:
        # What no root leads to is its own ancestor, or below one that is.
        first = next(child_id for answers in children.values() for child_id in answers)
        nodes[first].refuse("parent", "leads in a circle")


def _moment(fields: Fields, name: str) -> datetime:
    seconds = fields.real(name)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
        if not is_shown_everywhere(moment):
            raise OverflowError
        return moment
    except (ValueError, OverflowError, OSError):
        fields.refuse(name, f"must be seconds since 1970, not {shown(seconds)}")

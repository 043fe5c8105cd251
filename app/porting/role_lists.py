"""Plain lists of messages with a role and content, as scripts, fine-tuning files and many programs keep them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from ..chats import title_from
from ..imported_chat import ImportedChat, ImportedMessage
from .content_parts import parts_text
from .fields import Fields

ROLES = ("user", "assistant", "system", "developer", "tool", "function")


def chat_from_messages(
    messages: Sequence[Fields], left_out: Counter[str], now: datetime, title: str | None = None
) -> ImportedChat:
    """One chat without branches, made `now`; the system messages before all others become its system prompt.

    What a chat can't hold is counted in `left_out`: tool messages, later system messages, images.
    """
    system_prompts: list[str] = []
    kept: list[ImportedMessage] = []
    for fields in messages:
        role = fields.choice("role", ROLES)
        if role in ("system", "developer"):
            if kept:
                left_out["system messages"] += 1
            else:
                system_prompts.append(_content(fields, left_out))
        elif role in ("tool", "function") or (role == "assistant" and fields.optional("content", fields.raw) is None):
            left_out["tool messages"] += 1  # a tool's answer, or a reply that only calls one
        else:
            kept.append(
                ImportedMessage(
                    parent=len(kept) - 1 if kept else None,
                    role="user" if role == "user" else "assistant",
                    text=_content(fields, left_out),
                    created_at=now,
                )
            )
    return ImportedChat(
        title=title or title_from(next((message.text for message in kept if message.role == "user"), "")),
        has_own_title=bool(title),
        system_prompt="\n\n".join(system_prompts) or None,
        messages=tuple(kept),
        active_leaf=len(kept) - 1 if kept else None,
        created_at=now,
        updated_at=now,
    )


def chat_from_object(fields: Fields, left_out: Counter[str], now: datetime) -> ImportedChat:
    """A chat of `{"messages": [...]}`, with a title where it has one."""
    return chat_from_messages(fields.each("messages"), left_out, now, title=fields.optional("title", fields.text))


def _content(fields: Fields, left_out: Counter[str]) -> str:
    is_text = isinstance(fields.raw("content"), str)
    return fields.text("content") if is_text else parts_text(fields, "content", left_out)

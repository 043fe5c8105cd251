"""A chat with its whole tree as plain values, in the form that our JSON and our Markdown share."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any, get_args

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import FinishReason, SamplingParams

from ..chats import Chat, Message, MessageRole, MessageStatus, MessageTree, ReplyCost, ReplyVariant
from ..imported_chat import ImportedChat, ImportedMessage
from .fields import Fields

VERSION = 1  # goes up when a reader of the old one would miss something
MAX_TOKENS = 2**40  # of one reply; the database sums those of millions in 64 bits


def chat_record(chat: Chat, tree: MessageTree) -> dict[str, Any]:
    """Everything but whose chat it is. Messages stand in the order of their ids, so each one after its parent.

    The ids are the store's: they tie the record together, and an import gives new ones.
    """
    messages = [_message_record(message) for message in sorted(tree, key=lambda message: message.id)]
    return chat_fields(chat) | {"messages": messages}


def chat_fields(chat: Chat) -> dict[str, Any]:
    """A chat's record without its messages."""
    return {
        "id": chat.id,
        "title": chat.title,
        "has_own_title": chat.has_own_title,
        "is_pinned": chat.is_pinned,
        "is_archived": chat.is_archived,
        "tags": list(chat.tags),
        "system_prompt": chat.system_prompt,
        "model": chat.model,
        "sampling": dataclasses.asdict(chat.sampling),
        "created_at": _time(chat.created_at),
        "updated_at": _time(chat.updated_at),
        "active": chat.active_leaf_id,
    }


def chat_from(record: Fields) -> ImportedChat:
    """The chat of a record; raises ImportRefused with the place of what is wrong in it."""
    record.optional("id", record.text)
    indexes: dict[int, int] = {}
    messages = []
    for index, fields in enumerate(record.each("messages")):
        messages.append(_message_from(fields, indexes))
        message_id = fields.whole("id")
        if message_id in indexes:
            fields.refuse("id", f"is {message_id}, as is that of messages[{indexes[message_id]}]")
        indexes[message_id] = index
        fields.expect_all_read()
    active_id = record.optional("active", record.whole)
    if active_id is not None and active_id not in indexes:
        record.refuse("active", f"names message {active_id}, which isn't in the chat")
    chat = ImportedChat(
        title=record.text("title"),
        has_own_title=record.flag("has_own_title"),
        is_pinned=record.flag("is_pinned"),
        is_archived=record.flag("is_archived"),
        tags=record.texts("tags"),
        system_prompt=record.optional("system_prompt", record.text),
        model=record.optional("model", record.text),
        sampling=_sampling_from(record.fields("sampling")),
        messages=tuple(messages),
        active_leaf=None if active_id is None else indexes[active_id],
        created_at=record.time("created_at"),
        updated_at=record.time("updated_at"),
    )
    record.expect_all_read()
    return chat


def _message_record(message: Message) -> dict[str, Any]:
    record = {
        "id": message.id,
        "parent": message.parent_id,
        "role": message.role,
        "text": message.text,
        "status": message.status,
        "created_at": _time(message.created_at),
    }
    of_replies = {
        "token_ids": None if message.token_ids is None else list(message.token_ids),
        "model": message.model,
        "sampling": None if message.sampling is None else dataclasses.asdict(message.sampling),
        "variant": None if message.variant is None else dataclasses.asdict(message.variant),
        "cost": None if message.cost is None else dataclasses.asdict(message.cost),
        "finish_reason": message.finish_reason,
        "error": message.error,
    }
    return record | {name: value for name, value in of_replies.items() if value is not None}


def _message_from(fields: Fields, indexes: dict[int, int]) -> ImportedMessage:
    parent_id = fields.optional("parent", fields.whole)
    # A parent that comes later, or is the message itself, would make a circle.
    if parent_id is not None and parent_id not in indexes:
        fields.refuse("parent", f"names message {parent_id}, which doesn't stand before this one")
    sampling = fields.optional("sampling", fields.fields)
    variant = fields.optional("variant", fields.fields)
    cost = fields.optional("cost", fields.fields)
    return ImportedMessage(
        parent=None if parent_id is None else indexes[parent_id],
        role=fields.choice("role", get_args(MessageRole)),
        text=fields.text("text"),
        token_ids=fields.optional("token_ids", fields.token_ids),
        model=fields.optional("model", fields.text),
        sampling=None if sampling is None else _sampling_from(sampling),
        variant=None if variant is None else _variant_from(variant),
        cost=None if cost is None else _cost_from(cost),
        finish_reason=fields.optional("finish_reason", lambda name: fields.choice(name, get_args(FinishReason))),
        status=fields.choice("status", get_args(MessageStatus)),
        error=fields.optional("error", fields.text),
        created_at=fields.time("created_at"),
    )


def _sampling_from(fields: Fields) -> SamplingParams:
    """What is missing takes its default; SamplingParams itself says what is out of range."""
    given = {field.name: fields.raw(field.name) for field in dataclasses.fields(SamplingParams) if field.name in fields}
    fields.expect_all_read()
    if "stop" in given:
        given["stop"] = fields.texts("stop")
    if "ignore_eos" in given:
        fields.flag("ignore_eos")
    try:
        return SamplingParams(**given)
    except InvalidParameter as error:
        fields.refuse(None, f"can't be used: {error}")


def _variant_from(fields: Fields) -> ReplyVariant:
    variant = ReplyVariant(fields.text("name"), fields.optional("system_prompt", fields.text))
    fields.expect_all_read()
    return variant


def _cost_from(fields: Fields) -> ReplyCost:
    cost = ReplyCost(
        num_cached_tokens=fields.whole("num_cached_tokens", MAX_TOKENS),
        num_computed_tokens=fields.whole("num_computed_tokens", MAX_TOKENS),
        num_generated_tokens=fields.whole("num_generated_tokens", MAX_TOKENS),
        ttft_ms=fields.optional("ttft_ms", fields.real),
        tokens_per_s=fields.optional("tokens_per_s", fields.real),
        num_accepted_tokens=(fields.whole("num_accepted_tokens", MAX_TOKENS) if "num_accepted_tokens" in fields else 0),
    )
    fields.expect_all_read()
    return cost


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")

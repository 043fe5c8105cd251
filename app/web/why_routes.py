"""The page's question why a reply's prompt found no more in the cache."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from .access import OwnChat, ServiceOf
from .why_view import why_view

router = APIRouter(prefix="/paged-chat/chats/{chat_id}/messages/{message_id}")


@router.get("/why")
def why(message_id: int, chat: OwnChat, service: ServiceOf) -> dict[str, Any]:
    """`why` is null for a question, and for a reply of which nothing is known."""
    view = why_view(service.miss_reason(chat.id, message_id))
    return {"why": None if view is None else asdict(view)}

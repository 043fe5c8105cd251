"""The page's requests about the tokens of a reply: what they are, what a branch would cost, and the branch."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from .access import OwnChat, ServiceOf
from .plan_answer import plan_answer
from .token_views import reply_tokens_view, token_view

router = APIRouter(prefix="/paged-chat/chats/{chat_id}/messages/{message_id}")
Answer = dict[str, Any]


class Place(BaseModel):
    token_index: Annotated[int, Field(ge=0)]


class Branch(Place):
    """token_id: what is to stand in that place."""

    token_id: Annotated[int, Field(ge=0)]


@router.get("/tokens")
async def tokens(message_id: int, chat: OwnChat, service: ServiceOf) -> Answer:
    reply = await asyncio.wrap_future(await asyncio.to_thread(service.tokens.of_reply, chat.id, message_id))
    return asdict(reply_tokens_view(reply))


@router.get("/tokens/{token_index}")
async def token(
    message_id: int,
    token_index: int,
    num_tokens: Annotated[int, Query(ge=1)],
    chat: OwnChat,
    service: ServiceOf,
) -> Answer:
    """A token whose alternatives weren't kept, with those that are worked out now."""
    weighed = await asyncio.to_thread(service.tokens.alternatives_at, chat.id, message_id, token_index)
    return asdict(token_view(await asyncio.wrap_future(weighed), num_tokens))


@router.post("/plan-branch")
async def plan_branch(message_id: int, place: Place, chat: OwnChat, service: ServiceOf) -> Answer:
    return await plan_answer(partial(service.plans.branch_at_token, chat.id, message_id, place.token_index))


@router.post("/branch")
def branch(message_id: int, branch: Branch, chat: OwnChat, service: ServiceOf) -> Answer:
    draft = service.branch_at_token(chat.id, message_id, branch.token_index, branch.token_id)
    return {"message_id": draft.id}

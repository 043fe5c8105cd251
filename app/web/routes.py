"""The page's own requests: each names a chat or a message, has the service do one thing, and answers with little.

What comes of it the page is told by `live`, in every tab.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from paged_chat.engine.errors import PagedChatError

from ..attachments import MAX_ATTACHMENT_BYTES, attachment_from_bytes
from ..chats import Chat, Turn
from ..counted import megabytes
from ..errors import AttachmentRefused, ChatNotFound, MessageNotFound
from ..service.chat_service import ChatService
from ..service.send_plan import SendPlan
from .access import DeletedChats, OwnChat, ServiceOf, User, log_out
from .plan_answer import plan_answer
from .requests import ChatUpdate, NewChat, PlainText, Question, Retry
from .views import hit_view

NUM_HITS = 50

router = APIRouter(prefix="/paged-chat")
Answer = dict[str, Any]
PlannedAction: TypeAlias = Literal["retry", "edit", "fork", "continue"]


async def refuse(_: Request, error: Exception) -> JSONResponse:
    """The answer to a request that a PagedChatError ended: what it says, for people to read."""
    status = 404 if isinstance(error, ChatNotFound | MessageNotFound) else 409
    return JSONResponse({"error": str(error), "type": type(error).__name__}, status_code=status)


async def refuse_shape(_: Request, error: RequestValidationError) -> JSONResponse:
    """The answer to a request that isn't what the page sends. What it held isn't repeated: JSON can't write it all."""
    fault = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"][1:]).encode(errors="replace").decode()
    return JSONResponse({"error": f"{place or 'the request'}: {fault['msg']}"}, status_code=422)


async def refuse_http(_: Request, error: HTTPException) -> JSONResponse:
    """The answer to a stranger, to a path that isn't there, and to a request that is too large or too slow."""
    return JSONResponse(
        {"error": str(error.detail), "detail": error.detail}, status_code=error.status_code, headers=error.headers
    )


EXCEPTION_HANDLERS: dict[type[Exception], Callable[..., Any]] = {
    PagedChatError: refuse,
    RequestValidationError: refuse_shape,
    HTTPException: refuse_http,
}


@router.post("/logout")
def end_login(request: Request, _: User) -> Answer:
    log_out(request)
    return {}


# Chats


@router.post("/chats")
def create_chat(new: NewChat, service: ServiceOf, user: User) -> Answer:
    return {"chat_id": service.create_chat(user=user, is_temporary=new.is_temporary).id}


@router.post("/chats/{chat_id}")
def update_chat(update: ChatUpdate, chat: OwnChat, service: ServiceOf) -> Answer:
    if update.title is not None:
        service.rename(chat.id, update.title)
    if update.is_pinned is not None:
        service.update_chat(chat.id, is_pinned=update.is_pinned)
    if update.is_archived is not None:
        service.update_chat(chat.id, is_archived=update.is_archived)
    return {}


@router.post("/chats/{chat_id}/delete")
def delete_chat(chat: OwnChat, service: ServiceOf, deleted: DeletedChats) -> Answer:
    deleted[chat.id] = chat.user
    service.delete_chat(chat.id)
    return {}


@router.post("/chats/{chat_id}/restore")
def restore_chat(chat_id: str, service: ServiceOf, user: User, deleted: DeletedChats) -> Answer:
    if deleted.get(chat_id) != user:
        raise ChatNotFound("there is no such chat to bring back")
    service.restore_chat(chat_id)
    return {}


@router.post("/chats/{chat_id}/keep")
def keep_chat(chat: OwnChat, service: ServiceOf) -> Answer:
    return {"chat_id": service.keep_chat(chat.id).id}


@router.get("/search")
def search(q: Annotated[str, Query(max_length=1000)], service: ServiceOf, user: User) -> Answer:
    return {"hits": [asdict(hit_view(hit)) for hit in service.search(q, user=user, limit=NUM_HITS)]}


# Replies


@router.post("/chats/{chat_id}/send")
def send(question: Question, chat: OwnChat, service: ServiceOf) -> Answer:
    turn = service.send(
        chat.id, question.text, parent_id=question.parent_id, n=question.n, attachments=question.attached
    )
    return turn_answer(turn)


@router.post("/chats/{chat_id}/messages/{message_id}/edit")
def edit(message_id: int, question: Question, chat: OwnChat, service: ServiceOf) -> Answer:
    turn = service.edit(chat.id, message_id, question.text, n=question.n, attachments=question.attached)
    return turn_answer(turn)


@router.post("/chats/{chat_id}/messages/{message_id}/retry")
def retry(message_id: int, how: Retry, chat: OwnChat, service: ServiceOf) -> Answer:
    return turn_answer(service.retry(chat.id, message_id, n=how.n))


@router.post("/chats/{chat_id}/messages/{message_id}/continue")
def continue_reply(message_id: int, chat: OwnChat, service: ServiceOf) -> Answer:
    return {"message_id": service.continue_reply(chat.id, message_id).id}


@router.post("/chats/{chat_id}/messages/{message_id}/pick")
def pick(message_id: int, chat: OwnChat, service: ServiceOf) -> Answer:
    service.pick(chat.id, message_id)
    return {}


@router.post("/chats/{chat_id}/messages/{message_id}/fork")
def fork(message_id: int, chat: OwnChat, service: ServiceOf) -> Answer:
    return {"chat_id": service.fork(chat.id, message_id).id}


@router.post("/chats/{chat_id}/messages/{message_id}/delete")
def delete_message(message_id: int, chat: OwnChat, service: ServiceOf) -> Answer:
    service.delete_message(chat.id, message_id)
    return {}


@router.post("/chats/{chat_id}/messages/{message_id}/restore")
def restore_message(message_id: int, chat: OwnChat, service: ServiceOf) -> Answer:
    service.restore_message(chat.id, message_id)
    return {}


@router.post("/chats/{chat_id}/messages/{message_id}/stop")
def stop_reply(message_id: int, chat: OwnChat, service: ServiceOf) -> Answer:
    return {"num_stopped": service.stop(chat.id, message_id)}


@router.post("/chats/{chat_id}/stop")
def stop(chat: OwnChat, service: ServiceOf) -> Answer:
    return {"num_stopped": service.stop(chat.id)}


# What it would cost


@router.get("/chats/{chat_id}/messages/{message_id}/plan")
async def plan_for_message(message_id: int, of: PlannedAction, chat: OwnChat, service: ServiceOf) -> Answer:
    """What trying a message again, sending it anew, going on with it, or a chat that begins with it would take."""
    return await plan_answer(partial(_plan_for_message, message_id, of, chat, service), _shown)


@router.post("/chats/{chat_id}/plan")
async def plan(question: Question, chat: OwnChat, service: ServiceOf) -> Answer:
    """What sending `text`, or putting it in the place of `message_id`, would reuse, compute and leave out."""
    return await plan_answer(partial(_plan, question, chat, service), _shown)


@router.post("/plan")
async def plan_first(question: Question, service: ServiceOf, user: User) -> Answer:
    """The same of a message that would begin a chat."""
    return await plan_answer(
        partial(service.plans.first, question.text, user=user, attachments=question.attached), _shown
    )


def _shown(plan: SendPlan) -> Answer:
    return {
        "words": str(plan),
        "reused": plan.reuse_words,
        "num_prompt_tokens": plan.num_prompt_tokens,
        "window": plan.window,
        "left_out_ids": plan.left_out_ids,
        "num_left_out_turns": plan.num_left_out_turns,
    }


def _plan(question: Question, chat: Chat, service: ChatService) -> Future[SendPlan]:
    if question.message_id is not None:
        return service.plans.edit(chat.id, question.message_id, question.text, attachments=question.attached)
    return service.plans.send(chat.id, question.text, parent_id=question.parent_id, attachments=question.attached)


def _plan_for_message(message_id: int, of: PlannedAction, chat: Chat, service: ChatService) -> Future[SendPlan]:
    match of:
        case "edit":
            return service.plans.edit(chat.id, message_id, service.message(chat.id, message_id).text)
        case "fork":
            return service.plans.fork(chat.id, message_id)
        case "continue":
            return service.plans.continue_reply(chat.id, message_id)
        case "retry":
            return service.plans.retry(chat.id, message_id)


@router.post("/tokens")
async def count_tokens(plain: PlainText, service: ServiceOf, user: User) -> Answer:
    return {"num_tokens": await asyncio.wrap_future(service.tokens.count(plain.text))}


@router.post("/attachments")
async def read_attachment(
    request: Request, name: Annotated[str, Query(max_length=255)], service: ServiceOf, user: User
) -> Answer:
    """A file's text, and how many tokens that is once the model is loaded. Nothing of it is kept here."""
    attachment = attachment_from_bytes(name, await _body(request, MAX_ATTACHMENT_BYTES))
    num_tokens = None
    if service.engine_status.phase == "ready":
        num_tokens = await asyncio.wrap_future(service.tokens.count(attachment.text))
    return {"name": attachment.name, "text": attachment.text, "num_tokens": num_tokens}


async def _body(request: Request, limit: int) -> bytes:
    """Raises AttachmentRefused as soon as it is longer, whatever length it claimed."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > limit:
            raise AttachmentRefused(f"the file is larger than {megabytes(limit)}: paste the part that matters")
    return bytes(content)


def turn_answer(turn: Turn) -> Answer:
    return {
        "message_id": None if turn.user_message is None else turn.user_message.id,
        "reply_ids": [reply.id for reply in turn.replies],
    }

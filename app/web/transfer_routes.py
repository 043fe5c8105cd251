"""Chats that leave the page as a file, and come back from one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from io import BufferedReader, StringIO
from typing import Any, Literal, cast

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from ..chats import Chat
from ..errors import ImportRefused
from ..porting import read_stream, write_json, write_markdown
from ..service.chat_service import ChatService
from .access import OwnChat, ServiceOf, User
from .download import download

MAX_IMPORT_BYTES = 500_000_000
SPOOL_BYTES = 8_000_000

PREFIX = "/paged-chat"
IMPORT_PATH = f"{PREFIX}/import"

Format = Literal["md", "json"]
router = APIRouter(prefix=PREFIX)


@router.get("/export/all.{form}")
def export_all(form: Format, service: ServiceOf, user: User) -> Response:
    """Every chat of a person, archived ones too."""
    return _file(service, service.chats(user=user, archived=None), "paged-chat", form)


@router.get("/export/{chat_id}.{form}")
def export_chat(form: Format, chat: OwnChat, service: ServiceOf) -> Response:
    return _file(service, [chat], chat.title, form)


@router.post("/import")
async def import_chats(request: Request, name: str, service: ServiceOf, user: User) -> dict[str, Any]:
    """All chats of a file, of any form that `porting` reads, or none of them."""
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as file:
        num_bytes = 0
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > MAX_IMPORT_BYTES:
                raise ImportRefused(
                    f"{name}: larger than {MAX_IMPORT_BYTES // 1_000_000} MB: use `paged-chat sessions import`"
                )
            try:
                file.write(chunk)
            except OSError as error:
                raise ImportRefused(
                    f"{name} can't be kept while it arrives ({error.strerror}): make space in {tempfile.gettempdir()}, "
                    f"or use `paged-chat sessions import`"
                ) from error
        file.seek(0)
        stream = BufferedReader(cast(Any, file))
        chats = await run_in_threadpool(_import, stream, name, service, user)
        stream.detach()
    return {"chat_ids": [chat.id for chat in chats]}


def _import(stream: BufferedReader, name: str, service: ChatService, user: str) -> list[Chat]:
    return service.import_chats(read_stream(stream, name).chats, user=user)


def _file(service: ChatService, chats: Iterable[Chat], name: str, form: Format) -> Response:
    out = StringIO()
    with_trees = ((chat, service.tree(chat.id)) for chat in chats)
    (write_markdown if form == "md" else write_json)(with_trees, out)
    return download(out.getvalue(), name, form)

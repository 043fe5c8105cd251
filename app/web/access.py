"""Who is asking: the person behind a request, and the service that answers."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, HTTPException
from starlette.requests import HTTPConnection

from ..chats import Chat
from ..service.chat_service import ChatService

NOT_LOGGED_IN = "log in first: load the page again"
CLOSED_FOR_STRANGERS = 4401  # with what a WebSocket is closed for them


def service_of(connection: HTTPConnection) -> ChatService:
    """The service that `serve` put into the application's state."""
    return cast(ChatService, connection.app.state.chat_service)


def _deleted_chats_of(connection: HTTPConnection) -> dict[str, str]:
    return cast(dict[str, str], connection.app.state.deleted_chats)


def user_of(connection: HTTPConnection) -> str | None:
    """The name under which somebody logged in, "" where there are no accounts, None for a stranger.

    Gradio's login page gives a browser this token in one of two cookies: the first where the page came encrypted.
    """
    app = connection.app
    if app.auth is None:
        return ""
    for token in _login_tokens(connection):
        user = app.tokens.get(token)
        if user is not None:
            return str(user)
    return None


def log_out(connection: HTTPConnection) -> None:
    """Ends the login of the browser that asks, whatever cookies it keeps; the same person's other browsers stay in."""
    for token in _login_tokens(connection):
        connection.app.tokens.pop(token, None)


def _login_tokens(connection: HTTPConnection) -> list[str | None]:
    cookie_id = connection.app.cookie_id
    return [connection.cookies.get(f"{name}-{cookie_id}") for name in ("access-token", "access-token-unsecure")]


def _require_user(connection: HTTPConnection) -> str:
    user = user_of(connection)
    if user is None:
        raise HTTPException(401, NOT_LOGGED_IN)
    return user


ServiceOf = Annotated[ChatService, Depends(service_of)]
User = Annotated[str, Depends(_require_user)]
# Whose chat it was that was deleted here, by its id: of a deleted one the service doesn't tell.
DeletedChats = Annotated[dict[str, str], Depends(_deleted_chats_of)]


def _require_chat(chat_id: str, service: ServiceOf, user: User) -> Chat:
    return service.chat(chat_id, user)


# A chat that the path names, of the person who asks. Raises ChatNotFound for anybody else's.
OwnChat = Annotated[Chat, Depends(_require_chat)]

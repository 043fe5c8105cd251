"""Slows down whoever guesses passwords."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOGIN_PATHS = ("/login", "/login/")
MAX_FAILURES = 10
WINDOW_S = 60.0
# The addresses that are remembered, those of the last failures: memory must not grow with the number of guessers.
MAX_ADDRESSES = 10_000


class LoginLimit:
    """ASGI middleware: an address that has given ten wrong passwords within a minute is asked for none any more, until
    the first of them is a minute old. Whoever is logged in goes on undisturbed, at that address too."""

    def __init__(self, app: ASGIApp, now: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._now = now
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()  # when they were, by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _gives_password(scope):
            await self._app(scope, receive, send)
            return
        address = (scope.get("client") or ("", 0))[0]
        wait_s = self._wait_s(address)
        if wait_s > 0:
            words = f"too many wrong passwords from this address: try again in {wait_s:.0f} s"
            answer = PlainTextResponse(words, status_code=429, headers={"Retry-After": f"{wait_s:.0f}"})
            await answer(scope, receive, send)
            return

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _refusals(scope):
                self._note_failure(address)
            await send(message)

        await self._app(scope, receive, send_and_note)

    def _wait_s(self, address: str) -> float:
        failures = self._failures.get(address)
        if failures is None or len(failures) < MAX_FAILURES:
            return 0.0
        return failures[0] + WINDOW_S - self._now()

    def _note_failure(self, address: str) -> None:
        self._failures.setdefault(address, deque(maxlen=MAX_FAILURES)).append(self._now())
        self._failures.move_to_end(address)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)


def _gives_password(scope: Scope) -> bool:
    is_login = scope["path"] in LOGIN_PATHS and scope["method"] == "POST"
    return is_login or "authorization" in Headers(scope=scope)


def _refusals(scope: Scope) -> tuple[int, ...]:
    # Gradio's login says 400 of a wrong password.
    return (400, 401) if scope["path"] in LOGIN_PATHS else (401,)

"""Errors a person can meet become notices; nothing of a screen stops working."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from textual import work
from textual.css.scalar import Scalar
from textual.dom import DOMNode
from textual.screen import Screen
from textual.worker import Worker

from paged_chat.app.errors import PagedChatError, words_of

Method = TypeVar("Method", bound=Callable[..., Any])
Params = ParamSpec("Params")
Result = TypeVar("Result")
ERROR_SHOWN_S = 8.0


def show_error(node: DOMNode, error: BaseException) -> None:
    """What went wrong, and what to do, in the corner of the screen."""
    node.app.notify(words_of(error), severity="error", timeout=ERROR_SHOWN_S, markup=False)


def keep_notices_above(screen: Screen[Any], row: int) -> None:
    """Where there is no room for all notices, the oldest give way; one that is too long by itself is cut.

    To be called whenever the screen is laid out. Textual's own container of notices can't be scrolled: it isn't seen.
    """
    for rack in screen.query("ToastRack"):
        room = max(1, row - rack.styles.margin.top)
        if rack.styles.max_height != Scalar.from_number(room):
            rack.styles.max_height = room
        for i, holder in enumerate(reversed([holder for holder in rack.children if holder.display])):
            room -= sum(notice.region.height + notice.styles.margin.height for notice in holder.children)
            if i > 0 and room < 0:
                holder.display = False


def with_notices(method: Method) -> Method:
    """An action or a handler whose PagedChatError is shown instead of raised."""
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def handle_async(self: DOMNode, *args: Any, **kwargs: Any) -> Any:
            try:
                return await method(self, *args, **kwargs)
            except PagedChatError as error:
                show_error(self, error)

        return cast(Method, handle_async)

    @wraps(method)
    def handle(self: DOMNode, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except PagedChatError as error:
            show_error(self, error)

    return cast(Method, handle)


def in_background(method: Callable[Params, Coroutine[Any, Any, Result]]) -> Callable[Params, Worker[Result]]:
    """An action that waits, for a person or for the store: the screen lives on meanwhile, and errors are shown."""
    return work(exit_on_error=False)(with_notices(method))

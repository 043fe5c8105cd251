"""Errors a person can meet become notices; nothing of a screen stops working."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from textual import work
from textual.dom import DOMNode
from textual.worker import Worker

from paged_chat.app.errors import PagedChatError, words_of

Method = TypeVar("Method", bound=Callable[..., Any])
Params = ParamSpec("Params")
Result = TypeVar("Result")
ERROR_SHOWN_S = 8.0


def show_error(node: DOMNode, error: BaseException) -> None:
    """What went wrong, and what to do, in the corner of the screen."""
    node.app.notify(words_of(error), severity="error", timeout=ERROR_SHOWN_S, markup=False)


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

"""What may be asked of an engine, in words that reach one in another process too.

A query is a function whose first parameter is the engine. `@engine_query` is for what belongs to the engine's thread
and is answered between two of its steps; `@text_query` for what works on text alone, and is answered beside them. Its
other parameters and its result are plain values: dataclasses, tuples, strings, numbers. What they are its annotations
say, and nothing else is ever sent or read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints

if TYPE_CHECKING:
    from paged_chat.engine import Engine

    from .transcript.chat_model import ChatModel

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Kind = TypeVar("Kind", bound="QueryKind[..., Any]")

_KINDS: dict[str, QueryKind[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class Query(Generic[Result]):
    """A question with its arguments; calling it answers it, on the thread where its kind belongs."""

    kind: QueryKind[..., Result]
    arguments: Mapping[str, object]

    def __call__(self, engine: Engine) -> Result:
        return self.kind(engine, **self.arguments)


class QueryKind(Generic[Parameters, Result]):
    """A function that answers; called with an engine it does so at once, `ask` makes a query of it."""

    def __init__(self, function: Callable[Concatenate[Engine, Parameters], Result]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        self.name = function.__name__

    def __call__(self, engine: Engine, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self._function(engine, *args, **kwargs)

    def ask(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Query[Result]:
        _, *names = inspect.signature(self._function).parameters
        return Query(self, {**dict(zip(names, args, strict=False)), **kwargs})

    @property
    def parameters(self) -> dict[str, Any]:
        """The type of each argument."""
        return {name: hint for name, hint in self._hints.items() if name not in (self._engine_name, "return")}

    @property
    def result(self) -> Any:
        """The type of the answer."""
        return self._hints["return"]

    @property
    def _engine_name(self) -> str:
        return next(iter(inspect.signature(self._function).parameters))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Only type checkers know the engine itself: importing it would import torch.
        return get_type_hints(self._function, localns={"Engine": object, "ChatModel": object})


class TextQueryKind(QueryKind[Parameters, Result]):
    """A kind that needs no more of an engine than its text functions, and so not its thread."""

    def __init__(self, function: Callable[Concatenate[ChatModel, Parameters], Result]) -> None:
        super().__init__(function)
        self._of_text = function

    def __call__(self, engine: ChatModel, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self._of_text(engine, *args, **kwargs)


def engine_query(function: Callable[Concatenate[Engine, Parameters], Result]) -> QueryKind[Parameters, Result]:
    """Makes a function of an engine's state a kind of query."""
    return _register(QueryKind(function))


def text_query(function: Callable[Concatenate[ChatModel, Parameters], Result]) -> TextQueryKind[Parameters, Result]:
    """Makes a function of an engine's text functions a kind of query."""
    return _register(TextQueryKind(function))


def query_kinds() -> Mapping[str, QueryKind[..., Any]]:
    """All kinds whose modules are imported, by name."""
    return _KINDS


def _register(kind: Kind) -> Kind:
    assert kind.name not in _KINDS, f"two kinds of queries are called {kind.name}"
    _KINDS[kind.name] = kind
    return kind

"""What may be asked of an engine, in words that reach one in another process too.

A query is a function whose first parameter is the engine. `@engine_query` runs it on the engine's thread between two
steps; `@text_query` is for the functions that work on text alone, which run beside the steps. Its other parameters and
its result are plain values: dataclasses, tuples, strings, numbers. What they are its annotations say, and nothing else
is ever sent or read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints

if TYPE_CHECKING:
    from paged_chat.engine import Engine

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_KINDS: dict[str, QueryKind[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class Query(Generic[Result]):
    """A question with its arguments; calling it answers it, on the thread where its kind belongs."""

    kind: QueryKind[..., Result]
    arguments: Mapping[str, object]

    def __call__(self, engine: Engine) -> Result:
        return self.kind(engine, **self.arguments)


class QueryKind(Generic[Parameters, Result]):
    """A function that answers; called with an engine it does so at once, `ask` makes a query of it.

    runs_beside_steps: it touches nothing that belongs to the engine's thread.
    """

    def __init__(self, function: Callable[Concatenate[Engine, Parameters], Result], *, runs_beside_steps: bool) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        self.name = function.__name__
        self.runs_beside_steps = runs_beside_steps

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
        return get_type_hints(self._function, localns={"Engine": object})


def engine_query(function: Callable[Concatenate[Engine, Parameters], Result]) -> QueryKind[Parameters, Result]:
    """Makes a function of an engine's state a kind of query."""
    return _register(QueryKind(function, runs_beside_steps=False))


def text_query(function: Callable[Concatenate[Engine, Parameters], Result]) -> QueryKind[Parameters, Result]:
    """Makes a function of an engine's text functions a kind of query."""
    return _register(QueryKind(function, runs_beside_steps=True))


def query_kinds() -> Mapping[str, QueryKind[..., Any]]:
    """All kinds whose modules are imported, by name."""
    return _KINDS


def _register(kind: QueryKind[Parameters, Result]) -> QueryKind[Parameters, Result]:
    assert kind.name not in _KINDS, f"two kinds of queries are called {kind.name}"
    _KINDS[kind.name] = kind
    return kind

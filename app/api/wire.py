"""What a program and the engine of another process say to each other: JSON, whose shape the types give.

Each message is one of the dataclasses here, told apart by `kind`. Values inside them (sampling parameters, deltas, a
query's arguments and its answer) are written and read by their own types, so a new field of one needs no word here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.progress import LoadProgress
from paged_chat.engine.request import SamplingParams, TokenDelta

# Rises when a message changes in a way that older programs can't read.
PROTOCOL = 1


class WireError(PagedChatError):
    """A message that isn't what it should be: the two programs are of different versions."""


# From the program to the engine. The answer to an order bears its number.


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Computes a prompt; answered with the request's id, then deltas follow."""

    number: int
    token_ids: tuple[int, ...]
    params: SamplingParams
    salt: str
    reply_start: tuple[int, ...]
    kind: Literal["submit"] = "submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Ends a request or one sample of it; answered with whether there was something to end."""

    number: int
    request_id: str
    sample: int | None
    kind: Literal["abort"] = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A query by the name of its kind, its arguments as `to_json` writes them; answered with its answer."""

    number: int
    query: str
    arguments: dict[str, Any]
    kind: Literal["ask"] = "ask"


Order = Annotated[Submit | Abort | Ask, Field(discriminator="kind")]


# From the engine to the program.


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How far the model has come; until it is there, nothing is answered."""

    progress: LoadProgress
    kind: Literal["loading"] = "loading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an order gave, as `to_json` writes it."""

    number: int
    value: Any
    kind: Literal["answer"] = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What an order raised: the name of a PagedChatError, and its words."""

    number: int
    error: str
    words: str
    kind: Literal["refusal"] = "refusal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas:
    """What replies have grown by, in order."""

    deltas: tuple[TokenDelta, ...]
    kind: Literal["deltas"] = "deltas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last message: nothing is answered any more, and why, for people to read."""

    reason: str
    kind: Literal["ended"] = "ended"


News = Annotated[Loading | Answer | Refusal | Deltas | Ended, Field(discriminator="kind")]


def write(message: Submit | Abort | Ask | Loading | Answer | Refusal | Deltas | Ended) -> str:
    return json.dumps(to_json(type(message), message), ensure_ascii=False, separators=(",", ":"))


def read_order(text: str) -> Submit | Abort | Ask:
    """Raises WireError."""
    order: Submit | Abort | Ask = from_json(Order, _parsed(text))
    return order


def read_news(text: str) -> Loading | Answer | Refusal | Deltas | Ended:
    """Raises WireError."""
    news: Loading | Answer | Refusal | Deltas | Ended = from_json(News, _parsed(text))
    return news


def to_json(kind: Any, value: object) -> Any:
    """A value of the type `kind` as dictionaries, lists, strings and numbers."""
    return _adapter(kind).dump_python(value, mode="json")


def from_json(kind: Any, value: Any) -> Any:
    """The value of the type `kind` that `to_json` wrote. Raises WireError, or the PagedChatError that refuses it."""
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            if isinstance(cause := fault.get("ctx", {}).get("error"), PagedChatError):
                raise cause from error
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise WireError(f"{place or 'the message'}: {fault['msg']}") from error


def error_named(name: str, words: str) -> PagedChatError:
    """The error that a refusal stands for; the plain base where this program doesn't know that one."""
    kind = next((kind for kind in _kinds_of_errors(PagedChatError) if kind.__name__ == name), PagedChatError)
    return kind(words)


def _kinds_of_errors(base: type[PagedChatError]) -> Iterator[type[PagedChatError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds_of_errors(kind)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the message is no JSON: {error}") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)

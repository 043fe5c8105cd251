"""What the service needs of an engine, whether it runs in this process or in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.progress import OnProgress
from paged_chat.engine.request import SamplingParams, TokenDelta

from ..engine_query import Query, engine_query
from ..transcript.chat_model import ChatModel

if TYPE_CHECKING:
    from paged_chat.engine import Engine

Result = TypeVar("Result")


class ServedEngine(Protocol):
    """An engine that runs by itself: `AsyncEngine`, or `RemoteEngine` for one in another process.

    Every method may be called from any thread and returns at once. What is asked before the model is loaded waits for
    it. Raises, from every future: what loading raised, and EngineClosed after the end.
    """

    @property
    def engine(self) -> ChatModel:
        """The text functions of the model; only once something was answered."""
        ...

    @property
    def ended(self) -> Future[None]:
        """Done when nothing more is answered: with EngineClosed and the reason, or None after `close`."""
        ...

    def submit(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        listener: Callable[[TokenDelta], None],
        *,
        salt: str = "",
        reply_start: Sequence[int] = (),
    ) -> Future[str]:
        """Queues a request and gives its id; `listener` gets its deltas, in order, on one thread: it must be quick.

        reply_start: ids that the reply begins with, as if they had been drawn; they come with its first delta.
        """
        ...

    def abort(self, request_id: str, sample: int | None = None) -> Future[bool]: ...

    def call(self, query: Query[Result], /) -> Future[Result]:
        """Answers between two steps."""
        ...

    def close(self) -> None:
        """Ends every request with finish_reason "abort"; safe to call twice."""
        ...


class EngineServer(Protocol):
    """Another process whose engine can be used instead of one of our own."""

    @property
    def address(self) -> str: ...

    @property
    def model(self) -> str: ...

    def open(self, on_progress: OnProgress, /) -> ServedEngine:
        """Raises EngineUnavailable if it has gone."""
        ...


OpenEngine = Callable[[EngineConfig, OnProgress], ServedEngine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """What is known of a model once it is loaded.

    max_model_len: longest prompt and reply together, in tokens.
    load_s: seconds that loading took.
    """

    model_name: str
    max_model_len: int
    load_s: float


@engine_query
def model_figures(engine: Engine) -> ModelFigures:
    """Answered as soon as the model is loaded."""
    return ModelFigures(model_name=engine.model_name, max_model_len=engine.max_model_len, load_s=engine.load_s)

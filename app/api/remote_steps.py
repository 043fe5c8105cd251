"""An engine in another process, driven step by step as a command drives one of its own."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from paged_chat.engine import ChatMessage
from paged_chat.engine.errors import EngineClosed
from paged_chat.engine.request import BeamPreview, SamplingParams, TokenDelta

from ..service.search_watch import beam_preview
from ..service.served_engine import ModelFigures, ServedEngine, model_figures

POLL_S = 0.1  # a step without news ends after this, so that Ctrl-C is heard


class RemoteSteps:
    """What `run_request` needs of an `Engine`, answered by a `ServedEngine`; for one thread, one request at a time."""

    def __init__(self, served: ServedEngine) -> None:
        """Waits until the model is loaded; raises what loading it raised."""
        self._served = served
        self._figures: ModelFigures = served.call(model_figures.ask()).result()
        self._deltas: queue.SimpleQueue[TokenDelta] = queue.SimpleQueue()
        self._request_id: str | None = None

    @property
    def model_name(self) -> str:
        return self._figures.model_name

    @property
    def load_s(self) -> float:
        """Nothing was loaded here."""
        return 0.0

    # Text

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        return self._served.engine.encode_chat(messages)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._served.engine.decode(token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self._served.engine.token_bytes(token_id)

    # A request

    def submit(self, prompt_token_ids: Sequence[int], params: SamplingParams, *, salt: str = "") -> str:
        listener: Callable[[TokenDelta], None] = self._deltas.put
        self._request_id = self._served.submit(prompt_token_ids, params, listener, salt=salt).result()
        return self._request_id

    def step(self) -> list[TokenDelta]:
        """What has come since the last one; none after a moment in which nothing came."""
        try:
            deltas = [self._deltas.get(timeout=POLL_S)]
        except queue.Empty:
            return []
        while not self._deltas.empty():
            deltas.append(self._deltas.get())
        return deltas

    def abort(self, request_id: str) -> bool:
        """False where there is nothing to end, as in an engine that has gone."""
        try:
            return self._served.abort(request_id).result()
        except EngineClosed:
            return False

    def beam_previews(self) -> list[BeamPreview]:
        """Of the request submitted last, if it is a search that goes on."""
        if self._request_id is None:
            return []
        preview = self._served.call(beam_preview.ask(self._request_id)).result()
        return [] if preview is None else [preview]

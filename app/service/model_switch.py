"""Another model for all chats, unless somebody uses the one that answers."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

from paged_chat.engine.config import EngineConfig

from ..counted import counted
from ..errors import ModelInUse
from .engine_host import EngineHost
from .model_fetch import FindModel, ModelFetcher
from .reply_desk import ReplyDesk
from .served_engine import EngineServer


class ModelSwitch:
    """Exchanges the engine of `host`; whoever uses it is asked for before, or stopped where `force` says so."""

    def __init__(self, host: EngineHost, desk: ReplyDesk, sending: threading.Lock, find_model: FindModel) -> None:
        """sending: held while a turn begins, so that none begins on an engine that goes."""
        self._host = host
        self._desk = desk
        self._sending = sending
        self._find_model = find_model
        self._fetcher = ModelFetcher(host.show_fetch)

    def to_model(self, model: str, *, force: bool) -> None:
        """At once, or when it is downloaded. Raises ModelInUse, and what keeps a model from being loaded."""
        config = replace(self._host.config, model=model)
        fetch = self._find_model(model)
        if fetch is None or self._host.status.phase != "ready":
            self._fetcher.forget()
            self._exchange(config, None, force)
            return
        if not force:
            self._check_unused()
        self._fetcher.begin(model, fetch, partial(self._exchange, config, None, force))

    def to_server(self, server: EngineServer, *, force: bool) -> None:
        """Raises ModelInUse."""
        self._fetcher.forget()
        self._exchange(self._host.config, server, force)

    def _exchange(self, config: EngineConfig, server: EngineServer | None, force: bool) -> None:
        with self._sending:
            if force:
                self._desk.stop()
            else:
                self._check_unused()
            self._host.switch(config, server)

    def _check_unused(self) -> None:
        num_running = len(self._desk.running())
        replies = [counted(num_running, "reply is being written", "replies are being written")] if num_running else []
        if uses := replies + self._host.guests.words:
            raise ModelInUse(f"{' and '.join(uses)}: another model would end that")

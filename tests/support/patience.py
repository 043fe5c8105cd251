"""How long tests wait for what must come. Who waits is told of it at once; only a failure takes as long."""

import pytest

PATIENCE_S = 900.0  # a busy machine may first have to load torch, compile the kernels and load a model


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the application would give up or tell of a delay: on a busy machine anything may take as long."""
    from paged_chat.app.api import running_server
    from paged_chat.app.store import database

    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(running_server, "ANSWER_S", PATIENCE_S)

"""Opens an engine in this process."""

from __future__ import annotations

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.progress import OnProgress

from ..imports import import_engine
from .served_engine import ServedEngine


def open_own_engine(config: EngineConfig, on_progress: OnProgress) -> ServedEngine:
    """Takes a second for importing, so it is called on a thread that nobody waits for."""
    import_engine()
    from paged_chat.engine import AsyncEngine

    return AsyncEngine(config, on_progress)

"""Opens an engine in this process."""

from __future__ import annotations

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.model import catalog
from paged_chat.engine.progress import OnProgress

from ..imports import import_engine
from .model_fetch import FetchModel
from .served_engine import ServedEngine


def open_own_engine(config: EngineConfig, on_progress: OnProgress) -> ServedEngine:
    """Takes a second for importing, so it is called on a thread that nobody waits for."""
    import_engine()
    from paged_chat.engine import AsyncEngine

    return AsyncEngine(config, on_progress)


def find_own_model(model: str) -> FetchModel | None:
    """Reads the headers of its files, which tells of all but what a machine lacks to compute it.

    Raises ModelNotFound, ModelUnsupported or ModelFileInvalid.
    """
    import_engine()
    from paged_chat.engine.model.file_check import check_files

    catalog.check_name(model)
    if catalog.is_here(model):
        check_files(model)
        return None

    def fetch(on_progress: OnProgress) -> None:
        catalog.resolve(model, on_progress)
        check_files(model)

    return fetch

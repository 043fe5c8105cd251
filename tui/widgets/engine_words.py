"""How the model stands, in a few words."""

from __future__ import annotations

from paged_chat.app.load_words import progress_words
from paged_chat.app.service.chat_events import EngineStatus


def short_name(model: str) -> str:
    """A model's own name, without the folder or the account that it comes from."""
    return model.rstrip("/").rpartition("/")[2]


def engine_words(status: EngineStatus | None, *, is_closed: bool = False) -> str:
    """Such as "smollm2-135m", "downloading smollm2-135m 45 %", "smollm2-135m didn't load", "smollm2-135m (shared)"."""
    if status is None:
        return "the chats are closed" if is_closed else "opening the chats"
    name = short_name(status.model)
    if status.phase == "loading":
        return f"loading {name}" if status.progress is None else progress_words(name, status.progress)
    if status.phase == "failed":
        return f"{name} didn't load" if status.server is None else f"{name} has gone"
    if status.fetch is not None and status.fetch.progress is not None:
        return f"{name}, {progress_words(short_name(status.fetch.model), status.fetch.progress)}"
    return name if status.server is None else f"{name} (shared)"

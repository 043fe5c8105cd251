"""Where the chats are; apart from the store, so that a screen can look beside them before the store is loaded."""

from pathlib import Path

from paged_chat.engine.home import home


def default_path() -> Path:
    """Where this machine's chats are, unless somebody names another place."""
    return home() / "chats.db"

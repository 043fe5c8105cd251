"""Keys as they are called on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.binding import Binding
from textual.dom import DOMNode

from .actions import BY_NAME

if TYPE_CHECKING:
    from .app import PagedChatTui


def key_of(node: DOMNode, action_name: str) -> str:
    """The key that does it, as the person has bound it; its name in the palette where it has none."""
    app = cast("PagedChatTui", node.app)
    action = BY_NAME[action_name]
    keys = app.keymap.get(action_name, action.keys)
    if not keys:
        return f'"{action.title}" in the palette'
    return app.get_key_display(Binding(keys.split(",")[0], action_name))

"""Keys as they are called on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.binding import Binding
from textual.dom import DOMNode

from .actions import BY_NAME

if TYPE_CHECKING:
    from .app import PagedChatTui


def keys_of(node: DOMNode, action_name: str) -> list[str]:
    """The keys that do it everywhere, as the person has bound them."""
    app = cast("PagedChatTui", node.app)
    keys = app.keymap.get(action_name, BY_NAME[action_name].keys)
    return keys.split(",") if keys else []


def key_of(node: DOMNode, action_name: str) -> str:
    """The key that does it, as the person has bound it; its name in the palette where it has none."""
    keys = keys_of(node, action_name)
    if not keys:
        return f'"{BY_NAME[action_name].title}" in the palette'
    return node.app.get_key_display(Binding(keys[0], action_name))

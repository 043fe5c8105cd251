"""Keys as they are called on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.binding import Binding
from textual.dom import DOMNode

from .actions import BY_NAME, message_binding_id

if TYPE_CHECKING:
    from .app import PagedChatTui


def keys_of(node: DOMNode, action_name: str, *, on_message: bool = False) -> list[str]:
    """The keys that do it everywhere, or on a selected message, as the person has bound them."""
    action = BY_NAME[action_name]
    keymap = cast("PagedChatTui", node.app).keymap
    if on_message:
        keys = keymap.get(message_binding_id(action_name), action.message_keys)
    else:
        keys = keymap.get(action_name, action.keys)
    return keys.split(",") if keys else []


def key_of(node: DOMNode, action_name: str, *, on_message: bool = False) -> str:
    """The key that does it, as the person has bound it; its name in the palette where it has none."""
    keys = keys_of(node, action_name, on_message=on_message)
    if not keys:
        return f'"{BY_NAME[action_name].title}" in the palette'
    return node.app.get_key_display(Binding(keys[0], action_name))

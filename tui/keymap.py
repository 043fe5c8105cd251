"""The keymap file: which keys do what, as a person changed it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from paged_chat.app.errors import PagedChatError

from .actions import ACTIONS, message_binding_id


class KeymapInvalid(PagedChatError):
    """A keymap file that can't be used; the message names the place of the fault."""


def binding_ids() -> list[str]:
    """Everything that can be rebound."""
    ids = []
    for action in ACTIONS:
        ids += [action.name]
        ids += [message_binding_id(action.name)] if action.message_keys else []
    return ids


def read_keymap(path: Path) -> dict[str, str]:
    """Keys by the name of what they do, several with commas between them; empty where there is no file.

    Raises KeymapInvalid for a file that isn't TOML, a name that nothing has, or something that is no key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise KeymapInvalid(f"{path} can't be used, so keys are as always: {error}") from error
    keys = content.get("keys", {})
    if not isinstance(keys, dict):
        raise KeymapInvalid(f"{path}: [keys] must be a table, so keys are as always")
    known = set(binding_ids())
    keymap = {}
    for name, value in _flat(keys):
        if name not in known:
            raise KeymapInvalid(f"{path}: nothing is called {name!r}, so keys are as always; F1 lists the names")
        if not isinstance(value, str) or not value.strip():
            raise KeymapInvalid(f'{path}: {name} must be a key such as "ctrl+n", so keys are as always')
        keymap[name] = ",".join(key.strip() for key in value.split(","))
    return keymap


def sample_keymap() -> str:
    """A file with every name and its own keys, commented out."""
    lines = [
        "# Keys of paged-chat in the terminal. Take the # away before a line, and change its keys.",
        '# Several keys: "ctrl+n,f9". Names that begin with message. work while a message is selected.',
        "[keys]",
    ]
    for action in ACTIONS:
        lines.append(f"# {action.title}")
        lines.append(f'# {action.name} = "{action.keys}"')
        if action.message_keys:
            lines.append(f'# "{message_binding_id(action.name)}" = "{action.message_keys}"')
    return "\n".join(lines) + "\n"


def _flat(keys: dict[str, object]) -> Iterable[tuple[str, object]]:
    """`message.retry` may be written in quotes, or as TOML reads it without: a table in the table."""
    for name, value in keys.items():
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", inner_value
        else:
            yield name, value

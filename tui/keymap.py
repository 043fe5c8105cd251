"""The keymap file: which keys do what, as a person changed it."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from paged_chat.app.errors import PagedChatError

from .actions import ACTIONS, message_binding_id

MODIFIERS = {"ctrl", "alt", "shift", "super", "hyper", "meta"}
_NAMES = {key.value.rpartition("+")[2] for key in Keys} | set(KEY_NAME_REPLACEMENTS.values())


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
        reason = error.strerror if isinstance(error, OSError) else error
        raise KeymapInvalid(f"{path} can't be used, so keys are as always: {reason}") from error
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
        names = [key.strip() for key in value.split(",")]
        for key in names:
            if not is_key(key):
                raise KeymapInvalid(f"{path}: {name}: no key is called {key!r}, so keys are as always; F1 has names")
        keymap[name] = ",".join(names)
    return keymap


def clashes(keymap: Mapping[str, str]) -> Iterator[str]:
    """In words, each key that would do two things at once: "ctrl+f is new_chat and search"."""
    everywhere = {action.name: action.keys for action in ACTIONS}
    on_message = {message_binding_id(action.name): action.message_keys for action in ACTIONS}
    for own in (everywhere, on_message):
        names: dict[str, list[str]] = {}
        for name, keys in own.items():
            for key in filter(None, keymap.get(name, keys).split(",")):
                names.setdefault(key, []).append(name)
        yield from (f"{key} is {' and '.join(meant)}" for key, meant in names.items() if len(meant) > 1)


def is_key(key: str) -> bool:
    """Whether Textual knows a key of this name: any modifiers, then a character or the name of one."""
    *modifiers, base = key.split("+") if key != "+" else [key]
    return set(modifiers) <= MODIFIERS and (len(base) == 1 or base in _NAMES or _is_character(base))


def _is_character(name: str) -> bool:
    """Such as "ampersand", by Unicode's name of it."""
    try:
        unicodedata.lookup(name.replace("_", " ").upper())
    except KeyError:
        return False
    return True


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

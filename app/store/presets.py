"""System prompts and sampling settings that a person keeps under a name."""

from __future__ import annotations

from sqlite3 import Connection

from paged_chat.engine.request import SamplingParams

from ..mended_text import mended
from .rows import sampling_from, sampling_to_db


def system_prompts(connection: Connection) -> dict[str, str]:
    """The texts by name, in alphabetical order."""
    return {row["name"]: row["text"] for row in connection.execute("SELECT * FROM system_prompts ORDER BY name")}


def save_system_prompt(connection: Connection, name: str, text: str) -> None:
    connection.execute(
        "INSERT INTO system_prompts (name, text) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET text = excluded.text",
        (mended(name), mended(text)),
    )


def delete_system_prompt(connection: Connection, name: str) -> None:
    connection.execute("DELETE FROM system_prompts WHERE name = ?", (mended(name),))


def sampling_presets(connection: Connection) -> dict[str, SamplingParams]:
    """The settings by name, in alphabetical order."""
    rows = connection.execute("SELECT * FROM sampling_presets ORDER BY name")
    return {row["name"]: sampling_from(row["sampling"]) for row in rows}


def save_sampling_preset(connection: Connection, name: str, sampling: SamplingParams) -> None:
    connection.execute(
        "INSERT INTO sampling_presets (name, sampling) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET sampling = excluded.sampling",
        (mended(name), sampling_to_db(sampling)),
    )


def delete_sampling_preset(connection: Connection, name: str) -> None:
    connection.execute("DELETE FROM sampling_presets WHERE name = ?", (mended(name),))

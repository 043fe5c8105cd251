"""Whose engine answers, as a person says it to a command."""

from __future__ import annotations

from enum import StrEnum


class EngineMode(StrEnum):
    """Our own, that of a `paged-chat web` or `serve` that runs already, or as the command finds best."""

    OWN = "own"
    SHARED = "shared"
    AUTO = "auto"

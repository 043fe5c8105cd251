"""What a model is doing while it loads, in words that every surface uses."""

from __future__ import annotations

from collections.abc import Mapping

from paged_chat.engine.progress import LoadStage

STAGE_WORDS: Mapping[LoadStage, str] = {
    "download": "downloading",
    "convert": "preparing",
    "load": "loading",
    "warm up": "warming up",
}

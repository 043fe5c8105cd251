"""What a model is doing while it loads, in words that every surface uses."""

from __future__ import annotations

from collections.abc import Mapping

from paged_chat.engine.progress import LoadProgress, LoadStage

STAGE_WORDS: Mapping[LoadStage, str] = {
    "download": "downloading",
    "convert": "preparing",
    "load": "loading",
    "warm up": "warming up",
}


def progress_words(name: str, progress: LoadProgress) -> str:
    """Such as "downloading smollm2-135m 45 %"."""
    if progress.stage == "warm up" and not progress.total:  # kernels are compiled and measured for this processor
        return f"{STAGE_WORDS[progress.stage]} {name}: at first a minute or two"
    share = f" {progress.done / progress.total:.0%}" if progress.total else ""
    return f"{STAGE_WORDS[progress.stage]} {name}{share}"

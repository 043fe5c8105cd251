"""How a beam search that goes on is told; its best beam is a preview, not the beginning of the reply."""

from __future__ import annotations

from paged_chat.engine.request import BeamPreview

from ..counted import counted

MOST_SHOWN = 160  # characters of the preview's end: that is where it grows


def search_words(preview: BeamPreview) -> str:
    """Such as "4 beams · 37 tokens · …in the morning, then the castle"."""
    text = preview.text[-MOST_SHOWN:]
    cut = "…" if len(text) < len(preview.text) else ""
    words = [counted(preview.num_beams, "beam"), counted(len(preview.token_ids), "token")]
    return " · ".join([*words, cut + text] if text else words)

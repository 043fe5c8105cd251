"""How the letter of a block's state is drawn, on the map of the pool and in the strip under a reply."""

from __future__ import annotations

from paged_chat.app.cache_view.block_view import BlockLook

INK = "#10161C"


def letter_style(look: BlockLook, *, is_dark: bool) -> str | None:
    """A style as Rich and Textual read it; None where the state has no colour.

    On a light ground the colours are too faint for letters: there they are the letter's own ground.
    """
    if is_dark:
        return look.dark
    return look.light and f"{INK} on {look.light}"

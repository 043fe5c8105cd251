"""How the letter of a block's state is drawn, on the map of the pool and in the strip under a reply."""

from __future__ import annotations

from paged_chat.app.cache_view.block_view import LOOKS, BlockLook, BlockState

INK = "#10161C"
LIGHT_INK = "#FFFFFF"
DEEP = {LOOKS[BlockState.CACHED].dark}  # colours on which dark ink is too faint


def letter_style(look: BlockLook, *, is_dark: bool) -> str | None:
    """A style as Rich and Textual read it; None where the state has no colour.

    As letters, some of the colours are too faint on the page: they are the letter's own ground.
    """
    colour = look.dark if is_dark else look.light
    return colour and f"{LIGHT_INK if colour in DEEP else INK} on {colour}"

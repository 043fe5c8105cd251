"""Gradio's colours and fonts, as the page's own style sheets have them; fonts are those of the machine."""

from __future__ import annotations

from gradio.themes import Base

_FONTS = ["ui-sans-serif", "system-ui", "sans-serif"]
_MONO_FONTS = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]

THEME = Base(font=_FONTS, font_mono=_MONO_FONTS, primary_hue="sky", neutral_hue="slate")

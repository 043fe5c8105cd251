"""Content that comes in parts: the text in it, and marks in the place of images and other things."""

from __future__ import annotations

from collections import Counter

from .fields import Fields


def parts_text(fields: Fields, name: str, left_out: Counter[str]) -> str:
    """The texts of a list of parts, a line for each; a part without text leaves a mark, and is counted."""
    parts = fields.items(name)
    texts = []
    for at in parts.names:
        if isinstance(parts.raw(at), str):
            texts.append(parts.text(at))
        elif parts.raw(at) is not None:
            texts.append(_object_text(parts.fields(at), left_out))
    return "\n".join(text for text in texts if text)


def _object_text(part: Fields, left_out: Counter[str]) -> str:
    if "text" in part:
        return part.optional("text", part.text) or ""
    kind = part.optional("content_type", part.text) or part.optional("type", part.text) or ""
    if "image" in kind:
        left_out["images"] += 1
        return "[image]"
    left_out["attachments"] += 1
    return "[attachment]"

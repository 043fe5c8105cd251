"""The words of a comparison, the same on both screens."""

from __future__ import annotations


def diff_legend(name: str) -> str:
    """What the lines of a diff against the reply of this name mean."""
    return f"against {name}: underlined is only here, struck out only there"

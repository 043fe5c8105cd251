"""An expected time in words that promise no more than is known."""

from __future__ import annotations

from paged_chat.engine import TimeEstimate

ROUGH = 0.3  # from such a share of the time on, the error is told


def about(expected: TimeEstimate) -> str:
    """Such as "~0.4 s", "~40 ms", or "1.0 to 2.4 s" where measurements differ much."""
    if expected.error_s < ROUGH * expected.seconds:
        return f"~{_figure(expected.seconds, _is_short(expected.seconds))}"
    least, most = expected.seconds - expected.error_s, expected.seconds + expected.error_s
    low, high = _figure(least, _is_short(most)), _figure(most, _is_short(most))
    return f"{low.rpartition(' ')[0]} to {high}" if low != high else f"~{high}"


def _is_short(seconds: float) -> bool:
    """Told in milliseconds."""
    return seconds < 0.095


def _figure(seconds: float, in_ms: bool) -> str:
    if in_ms:
        return f"{max(10, round(seconds * 100) * 10)} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"

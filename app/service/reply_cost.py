"""What a reply took: from the engine's figures, put together where it was continued."""

from __future__ import annotations

from paged_chat.engine.request import RequestStats

from ..chats import ReplyCost


def cost_of(stats: RequestStats, sample: int) -> ReplyCost:
    """Of replies side by side the first one computed the prompt for all: the others found all of it."""
    num_cached = stats.num_prompt_tokens if sample else stats.num_cached_tokens
    return ReplyCost(
        num_cached_tokens=num_cached,
        num_computed_tokens=stats.num_prompt_tokens - num_cached,
        num_generated_tokens=stats.num_generated_tokens,
        ttft_ms=stats.ttft_ms if stats.num_generated_tokens else None,
        tokens_per_s=stats.decode_tokens_per_s or None,
        num_accepted_tokens=stats.num_accepted_tokens,
    )


def continued(before: ReplyCost, after: ReplyCost) -> ReplyCost:
    """Of a reply and its continuation, as of one reply: the wait is that for its first token, the pace the newest.

    The continuation's prompt is the reply's own with what was written of it, so it isn't counted once more. What of the
    reply's prompt was found both times was reused; what had to be computed either time, because the pool didn't hold it
    any more, was computed.
    """
    num_prompt = before.num_cached_tokens + before.num_computed_tokens
    num_cached = min(before.num_cached_tokens, after.num_cached_tokens)
    return ReplyCost(
        num_cached_tokens=num_cached,
        num_computed_tokens=num_prompt - num_cached,
        num_generated_tokens=before.num_generated_tokens + after.num_generated_tokens,
        ttft_ms=before.ttft_ms if before.ttft_ms is not None else after.ttft_ms,
        tokens_per_s=after.tokens_per_s or before.tokens_per_s,
        num_accepted_tokens=before.num_accepted_tokens + after.num_accepted_tokens,
    )


def cost_words(cost: ReplyCost, model: str | None = None) -> str:
    """The line under a reply, such as "smollm2-135m · 212 reused · 31 computed · TTFT 48 ms · 118 tok/s"."""
    words = [model] if model else []
    words += [f"{cost.num_cached_tokens:,} reused", f"{cost.num_computed_tokens:,} computed"]
    if cost.ttft_ms is not None:
        words.append(f"TTFT {cost.ttft_ms:,.0f} ms")
    if cost.tokens_per_s is not None:
        words.append(f"{rate_words(cost.tokens_per_s)} tok/s")
    if cost.num_accepted_tokens:
        words.append(f"{cost.num_accepted_tokens:,} guessed")
    return " · ".join(words)


def rate_words(rate: float) -> str:
    """Such as "1,180", "118", "8.2" and "0.37": whole from ten on, two digits below."""
    return f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.2g}"

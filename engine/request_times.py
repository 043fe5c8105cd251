"""When what happened to a request, and the figures that come of it."""

import time
from dataclasses import dataclass

from .request import BlockUse, RequestStats
from .sequence import Sequence


@dataclass(slots=True)
class RequestTimes:
    """Moments of `time.perf_counter()`; None until they come."""

    submitted: float
    started: float | None = None  # the first step that computes it begins
    first_token: float | None = None
    last_token: float | None = None

    def mark_started(self, moment: float) -> None:
        if self.started is None:
            self.started = moment

    def mark_token(self) -> None:
        self.last_token = time.perf_counter()
        self.first_token = self.first_token or self.last_token

    def stats(self, sequence: Sequence, block_use: BlockUse | None) -> RequestStats:
        """What a reply cost that ends now, or has its last token already; `sequence` is its prompt and tokens."""
        now = time.perf_counter()
        first, last = self.first_token or now, self.last_token or now
        num_after_first = sequence.num_generated_tokens - 1
        return RequestStats(
            num_prompt_tokens=sequence.num_given_tokens,
            num_cached_tokens=sequence.num_cached_tokens or 0,
            num_generated_tokens=sequence.num_generated_tokens,
            num_preemptions=sequence.num_preemptions,
            queue_ms=((self.started or now) - self.submitted) * 1e3,
            ttft_ms=(first - self.submitted) * 1e3,
            total_ms=(last - self.submitted) * 1e3,
            decode_tokens_per_s=num_after_first / (last - first) if num_after_first > 0 and last > first else 0.0,
            num_drafted_tokens=sequence.num_drafted_tokens,
            num_accepted_tokens=sequence.num_accepted_tokens,
            block_use=block_use,
            prefix=sequence.prefix,
        )

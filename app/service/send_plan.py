"""What sending a message would cost, known before it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from paged_chat.engine import TimeEstimate

from ..cache_view.reuse_words import reuse_words
from ..counted import counted
from ..transcript.divergence import Divergence
from ..transcript.miss_reason import MissReason
from .expected_time import about
from .model_notice import ModelNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPlan:
    """The prompt of a reply: how long it is, what of it the cache has now, what doesn't fit.

    num_reused_tokens: their KV lies in the pool, in whole blocks and a part of one more.
    window: most tokens that prompt and reply may have together.
    left_out_ids: the messages that don't fit, oldest first; screens show them greyed.
    num_left_out_turns: how many questions are among them.
    divergence: where and why the prompt parts from what the engine was sent before; None if it goes on from it.
    expected_ttft: how long it takes to the first token, if nothing else is computed; None before enough was measured.
    miss: why it isn't more that is reused.
    model_notice: which model answers where the chat names another one; None where it is the chat's.
    """

    num_prompt_tokens: int
    num_reused_tokens: int
    window: int
    left_out_ids: tuple[int, ...] = ()
    num_left_out_turns: int = 0
    divergence: Divergence | None = None
    expected_ttft: TimeEstimate | None = None
    miss: MissReason | None = None
    model_notice: ModelNotice | None = None

    @property
    def num_computed_tokens(self) -> int:
        return self.num_prompt_tokens - self.num_reused_tokens

    @property
    def reuse_words(self) -> str:
        """Such as "37 blocks and 3 tokens", or "nothing"."""
        return reuse_words(self.num_reused_tokens)

    def __str__(self) -> str:
        """Such as "reuses 37 blocks and 3 tokens, computes 12 tokens, first token in ~0.4 s"; then what is left out."""
        words = f"reuses {self.reuse_words}, computes {counted(self.num_computed_tokens, 'token')}"
        if self.expected_ttft is not None:
            words += f", first token in {about(self.expected_ttft)}"
        return words + self._exceptions

    @property
    def brief(self) -> str:
        """The same where several stand beside each other, such as "595 reused, 12 computed, ~0.4 s"."""
        words = f"{self.num_reused_tokens:,} reused, {self.num_computed_tokens:,} computed"
        if self.expected_ttft is not None:
            words += f", {about(self.expected_ttft)}"
        return words + self._exceptions

    @property
    def _exceptions(self) -> str:
        """What a person may not expect: that old turns are left out, or that another model answers."""
        words = ""
        if self.num_left_out_turns:
            verb = "is" if self.num_left_out_turns == 1 else "are"
            words += f"; {counted(self.num_left_out_turns, 'old turn')} {verb} left out"
        if self.model_notice is not None:
            words += f"; {self.model_notice}"
        return words

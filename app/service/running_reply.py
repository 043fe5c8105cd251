"""One reply while it is being written: what the engine's thread adds, and what screens and the store read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from paged_chat.engine.request import BeamPreview, FinishReason, RequestStats, TokenDelta, TokenLogprobs

from ..chats import KeptLogprobs, Message, MessageStatus, ReplyCost
from ..transcript.miss_reason import Explain, MissReason
from .chat_events import ReplyUpdate
from .reply_cost import continued, cost_of
from .resume_point import ResumePoint
from .send_plan import SendPlan

_STATUS: dict[FinishReason, MessageStatus] = {
    "stop": "done",
    "length": "done",
    "abort": "stopped",
    "error": "failed",
}


class RunningReply:
    """A draft and what has come of it.

    It ends when the engine says so, or whoever stops it; its end is told once it is in the store, or the store has
    refused it, so that whoever hears of it can go on from there.

    Always: once it has ended its text never changes again, whatever the engine still says of it.

    Safe from any thread. `on_change` is called after each change, outside of the lock, on the thread that changed it.
    """

    def __init__(
        self,
        draft: Message,
        sample: int,
        on_change: Callable[[RunningReply], None],
        logprobs: KeptLogprobs = (),
    ) -> None:
        """`sample` numbers it among the replies of its request; a draft with text is one that is continued, or begins
        with what was given to it. `logprobs` are of the ids that it has.
        """
        self.chat_id = draft.chat_id
        self.message_id = draft.id
        self.sample = sample
        self._on_change = on_change
        self._draft = draft
        self._lock = threading.Lock()
        self._text = draft.text
        self._token_ids = list(draft.token_ids or ())
        self._logprobs = list(logprobs)
        self._is_told_from_start = False
        self._status: MessageStatus = "draft"
        self._finish_reason: FinishReason | None = None
        self._error: str | None = None
        self._save_error: str | None = None
        self._is_settled = False
        self._cost = draft.cost
        self._num_before = len(self._token_ids)  # tokens that an earlier request wrote
        self._resumed_at: ResumePoint | None = None  # until the first new text
        self._plan: SendPlan | None = None
        self._explain: Explain | None = None
        self._miss: MissReason | None = None
        self._request_id: str | None = None
        self._search: BeamPreview | None = None  # while a beam search goes on
        self._submitted_at: float | None = None  # moments are those of time.perf_counter()
        self._first_token_at: float | None = None
        self._last_token_at: float | None = None
        self.is_stop_wanted = False

    # Writing

    def resume(self, at: ResumePoint) -> None:
        """Goes back to where the engine goes on, before its first token."""
        with self._lock:
            self._token_ids, self._text = list(at.token_ids), at.text
            self._num_before = len(at.token_ids)
            self._resumed_at = at
            del self._logprobs[self._num_before :]

    def expect_from_start(self) -> None:
        """The engine will tell the whole reply, what it begins with too."""
        self._is_told_from_start = True

    def mark_planned(self, plan: SendPlan, explain: Explain) -> None:
        """What its prompt reuses, and how to explain what it will have reused; the engine is about to get it."""
        with self._lock:
            self._plan, self._explain = plan, explain
            self._submitted_at = time.perf_counter()
        self._on_change(self)

    def mark_submitted(self, request_id: str) -> None:
        with self._lock:
            self._request_id = request_id
        self._on_change(self)

    def show_search(self, preview: BeamPreview) -> None:
        """How far the beam search has come that will write it."""
        with self._lock:
            if self.has_ended:
                return
            self._search = preview
        self._on_change(self)

    def grow(self, delta: TokenDelta) -> None:
        """Takes what the engine says; after the end it is ignored."""
        with self._lock:
            if self.has_ended:
                return
            if delta.token_ids:
                if self._is_told_from_start:
                    self._is_told_from_start = False
                    self._token_ids, self._text = [], ""
                self._token_ids += delta.token_ids
                self._keep(delta.logprobs)
                self._last_token_at = time.perf_counter()
                self._first_token_at = self._first_token_at or self._last_token_at
            if delta.text:
                self._text += self._joint() + delta.text
            if delta.finish_reason is not None:
                self._end(_STATUS[delta.finish_reason], delta.finish_reason, delta.error, delta.stats)
        self._on_change(self)

    def end(self, status: MessageStatus, error: str | None = None) -> bool:
        """Ends it with what has come, whatever the engine is doing; False if it had ended before."""
        with self._lock:
            if self.has_ended:
                return False
            reason: FinishReason = "error" if status == "failed" else "abort"
            self._end(status, reason, error, None)
        self._on_change(self)
        return True

    def mark_saved(self, *, whole: bool) -> None:
        """The store has what there is of it, or the whole reply."""
        with self._lock:
            is_news = self._save_error is not None or whole
            self._save_error = None
            self._is_settled = whole
        if is_news:
            self._on_change(self)

    def mark_unsaved(self, error: str) -> None:
        """The store has refused it for now."""
        with self._lock:
            is_news = self._save_error != error or self._is_settled != self.has_ended
            self._save_error = error
            self._is_settled = self.has_ended
        if is_news:
            self._on_change(self)

    # Reading

    @property
    def has_ended(self) -> bool:
        return self._status != "draft"

    @property
    def is_settled(self) -> bool:
        """Whether its end may be told."""
        return self._is_settled

    @property
    def is_unwanted(self) -> bool:
        """Whether the engine needn't go on with it."""
        return self.is_stop_wanted or self.has_ended

    @property
    def is_unsaved(self) -> bool:
        """Whether the store refused it when it was last saved."""
        return self._save_error is not None

    @property
    def miss(self) -> MissReason | None:
        """Why its prompt found no more in the cache; None before that is known."""
        return self._miss or (None if self._plan is None else self._plan.miss)

    @property
    def num_tokens(self) -> int:
        return len(self._token_ids)

    def message(self) -> Message:
        """As it is told: a draft until it is settled."""
        with self._lock:
            return self._message() if self._is_settled else self._draft_message()

    def unsaved(self) -> tuple[Message, KeptLogprobs]:
        """As it is to be stored."""
        with self._lock:
            return self._message() if self.has_ended else self._draft_message(), tuple(self._logprobs)

    def update(self) -> ReplyUpdate:
        """For a reader who has seen nothing of it yet."""
        with self._lock:
            is_settled = self._is_settled
            return ReplyUpdate(
                chat_id=self.chat_id,
                message_id=self.message_id,
                parent_id=self._draft.parent_id,
                text=self._text,
                new_text=self._text,
                status=self._status if is_settled else "draft",
                num_generated_tokens=len(self._token_ids),
                tokens_per_s=self._tokens_per_s(),
                finish_reason=self._finish_reason if is_settled else None,
                cost=self._cost if is_settled else None,
                cost_so_far=self._cost if self.has_ended else self._cost_so_far(),
                plan=self._plan,
                miss=self.miss,
                request_id=self._request_id,
                search=self._search,
                error=self._error if is_settled else None,
                save_error=self._save_error,
            )

    def _draft_message(self) -> Message:
        return replace(self._draft, text=self._text, token_ids=tuple(self._token_ids))

    def _message(self) -> Message:
        return replace(
            self._draft_message(),
            status=self._status,
            finish_reason=self._finish_reason,
            cost=self._cost,
            error=self._error,
        )

    def _keep(self, logprobs: Sequence[TokenLogprobs]) -> None:
        """Those of the newest tokens, once any is known: then each token has its place."""
        if not (logprobs or self._logprobs):
            return
        num_before = len(self._token_ids) - len(logprobs)
        del self._logprobs[num_before:]
        self._logprobs += [None] * (num_before - len(self._logprobs))
        self._logprobs += logprobs

    def _joint(self) -> str:
        """What belongs between the text from before and the first of the new."""
        at, self._resumed_at = self._resumed_at, None
        return "" if at is None else at.joint(self._token_ids[self._num_before :])

    def _end(self, status: MessageStatus, reason: FinishReason, error: str | None, stats: RequestStats | None) -> None:
        self._search = None
        self._cost = self._total_cost(stats)
        self._miss = self._reason_for(stats)
        self._finish_reason = reason
        self._error = error
        self._status = status

    def _reason_for(self, stats: RequestStats | None) -> MissReason | None:
        """What was found when it was admitted, which may be other than what was planned a moment before."""
        reason = None if self._plan is None else self._plan.miss
        found = None if stats is None else stats.prefix
        if found is not None and reason is not None and found.num_cached_tokens != reason.num_cached_tokens:
            assert self._explain is not None, "explained without its plan"
            reason = self._explain(found)
        return replace(reason, cause="computed beside") if reason is not None and self.sample else reason

    def _total_cost(self, stats: RequestStats | None) -> ReplyCost | None:
        """What the engine says, or what was seen from here; with what was spent before it was continued."""
        if stats is not None:
            return self._with_before(cost_of(stats, self.sample))
        return self._draft.cost if self._first_token_at is None else self._cost_so_far()

    def _cost_so_far(self) -> ReplyCost | None:
        """As it is seen from here; None until it is known what its prompt reuses."""
        plan = self._plan
        if plan is None:
            return self._draft.cost
        num_cached = plan.num_prompt_tokens if self.sample else plan.num_reused_tokens
        ttft_ms = None
        if self._first_token_at is not None:
            assert self._submitted_at is not None, "a token came before its request"
            ttft_ms = (self._first_token_at - self._submitted_at) * 1e3
        return self._with_before(
            ReplyCost(
                num_cached_tokens=num_cached,
                num_computed_tokens=plan.num_prompt_tokens - num_cached,
                num_generated_tokens=len(self._token_ids) - self._num_before,
                ttft_ms=ttft_ms,
                tokens_per_s=self._tokens_per_s(),
            )
        )

    def _with_before(self, cost: ReplyCost) -> ReplyCost:
        return cost if self._draft.cost is None else continued(self._draft.cost, cost)

    def _tokens_per_s(self) -> float | None:
        first, last = self._first_token_at, self._last_token_at
        num_after_first = len(self._token_ids) - self._num_before - 1
        if first is None or last is None or num_after_first < 1 or last <= first:
            return None
        return num_after_first / (last - first)

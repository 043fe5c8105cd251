"""One request of the engine, and the replies side by side that come of it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future

from paged_chat.engine.request import BeamPreview, SamplingParams, TokenDelta

from .prompts import PreparedPrompt
from .running_reply import RunningReply
from .search_watch import SearchWatch
from .served_engine import ServedEngine


class ReplyJob:
    """Gives one prompt to the engine and its tokens to the replies; samples of the request are replies, in order.

    Safe from any thread; waits for nothing.
    """

    def __init__(self, replies: Sequence[RunningReply], params: SamplingParams, salt: str) -> None:
        """`params.n` is the number of replies; only those with the same salt share what is cached."""
        assert params.n == len(replies), f"{len(replies)} replies for n={params.n}"
        self.replies = tuple(replies)
        self.params = params
        self.salt = salt
        self._lock = threading.Lock()
        self._served: ServedEngine | None = None  # once the request is given to it
        self._request_id: str | None = None
        self._watch: SearchWatch | None = None  # of a beam search

    def start(self, served: ServedEngine, prompt: PreparedPrompt) -> None:
        """Submits the request, unless every reply was stopped while its prompt was made."""
        with self._lock:
            if all(reply.has_ended for reply in self.replies):
                return
            for reply in self.replies:
                reply.mark_planned(prompt.plan, prompt.explain)
            self._served = served
        submitted = served.submit(
            prompt.token_ids, self.params, self._listen, salt=self.salt, reply_start=prompt.reply_start
        )
        submitted.add_done_callback(self._take_request_id)

    def stop(self, replies: Collection[RunningReply]) -> int:
        """Ends replies of the job with the step that is being computed now; gives how many hadn't ended yet."""
        with self._lock:
            stopped = [reply for reply in replies if not reply.has_ended]
            for reply in stopped:
                reply.is_stop_wanted = True
            served, request_id = self._served, self._request_id
        if served is None or self._goes_on_for_others():
            return sum(reply.end("stopped") for reply in stopped)
        if request_id is not None:
            self._abort(served, request_id)
        return len(stopped)

    def _goes_on_for_others(self) -> bool:
        """Whether the engine can't end one reply alone: those of a beam search part at its end."""
        return self.params.is_beam_search and not all(reply.is_unwanted for reply in self.replies)

    def fail(self, error: str) -> None:
        """Ends what still runs."""
        for reply in self.replies:
            reply.end("failed", error)

    def _abort(self, served: ServedEngine, request_id: str) -> None:
        running = [reply for reply in self.replies if not reply.has_ended]
        if all(reply.is_stop_wanted for reply in running):
            served.abort(request_id)
            return
        for reply in running:
            if reply.is_stop_wanted:
                served.abort(request_id, reply.sample)

    # On the engine's thread

    def _take_request_id(self, submitted: Future[str]) -> None:
        error = submitted.exception()
        if error is not None:
            self.fail(str(error))
            return
        with self._lock:
            served, request_id = self._served, submitted.result()
            self._request_id = request_id
        for reply in self.replies:
            reply.mark_submitted(request_id)
        if served is None:
            return
        if self.params.is_beam_search:
            self._watch = SearchWatch(served, request_id, self._show_search)
        if any(reply.is_unwanted for reply in self.replies):
            self._abort(served, request_id)

    def _show_search(self, preview: BeamPreview) -> None:
        for reply in self.replies:
            reply.show_search(preview)

    def _listen(self, delta: TokenDelta) -> None:
        if self._watch is not None:
            self._watch.stop()  # what is said now is final
        reply = self.replies[delta.sample]
        reply.grow(delta)
        if reply.is_unwanted and delta.finish_reason is None and self._served is not None:
            # It hadn't parted from its siblings yet when it was stopped, or ended on our side only.
            self._served.abort(delta.request_id, delta.sample)

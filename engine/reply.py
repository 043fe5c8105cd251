"""One reply while it grows: its text, its figures, and whether it has ended."""

from .block_use import BlockCount
from .request import FinishReason, RequestStats, TokenDelta, TokenLogprobs
from .request_times import RequestTimes
from .sequence import Sequence, SequenceStatus
from .text.detokenizer import Detokenizer
from .text.stop_strings import StopStrings
from .text.tokenizer import Tokenizer


class Reply:
    """Turns a sequence's new tokens into text that is never taken back.

    Always: the texts of its deltas joined are its final text; no part of a stop string is in it.

    What the sequence was given of the reply is taken first, as if it had been drawn: its characters and stop strings
    go on in what is drawn behind it. Its ids and its text come with the first delta.
    """

    def __init__(
        self,
        sequence: Sequence,
        tokenizer: Tokenizer | None,
        submitted: float,
        end_token_ids: frozenset[int],
        blocks: BlockCount | None = None,
    ) -> None:
        """blocks: of the replies side by side of which it is one."""
        self.sequence = sequence
        self._end_token_ids = end_token_ids
        self._detokenizer = Detokenizer(tokenizer) if tokenizer is not None else None
        self._stop_strings = StopStrings(sequence.params.stop)
        self.times = RequestTimes(submitted)
        self._blocks = blocks
        self._untold_ids: tuple[int, ...] = ()
        self._untold_text = ""
        self.end_at_start = self._take_start()  # why it ended before anything was drawn, if it did

    @property
    def has_ended(self) -> bool:
        return self.sequence.status is SequenceStatus.FINISHED

    def push(self, token_id: int, logprobs: TokenLogprobs | None) -> TokenDelta:
        """Takes the token that was just appended to the sequence; an end token is kept as an id, not as text."""
        self.times.mark_token()
        text, reason = self._take(token_id, len(self.sequence.token_ids))
        return self._delta((token_id,), text, reason, logprobs)

    def _take_start(self) -> FinishReason | None:
        sequence = self.sequence
        for end in range(sequence.num_prompt_tokens + 1, sequence.num_given_tokens + 1):
            token_id = sequence.token_ids[end - 1]
            text, reason = self._take(token_id, end)
            self._untold_ids += (token_id,)
            self._untold_text += text
            if reason is not None:
                return reason
        return None

    def _take(self, token_id: int, end: int) -> tuple[str, FinishReason | None]:
        """The text of a token, and why the reply ends with it; `end` counts the sequence's tokens up to this one."""
        reason: FinishReason | None = None
        text, stopped = "", False
        if token_id in self._end_token_ids:
            reason = "stop"
        elif self._detokenizer is not None:
            text, stop = self._stop_strings.push(self._detokenizer.push([token_id]))
            stopped = stop is not None
        num_reply_tokens = end - self.sequence.num_prompt_tokens
        if stopped:
            reason = "stop"
        elif reason is None and (num_reply_tokens == self.sequence.params.max_tokens or end >= self.sequence.max_len):
            reason = "length"
        if reason is not None and not stopped:
            text += self._stop_strings.finish()
        return text, reason

    def end(self, reason: FinishReason, error: str | None = None) -> TokenDelta:
        """Ends it without a token: stopped by the caller, or failed."""
        return self._delta((), self._stop_strings.finish(), reason, None, error)

    def _delta(
        self,
        token_ids: tuple[int, ...],
        text: str,
        reason: FinishReason | None,
        logprobs: TokenLogprobs | None,
        error: str | None = None,
    ) -> TokenDelta:
        untold_ids, self._untold_ids = self._untold_ids, ()
        untold_text, self._untold_text = self._untold_text, ""
        return TokenDelta(
            self.sequence.request_id,
            self.sequence.sample,
            untold_ids + token_ids,
            untold_text + text,
            reason,
            () if logprobs is None else (logprobs,),
            self._stats() if reason is not None else None,
            error,
        )

    def _stats(self) -> RequestStats:
        if self._blocks is not None:
            self._blocks.add(self.sequence)
        return self.times.stats(self.sequence, None if self._blocks is None else self._blocks.use)

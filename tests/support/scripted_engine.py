"""An engine that says what it is told to: enough of `Engine` for everything above it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import BeamPreview, FinishReason, RequestStats, SamplingParams, TokenDelta, TokenLogprobs


@dataclass
class _Running:
    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    words: list[deque[str]]  # what is still to be said, one queue a sample
    num_said: list[int] = field(default_factory=list)
    is_aborted: bool = False
    error: str | None = None


class ScriptedEngine:
    """Replies are enqueued as words; a word is one token, its id counts up from 100. A prompt is a token a character.

    Cached are the tokens that a prompt shares with the one before it.
    """

    model_name = "scripted"
    load_s = 0.25

    def __init__(self, max_model_len: int = 4096) -> None:
        self.max_model_len = max_model_len
        self.submitted: list[tuple[list[int], SamplingParams]] = []
        self.chats: list[list[tuple[str, str]]] = []
        self.aborted: list[str] = []
        self.configs: list[EngineConfig] = []
        self.before_step: Callable[[], None] = lambda: None
        self._scripts: deque[tuple[list[list[str]], str | None]] = deque()
        self._running: list[_Running] = []

    def enqueue(self, *replies: str) -> None:
        """What the samples of the next request say, word by word."""
        self._scripts.append(([reply.split(" ") for reply in replies], None))

    def enqueue_failure(self, reply: str, error: str) -> None:
        """The next request says this, then fails."""
        self._scripts.append(([reply.split(" ")], error))

    def __enter__(self) -> "ScriptedEngine":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def warm_up(self) -> None:
        pass

    def token_bytes(self, token_id: int) -> bytes:
        return f"w{token_id}".encode()

    def encode_chat(self, messages: Sequence[object]) -> list[int]:
        self.chats.append([(m.role, m.content) for m in messages])  # type: ignore[attr-defined]
        return [ord(c) for role, content in self.chats[-1] for c in f"{role}:{content};"]

    def submit(self, prompt_token_ids: Sequence[int], params: SamplingParams, *, salt: str = "") -> str:
        before = self.submitted[-1][0] if self.submitted else []
        prompt = list(prompt_token_ids)
        num_cached = next((i for i, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), 0)
        self.submitted.append((prompt, params))
        replies, error = self._scripts.popleft() if self._scripts else ([[]] * params.n, None)
        # Without a script: as many tokens as the request may have.
        words = [deque(reply or [f"w{i}" for i in range(params.max_tokens or 1)]) for reply in replies]
        assert len(words) == params.n, f"a script of {len(words)} replies for n={params.n}"
        request_id = f"request-{len(self.submitted)}"
        self._running.append(
            _Running(request_id, len(prompt), num_cached, words, num_said=[0] * len(words), error=error)
        )
        return request_id

    @property
    def has_unfinished(self) -> bool:
        return bool(self._running)

    def step(self) -> list[TokenDelta]:
        self.before_step()
        deltas = [
            delta
            for running in self._running
            for sample in range(len(running.words))
            if (delta := self._say(running, sample)) is not None
        ]
        self._running = [r for r in self._running if not r.is_aborted and any(r.words)]
        return deltas

    def beam_previews(self) -> list[BeamPreview]:
        """Of searches whose script is still being said: what they would have said so far."""
        return [
            BeamPreview(running.request_id, 2, tuple(range(100, 100 + running.num_said[0])), "so far", -1.0)
            for running in self._running
            if not running.is_aborted
        ]

    def abort(self, request_id: str) -> bool:
        self.aborted.append(request_id)
        for running in self._running:
            running.is_aborted |= running.request_id == request_id
        return True

    def _say(self, running: _Running, sample: int) -> TokenDelta | None:
        words = running.words[sample]
        if not words:
            return None
        finish_reason: FinishReason | None = None
        token_ids: tuple[int, ...] = ()
        text = ""
        if running.is_aborted:
            finish_reason = "abort"
        else:
            number = running.num_said[sample]
            token_ids, text = (100 + number,), ("" if number == 0 else " ") + words.popleft()
            running.num_said[sample] += 1
            if not words:
                finish_reason = "error" if running.error else "stop"
        stats = RequestStats(
            num_prompt_tokens=running.num_prompt_tokens,
            num_cached_tokens=running.num_cached_tokens,
            num_generated_tokens=running.num_said[sample],
            num_preemptions=0,
            queue_ms=0.0,
            ttft_ms=1.0,
            total_ms=2.0,
            decode_tokens_per_s=100.0,
        )
        return TokenDelta(
            running.request_id,
            sample,
            token_ids,
            text,
            finish_reason=finish_reason,
            logprobs=self._logprobs(running, token_ids),
            stats=stats if finish_reason else None,
            error=running.error if finish_reason == "error" else None,
        )

    def _logprobs(self, running: _Running, token_ids: Sequence[int]) -> tuple[TokenLogprobs, ...]:
        """Each token at -0.5, the ids after it at -1.5, -2.5 and so on; as many as were asked for."""
        num_top = self.submitted[int(running.request_id.removeprefix("request-")) - 1][1].logprobs
        if num_top is None:
            return ()
        return tuple(
            TokenLogprobs(token_id, -0.5, tuple((token_id + i, -0.5 - i) for i in range(num_top)))
            for token_id in token_ids
        )

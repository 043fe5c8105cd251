"""The shapes of OpenAI's answers: whole ones, and the chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from paged_chat.engine.request import FinishReason, TokenLogprobs

from ..transcript.chat_model import ChatModel

Kind = Literal["chat", "text"]
Json = dict[str, Any]
LEAST_LOGPROB = -9999.0  # JSON has no infinity


@dataclass(slots=True)
class Choice:
    """One reply as far as it has come."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    num_prompt_tokens: int
    num_cached_tokens: int
    num_completion_tokens: int

    def as_dict(self) -> Json:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_completion_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.num_cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


class Shapes:
    """Writes one answer; all its chunks have one id."""

    def __init__(self, kind: Kind, model: str, engine: ChatModel) -> None:
        """engine: spells the tokens of log probabilities."""
        self.kind, self._engine = kind, engine
        prefix, name = ("chatcmpl", "chat.completion") if kind == "chat" else ("cmpl", "text_completion")
        self._object = name
        self._head = {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"paged-chat-{version('paged-chat')}",
        }

    def whole(self, choices: Iterable[Choice], usage: Usage) -> Json:
        return self._answer(self._object, [self._whole_choice(choice) for choice in choices], usage.as_dict())

    def opening(self, index: int) -> Json:
        """Of a chat: whose turn it is."""
        return self._chunk([self._chunk_choice(index, {"role": "assistant", "content": "", "refusal": None})])

    def growth(self, index: int, text: str, logprobs: Sequence[TokenLogprobs], offset: int) -> Json:
        """offset: characters of the choice before `text`."""
        shown = self._logprobs(logprobs, offset) if logprobs else None
        if self.kind == "chat":
            return self._chunk([self._chunk_choice(index, {"content": text}, shown)])
        return self._chunk([{"index": index, "text": text, "logprobs": shown, "finish_reason": None}])

    def ending(self, index: int, finish_reason: FinishReason) -> Json:
        if self.kind == "chat":
            return self._chunk([self._chunk_choice(index, {}, None, finish_reason)])
        return self._chunk([{"index": index, "text": "", "logprobs": None, "finish_reason": finish_reason}])

    def closing(self, usage: Usage) -> Json:
        return self._chunk([]) | {"usage": usage.as_dict()}

    def without_end(self, logprobs: Sequence[TokenLogprobs], finish_reason: FinishReason | None) -> list[TokenLogprobs]:
        """An end token is no part of what is said."""
        ends = finish_reason == "stop" and bool(logprobs) and not self._engine.decode((logprobs[-1].token_id,))
        return list(logprobs[:-1] if ends else logprobs)

    def _whole_choice(self, choice: Choice) -> Json:
        logprobs = self._logprobs(choice.logprobs, 0) if choice.logprobs else None
        body: Json = {"text": choice.text}
        if self.kind == "chat":
            body = {"message": {"role": "assistant", "content": choice.text, "refusal": None}}
        return {"index": choice.index, **body, "logprobs": logprobs, "finish_reason": choice.finish_reason}

    def _chunk_choice(
        self, index: int, delta: Json, logprobs: Json | None = None, finish_reason: FinishReason | None = None
    ) -> Json:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}

    def _chunk(self, choices: list[Json]) -> Json:
        return self._answer("chat.completion.chunk" if self.kind == "chat" else self._object, choices, None)

    def _answer(self, name: str, choices: list[Json], usage: Json | None) -> Json:
        return {**self._head, "object": name, "choices": choices, "usage": usage}

    # Log probabilities

    def _logprobs(self, logprobs: Sequence[TokenLogprobs], offset: int) -> Json:
        if self.kind == "chat":
            content = [
                self._spelled(one.token_id, one.logprob)
                | {"top_logprobs": [self._spelled(token_id, logprob) for token_id, logprob in one.top]}
                for one in logprobs
            ]
            return {"content": content, "refusal": None}
        tokens = [self._text(one.token_id) for one in logprobs]
        return {
            "tokens": tokens,
            "token_logprobs": [_finite(one.logprob) for one in logprobs],
            "top_logprobs": [
                {self._text(token_id): _finite(logprob) for token_id, logprob in one.top} for one in logprobs
            ],
            "text_offset": [offset + sum(map(len, tokens[:place])) for place in range(len(tokens))],
        }

    def _spelled(self, token_id: int, logprob: float) -> Json:
        spelled = self._engine.token_bytes(token_id)
        return {"token": self._text(token_id), "logprob": _finite(logprob), "bytes": list(spelled)}

    def _text(self, token_id: int) -> str:
        return self._engine.token_bytes(token_id).decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)

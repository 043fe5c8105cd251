"""What requests to OpenAI's API may hold: its own fields, and those of ours that its clients send as extras.

What only concerns a hosted service is taken and ignored; what would change the answer and isn't done here is refused;
so is any other field, as OpenAI does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from paged_chat.engine import ChatMessage
from paged_chat.engine.request import SamplingParams

from .openai_errors import ApiError

DEFAULT_COMPLETION_TOKENS = 16
MAX_TOP_LOGPROBS = 20
MAX_PROMPTS = 2048
SEED_RANGE = 2**63
# Numbers and nothing that could be read as one: true isn't 1 here, nor "2" 2.
Whole = Annotated[int, Strict()]
Real = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]

_AS_THE_ENGINE_HAS_THEM = (
    "n", "top_p", "stop", "presence_penalty", "frequency_penalty",
    "top_k", "min_p", "repetition_penalty", "stop_token_ids", "ignore_eos",
)  # fmt: skip


class Part(BaseModel):
    """A piece of a message; only texts can be read."""

    type: str
    text: str | None = None


class ApiMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None

    def as_chat_message(self, place: int) -> ChatMessage:
        role = {"developer": "system", "function": "tool"}.get(self.role, self.role)
        if self.tool_calls:
            raise _unsupported(f"messages.{place}.tool_calls")
        return ChatMessage(role, self._text(place))  # type: ignore[arg-type]

    def _text(self, place: int) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        for part in self.content:
            if part.type != "text" or part.text is None:
                raise ApiError(
                    400,
                    f"this model reads text only, no {part.type}",
                    param=f"messages.{place}.content",
                    code="unsupported_content",
                )
        return "".join(part.text or "" for part in self.content)


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: Flag | None = None
    include_obfuscation: Flag | None = None


class _Request(BaseModel):
    """What both kinds of completions have in common."""

    model_config = ConfigDict(extra="forbid")

    model: str
    n: Whole | None = None
    temperature: Real | None = None
    top_p: Real | None = None
    seed: Whole | None = None
    stop: str | list[str] | None = None
    presence_penalty: Real | None = None
    frequency_penalty: Real | None = None
    max_tokens: Whole | None = None
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    # Ours, as other servers of this API call them too.
    top_k: Whole | None = None
    min_p: Real | None = None
    repetition_penalty: Real | None = None
    stop_token_ids: list[Whole] | None = None
    ignore_eos: Flag | None = None
    # Ignored.
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    # Refused.
    logit_bias: dict[str, float] | None = None

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check(self) -> None:
        """Raises ApiError for what isn't done here."""
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream to be true", param="stream_options", code="invalid_value")
        self._refuse("logit_bias")

    def _refuse(self, *names: str) -> None:
        for name in names:
            if getattr(self, name):
                raise _unsupported(name)

    def _params(self, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """Raises InvalidParameter."""
        given = {name: value for name in _AS_THE_ENGINE_HAS_THEM if (value := getattr(self, name)) is not None}
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            seed=None if self.seed is None else self.seed % SEED_RANGE,
            max_tokens=max_tokens,
            logprobs=logprobs,
            **given,
        )


class ChatRequest(_Request):
    messages: list[ApiMessage] = Field(min_length=1)
    max_completion_tokens: Whole | None = None
    logprobs: Flag | None = None
    top_logprobs: Whole | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    # Ignored.
    parallel_tool_calls: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    # Refused, but for values that ask for nothing.
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    audio: Any = None
    web_search_options: Any = None

    def check(self) -> None:
        super().check()
        self._refuse("tools", "functions", "audio", "web_search_options")
        if self.tool_choice not in (None, "none", "auto"):
            raise _unsupported("tool_choice")
        if self.function_call not in (None, "none", "auto"):
            raise _unsupported("function_call")
        if self.response_format is not None and self.response_format.get("type") != "text":
            raise _unsupported("response_format")
        if self.modalities not in (None, ["text"]):
            raise _unsupported("modalities")
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs to be true", param="top_logprobs", code="invalid_value")

    def sampling(self) -> SamplingParams:
        longest = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return self._params(longest, (self.top_logprobs or 0) if self.logprobs else None)

    def chat(self) -> list[ChatMessage]:
        return [message.as_chat_message(place) for place, message in enumerate(self.messages)]


class CompletionRequest(_Request):
    prompt: str | list[str] | list[Whole] | list[list[Whole]]
    logprobs: Whole | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    # Refused, but for values that ask for nothing.
    echo: Flag | None = None
    suffix: str | None = None
    best_of: Whole | None = None

    def check(self) -> None:
        super().check()
        self._refuse("echo", "suffix")
        if self.best_of not in (None, self.n or 1):
            raise _unsupported("best_of")
        if not self.prompt and self.prompt != "":
            raise ApiError(400, "the prompt is empty: give it at least one token", param="prompt", code="invalid_value")
        if len(self.prompts()) > MAX_PROMPTS:
            words = f"{len(self.prompts()):,} prompts are too many for one request: send {MAX_PROMPTS:,} at most"
            raise ApiError(400, words, param="prompt", code="invalid_value")

    def sampling(self) -> SamplingParams:
        return self._params(DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens, self.logprobs)

    def prompts(self) -> list[str | list[int]]:
        match self.prompt:
            case str(text):
                return [text]
            case [int(), *_]:
                return [[token for token in self.prompt if isinstance(token, int)]]
        return [prompt for prompt in self.prompt if not isinstance(prompt, int)]


def _unsupported(name: str) -> ApiError:
    return ApiError(
        400, f"Unsupported parameter: '{name}' isn't supported here.", param=name, code="unsupported_parameter"
    )

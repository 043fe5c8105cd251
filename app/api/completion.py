"""What one request of OpenAI's API asks for, as the engine makes it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

from paged_chat.engine.request import TokenLogprobs

from .completion_shapes import Choice, Json, Shapes, Usage
from .generation import Generation
from .openai_errors import ApiError


class Completion:
    """The choices of one request, as far as they have come."""

    def __init__(self, generation: Generation, shapes: Shapes, num_prompts: int, num_samples: int) -> None:
        self._generation, self._shapes, self._num_samples = generation, shapes, num_samples
        self.choices = [Choice(index) for index in range(num_prompts * num_samples)]
        self._prompt_tokens = [0] * num_prompts
        self._cached_tokens = [0] * num_prompts
        self._num_completion_tokens = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            num_prompt_tokens=sum(self._prompt_tokens),
            num_cached_tokens=sum(self._cached_tokens),
            num_completion_tokens=self._num_completion_tokens,
        )

    async def collect(self) -> None:
        """Until all have ended. Raises ApiError where the engine fails."""
        async for _ in self._growth():
            pass

    async def events(self, includes_usage: bool, on_end: Callable[[], None]) -> AsyncIterator[str]:
        """Server-sent events; a failure in mid-stream is one of them, and the last."""
        async with self._generation:
            if self._shapes.kind == "chat":
                for choice in self.choices:
                    yield _event(self._shapes.opening(choice.index), includes_usage)
            try:
                async for choice, text, logprobs, offset in self._growth():
                    if text or logprobs:
                        yield _event(self._shapes.growth(choice.index, text, logprobs, offset), includes_usage)
                    if choice.finish_reason is not None:
                        yield _event(self._shapes.ending(choice.index, choice.finish_reason), includes_usage)
            except ApiError as error:
                yield _event(error.as_dict(), True)
                return
            on_end()
            if includes_usage:
                yield _event(self._shapes.closing(self.usage), True)
            yield "data: [DONE]\n\n"

    async def _growth(self) -> AsyncIterator[tuple[Choice, str, list[TokenLogprobs], int]]:
        async for prompt, delta in self._generation.deltas():
            if delta.finish_reason in ("error", "abort"):
                raise ApiError(500, delta.error or "the engine was closed while it answered", code="engine_failed")
            choice = self.choices[prompt * self._num_samples + delta.sample]
            offset, logprobs = len(choice.text), self._shapes.without_end(delta.logprobs, delta.finish_reason)
            choice.text += delta.text
            choice.token_ids += delta.token_ids
            choice.logprobs += logprobs
            choice.finish_reason = delta.finish_reason
            if delta.stats is not None:
                self._num_completion_tokens += delta.stats.num_generated_tokens
                self._prompt_tokens[prompt] = delta.stats.num_prompt_tokens
                if delta.sample == 0:
                    self._cached_tokens[prompt] = delta.stats.num_cached_tokens
            yield choice, delta.text, logprobs, offset


def _event(data: Json, with_usage: bool) -> str:
    shown = data if with_usage else {name: value for name, value in data.items() if name != "usage"}
    return f"data: {json.dumps(shown, ensure_ascii=False, separators=(',', ':'))}\n\n"

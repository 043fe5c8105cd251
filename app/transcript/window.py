"""What of a chat fits the model's window, by the policy of context_policy.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from paged_chat.engine import ChatMessage
from paged_chat.engine.errors import PromptTooLong

from ..counted import counted
from .chat_model import ChatModel
from .context_policy import MIN_REPLY_TOKENS, cuts, reply_room

MAX_REMEMBERED_SYSTEM_PROMPTS = 32
MAX_REMEMBERED_SIZES = 65536


class Window:
    """Fits chats into the window of one loaded model; any thread may call it.

    A chat is measured text by text, and each text once: only a prompt that fits by that measure is encoded whole.

    num_tokens: the model's `max_model_len`, tokens of prompt and reply together.
    """

    def __init__(self, model: ChatModel, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self._model = model
        self._turn_overhead = lru_cache(MAX_REMEMBERED_SYSTEM_PROMPTS)(self._measure_turn)
        self._sizes: dict[bytes, int] = {}  # in tokens, by the text's digest: texts may be whole files

    def fit(
        self,
        system: tuple[ChatMessage, ...],
        messages: tuple[ChatMessage, ...],
        reply: Sequence[int],
        max_tokens: int | None,
    ) -> tuple[int, tuple[int, ...]]:
        """How many messages are left out, and the prompt of the others up to where the reply begins.

        messages: up to the question that is answered. reply: the ids that the reply begins with. max_tokens: the
            longest reply that is wanted.
        Raises PromptTooLong for a last turn that doesn't fit even alone, with the numbers.
        """
        system_size = self._size_of(system)
        available = self.num_tokens - system_size
        if available <= 0:
            raise PromptTooLong(
                f"the system prompt has {counted(system_size, 'token')}, and the model's window holds "
                f"{self.num_tokens:,}: shorten it"
            )
        overhead = self._turn_overhead(system)
        starts = [position for position, message in enumerate(messages) if message.role == "user"] or [0]
        starts[0] = 0  # what an imported chat holds before its first question belongs to it
        ends = [*starts[1:], len(messages)]
        sizes = [self._size_of(messages[start:end]) + overhead for start, end in zip(starts, ends, strict=True)]
        sizes[-1] += len(reply) - overhead  # of the last turn at least what was said is in the prompt
        room = reply_room(max_tokens, available)
        for turn in cuts(sizes, max(available // 2, 1)):
            needed = room if turn < len(sizes) - 1 else min(room, MIN_REPLY_TOKENS)
            if sum(sizes[turn:]) + needed > available:
                continue
            prompt = self._model.encode_chat((*system, *messages[starts[turn] :]))
            if len(prompt) + len(reply) + needed <= self.num_tokens:
                return starts[turn], tuple(prompt)
        raise self._too_long(sizes[-1], system_size, is_reply=bool(reply))

    def _measure_turn(self, system: tuple[ChatMessage, ...]) -> int:
        """Tokens that the template adds to a turn's question and reply."""
        question, reply = ChatMessage("user", "a"), ChatMessage("assistant", "a")
        one, two = (*system, question), (*system, question, reply, question)
        return max(len(self._model.encode_chat(two)) - len(self._model.encode_chat(one)) - 2 * self._size("a"), 0)

    def _size_of(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of what was said, without what a template adds."""
        return sum(
            self._size(message.content) if message.token_ids is None else len(message.token_ids) for message in messages
        )

    def _size(self, text: str) -> int:
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        size = self._sizes.get(digest)
        if size is None:
            if len(self._sizes) >= MAX_REMEMBERED_SIZES:
                self._sizes.clear()
            size = self._sizes[digest] = len(self._model.encode(text))
        return size

    def _too_long(self, num_tokens: int, num_system_tokens: int, *, is_reply: bool) -> PromptTooLong:
        window = f"the model's window holds {self.num_tokens:,}"
        if num_system_tokens:
            window += f", {num_system_tokens:,} of them for the system prompt"
        if is_reply:
            return PromptTooLong(
                f"this reply and its question have {counted(num_tokens, 'token')}, and {window}: there is no room to "
                "go on; ask for the rest in a new message"
            )
        return PromptTooLong(
            f"this message has {counted(num_tokens, 'token')}, and {window}, and the reply needs room too: shorten it, "
            "or take a model with a larger window"
        )

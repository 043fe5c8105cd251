"""How a chat becomes token ids: a prompt begins with the very ids that the engine has seen of the chat."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from paged_chat.engine import ChatMessage

from ..chats import Message
from .chat_model import ChatModel
from .divergence import Cause, Divergence, first_difference, how_rewritten
from .window import Window

MAX_REMEMBERED_PROMPTS = 32
MAX_REMEMBERED_REPLIES = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan:
    """The prompt of a reply, and what of the chat is in it.

    window: most tokens that prompt and reply may have together.
    reply_token_ids: what the prompt ends with of the reply itself, where that is continued or begins with given ids.
        The engine goes on behind these.
    left_out_ids: the messages that don't fit, oldest first.
    num_left_out_turns: how many questions are among them.
    divergence: where and why the prompt parts from what the engine was sent before; None if it goes on from it, or if
        this process has sent nothing of the chat yet.
    num_read_tokens: how much of the prompt, from its beginning, the engine has read or written before as far as this
        process knows; up to the divergence where there is one.
    """

    token_ids: tuple[int, ...]
    window: int
    reply_token_ids: tuple[int, ...] = ()
    left_out_ids: tuple[int, ...] = ()
    num_left_out_turns: int = 0
    divergence: Divergence | None = None
    num_read_tokens: int = field(default=0, compare=False)  # the same prompt may be read or not

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A prompt that was sent, without what it held of its own reply."""

    system_prompt: str
    messages: tuple[ChatMessage, ...]
    first_id: int  # of the messages that weren't left out
    token_ids: tuple[int, ...]


class Transcript:
    """Makes prompts of chats for one loaded model; any thread may call it.

    - A prompt begins with the prompt of the turn before and the ids of its reply (see engine/text/splicing.py), so
      that the engine reuses all that it has read.
    - A reply keeps its ids only where this model's tokenizer reads its text in them: in a chat that has changed models
      the ids of the other model's replies mean something else, or nothing.
    - A chat longer than the window loses whole old turns (see window.py). The same path is always cut at the same
      place.
    - Where a prompt can't go on from what was sent before, the plan says from which token on, and why.
    """

    def __init__(self, model: ChatModel, window: int) -> None:
        """`window`: the model's `max_model_len`, tokens of prompt and reply together."""
        self._model = model
        self._window = Window(model, window)
        self._sent: OrderedDict[tuple[str, int], _Sent] = OrderedDict()  # by chat and the question's id
        self._lock = threading.Lock()
        self._own_ids = lru_cache(MAX_REMEMBERED_REPLIES)(self._read_back)

    def encode(
        self,
        system_prompt: str | None,
        path: Sequence[Message],
        *,
        continue_reply: bool = False,
        reply_start: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> ContextPlan:
        """The prompt that is sent now; later ones are compared with it.

        path: from the chat's root to the question, or with `continue_reply` to the reply that goes on.
        reply_start: ids that the reply begins with; the prompt ends with all of them.
        max_tokens: the longest reply that is wanted; room is kept for it, within reason.

        Raises PromptTooLong for a last message that doesn't fit even alone, with the numbers; ChatTemplateInvalid,
        TokenizerMissing.
        """
        plan, sent = self._plan(system_prompt, path, (), continue_reply, reply_start, max_tokens)
        question = _question_in(path)
        if question is not None:
            with self._lock:
                self._sent[question.chat_id, question.id] = sent
                self._sent.move_to_end((question.chat_id, question.id))
                if len(self._sent) > MAX_REMEMBERED_PROMPTS:
                    self._sent.popitem(last=False)
        return plan

    def preview(
        self,
        system_prompt: str | None,
        path: Sequence[Message],
        text: str | None = None,
        *,
        continue_reply: bool = False,
        reply_start: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> ContextPlan:
        """The prompt that `encode` would give if `text` were sent behind the path; None for the path as it is.

        Raises as `encode` does.
        """
        new = () if text is None else (ChatMessage("user", text),)
        return self._plan(system_prompt, path, new, continue_reply, reply_start, max_tokens)[0]

    def token_ids_of(self, reply: Message) -> tuple[int, ...]:
        """A reply's ids as this model reads it: its own, or where they mean nothing here, those of its text."""
        if not reply.text and reply.token_ids and not self._model.decode(reply.token_ids):
            return reply.token_ids  # an end token alone
        own = self._chat_message(reply).token_ids
        return tuple(self._model.encode(reply.text)) if own is None else tuple(own)

    def _plan(
        self,
        system_prompt: str | None,
        path: Sequence[Message],
        new: tuple[ChatMessage, ...],
        continue_reply: bool,
        reply_start: Sequence[int],
        max_tokens: int | None,
    ) -> tuple[ContextPlan, _Sent]:
        system = (ChatMessage("system", system_prompt),) if system_prompt else ()
        said = (*(self._chat_message(message) for message in path), *new)
        messages, reply = said, list(reply_start)
        if continue_reply:
            assert said[-1].role == "assistant", "only a reply can be continued"
            messages, reply = said[:-1], self._resumable(said[-1])
        start, prompt = self._window.fit(system, messages, reply, max_tokens)
        left_out = path[:start]
        sent = _Sent(
            system_prompt or "", (*system, *messages[start:]), path[start].id if start < len(path) else -1, prompt
        )
        num_read, divergence = self._read_before(path, said, sent, (*prompt, *reply))
        plan = ContextPlan(
            token_ids=(*prompt, *reply),
            window=self._window.num_tokens,
            reply_token_ids=tuple(reply),
            left_out_ids=tuple(message.id for message in left_out),
            num_left_out_turns=sum(message.role == "user" for message in left_out),
            divergence=divergence,
            num_read_tokens=num_read,
        )
        return plan, sent

    # Messages

    def _chat_message(self, message: Message) -> ChatMessage:
        if message.role == "user":
            return ChatMessage("user", message.text)
        stop_texts = () if message.sampling is None else tuple(message.sampling.stop)
        return ChatMessage("assistant", message.text, self._own_ids(message.text, message.token_ids, stop_texts))

    def _read_back(
        self, text: str, token_ids: tuple[int, ...] | None, stop_texts: tuple[str, ...]
    ) -> tuple[int, ...] | None:
        """The ids to send a reply as; None where its text is to be encoded."""
        if not text:
            return ()  # nothing was said, and nobody has read an end token
        if token_ids is None:
            return None
        read, words = self._model.decode(token_ids), _words(text)
        if not words:
            is_own = read == text  # ids that another vocabulary has leave no trace either
        else:
            is_own = _words(read) == words or self._ends_with_stop_text(words, token_ids, stop_texts)
        return token_ids if is_own else None

    def _ends_with_stop_text(self, words: str, token_ids: tuple[int, ...], stop_texts: tuple[str, ...]) -> bool:
        """Whether what the ids say beyond the shown words is a stop text, or as much of one as had come.

        Of more than that nobody would see that the model reads it, and an imported chat may have any ids.
        """
        if not stop_texts:
            return False
        read, before_last = _words(self._model.decode(token_ids)), _words(self._model.decode(token_ids[:-1]))
        for stop_words in map(_words, stop_texts):
            whole = words + stop_words
            if read.startswith(words) and whole.startswith(read):
                return True
            # The token that completes it may hold more than its end.
            if read.startswith(whole) and len(before_last) < len(whole):
                return True
        return False

    def _resumable(self, reply: ChatMessage) -> list[int]:
        """The ids of a reply after which it goes on."""
        return self._model.resumable(self._model.encode(reply.content) if reply.token_ids is None else reply.token_ids)

    # What was sent before

    def _read_before(
        self, path: Sequence[Message], said: tuple[ChatMessage, ...], now: _Sent, token_ids: tuple[int, ...]
    ) -> tuple[int, Divergence | None]:
        """How much of the prompt was sent or written before, and where it parts from that.

        said: the path, and what is new behind it.
        """
        for position in reversed(range(len(path))):
            with self._lock:
                sent = self._sent.get((path[position].chat_id, path[position].id))
            followers = said[position + 1 : position + 2]
            if sent is None or any(message.role == "user" for message in followers):
                continue  # a question without a reply: what was opened for that isn't there any more
            # Nobody has read the last token of a reply.
            read = sent.token_ids + tuple(t for message in followers for t in (message.token_ids or ())[:-1])
            index = first_difference(read, token_ids)
            if index is None:
                return min(len(read), len(token_ids)), None
            cause = self._cause(sent, now, read, token_ids, index)
            return index, Divergence(index, read[index], token_ids[index], cause)
        return 0, None

    def _cause(self, sent: _Sent, now: _Sent, read: tuple[int, ...], token_ids: tuple[int, ...], index: int) -> Cause:
        if sent.system_prompt != now.system_prompt:
            return "system prompt edited"
        if sent.first_id != now.first_id:
            return "context policy moved"
        # A template sees nothing but the messages and the clock.
        if tuple(self._model.encode_chat(sent.messages)) != sent.token_ids:
            return "date changed"
        start = min(index, len(sent.token_ids))
        return how_rewritten(self._model.decode, read[start:], token_ids[start:])


def _question_in(path: Sequence[Message]) -> Message | None:
    """The last message of the person, which a reply answers."""
    return next((message for message in reversed(path) if message.role == "user"), None)


def _words(text: str) -> str:
    """A reply's text without white space, some of which a tokenizer may drop, and without half a character."""
    return "".join(text.split()).rstrip("\ufffd")

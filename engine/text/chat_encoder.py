"""Chats as token ids: a chat that goes on begins with the very ids that the model has seen of it."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..errors import ChatTemplateInvalid
from .chat_message import ChatMessage
from .chat_template import ChatTemplate
from .control_tokens import Shield
from .splicing import Prompt
from .template_environment import clock_readings, read_clock
from .tokenizer import Tokenizer

MAX_KNOWN_CHATS = 32
FIRST_CHECK = 4  # turns; the next ones are at 8, 16, 32 and so on

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownChat:
    """A chat that was encoded, and what encoding goes on from.

    readings: what its template read from the clock; the encoding holds as long as the clock says the same.
    opening: what the template writes after the messages for the reply to begin; None where it can't be told apart, so
        that nothing can go on from here.
    heading: what the template writes before a reply in history; None before there is one.
    """

    messages: tuple[ChatMessage, ...]
    shield: Shield
    readings: dict[str, str]
    prompt: Prompt
    opening: str | None
    heading: str | None

    @property
    def token_ids(self) -> list[int]:
        return self.prompt.ids(self.opening or "")

    @property
    def is_current(self) -> bool:
        return all(read_clock(format_) == text for format_, text in self.readings.items())


class ChatEncoder:
    """Encodes chats with a model's template, and remembers the last ones.

    Rendering and encoding a long chat takes longer than the reply's first token, so a chat that goes on from a known
    one is encoded from there on. What the template adds for the new messages is found by rendering them behind the
    chat's beginning and its last turn alone: a template that appends writes the same behind a long chat. Whether this
    one does is checked with the whole chat when it has 4, 8, 16 … turns; one that fails is never trusted again.

    - The template alone decides about BOS: its text is encoded without a second one from the tokenizer.
    - Nothing that a message says can become a control token (see control_tokens.py).
    - A reply whose ids are known is never encoded anew (see splicing.py).

    The same messages always give the same ids, whatever is remembered; only a template that writes the date gives
    others another day. May be called from any thread.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._known: OrderedDict[tuple[object, ...], KnownChat] = OrderedDict()
        self._lock = threading.Lock()
        self._is_appending = True

    def encode(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The chat as token ids, up to where the assistant's next reply begins.

        Equal to `Tokenizer.encode_markup(template.render(messages))` unless a message holds the text of a control
        token or has `token_ids` of its own.

        Raises ChatTemplateInvalid where there is no template, or it is faulty, or it refuses these messages.
        """
        chat = tuple(messages)
        known = self._recall(chat)
        if known is None:
            before = self._recall(chat[: _last_step(chat)])
            known = (before and self._extended(before, chat)) or self._anew(chat)
            self._remember(known)
        return known.token_ids

    # What is remembered

    def _recall(self, messages: tuple[ChatMessage, ...]) -> KnownChat | None:
        with self._lock:
            known = self._known.get(_key(messages))
            if known is None or known.messages != messages or not known.is_current:
                return None
            self._known.move_to_end(_key(messages))
            return known

    def _remember(self, known: KnownChat) -> None:
        with self._lock:
            self._known[_key(known.messages)] = known
            self._known.move_to_end(_key(known.messages))
            if len(self._known) > MAX_KNOWN_CHATS:
                self._known.popitem(last=False)

    # Encoding

    def _anew(self, messages: tuple[ChatMessage, ...]) -> KnownChat:
        """From the whole chat."""
        shield = self._tokenizer.control_tokens.shield_for(
            [self._template.source or "", *(message.content for message in messages)]
        )
        with clock_readings() as readings:
            whole = self._render(messages, shield, add_generation_prompt=True)
            if whole.count(shield.splice_mark) != sum(message.token_ids is not None for message in messages):
                # The template leaves replies out or repeats them, so which ids belong where isn't known.
                logger.info("the chat template doesn't write each reply once; replies are encoded anew")
                unspliced = self._anew(tuple(replace(message, token_ids=None) for message in messages))
                return replace(unspliced, messages=messages)
            history = self._history(messages, shield)
            heading = None if history is None else self._heading(messages, history, shield)
        prompt = Prompt(self._tokenizer, shield)
        opening = None if history is None else _between(history, whole, "")
        if history is None or opening is None or shield.splice_mark in opening:
            return KnownChat(messages, shield, readings, prompt.extended(whole, messages, None, None), None, None)
        prompt = prompt.extended(history, messages, heading, opening)
        return KnownChat(messages, shield, readings, prompt, opening, heading)

    def _extended(self, known: KnownChat, messages: tuple[ChatMessage, ...]) -> KnownChat | None:
        """From what is known of its beginning; None where that isn't enough."""
        step = messages[len(known.messages) :]
        last_step = known.messages[_last_step(known.messages) or len(known.messages) :]
        shield, opening = known.shield, known.opening
        if not self._is_appending or opening is None or not shield.is_free_in(message.content for message in step):
            return None
        before = (*messages[: _end_of_beginning(messages)], *last_step)
        with clock_readings() as readings:
            base = self._history(before, shield)
            try:
                short = self._render((*before, *step), shield, add_generation_prompt=True)
            except ChatTemplateInvalid:
                return None  # what matters is whether it takes the whole chat
        added = None if base is None else _between(base, short, opening)
        if base is None or added is None:
            return None
        if added.count(shield.splice_mark) != sum(message.token_ids is not None for message in step):
            return None
        heading = known.heading
        if heading is None and shield.splice_mark in added:
            heading = self._heading((*before, *step), base + added, shield)
        prompt = known.prompt.extended(added, step, heading, opening)
        extended = KnownChat(messages, shield, known.readings | readings, prompt, opening, heading)
        return extended if self._holds(extended) else None

    def _holds(self, extended: KnownChat) -> bool:
        """Whether the whole chat is encoded the same; looked at each time that a chat's length has doubled."""
        num_turns = sum(message.role == "user" for message in extended.messages)
        if num_turns < FIRST_CHECK or num_turns & (num_turns - 1):
            return True
        if self._anew(extended.messages).token_ids == extended.token_ids or not extended.is_current:
            return True
        logger.info("the chat template writes more than the new messages as a chat goes on; chats are rendered whole")
        self._is_appending = False
        return False

    def _heading(self, messages: tuple[ChatMessage, ...], text: str, shield: Shield) -> str | None:
        """What the template writes between the messages before the first spliced reply, and that reply."""
        position = next((i for i, message in enumerate(messages) if message.token_ids is not None), 0)
        if position == 0:
            return None
        before = self._history(messages[:position], shield)
        if before is None or not text.startswith(before):
            return None
        return text[len(before) :].split(shield.splice_mark)[0]

    def _history(self, messages: Sequence[ChatMessage], shield: Shield) -> str | None:
        """The messages without an opening for a reply; None where the template refuses them so."""
        try:
            return self._render(messages, shield, add_generation_prompt=False)
        except ChatTemplateInvalid:
            return None

    def _render(self, messages: Sequence[ChatMessage], shield: Shield, *, add_generation_prompt: bool) -> str:
        """The chat with a mark in place of each reply whose ids are known, and stand-ins in what messages say.

        Only whole control tokens are covered at first: templates look into messages, for </think> for instance.
        """
        control_tokens = shield.control_tokens
        covered = _covered(messages, shield, shield.cover_tokens)
        text = self._template.render(covered, add_generation_prompt)
        if not any(control_tokens.may_arise_in(message.content) for message in covered):
            return text
        # A template that cuts words out could still leave a control token.
        strict = self._template.render(_covered(messages, shield, shield.cover), add_generation_prompt)
        return text if control_tokens.found_in(text) == control_tokens.found_in(strict) else strict


def _covered(messages: Sequence[ChatMessage], shield: Shield, cover: Callable[[str], str]) -> list[ChatMessage]:
    return [
        ChatMessage(message.role, cover(message.content) if message.token_ids is None else shield.splice_mark)
        for message in messages
    ]


def _between(beginning: str, text: str, end: str) -> str | None:
    """What a text holds between its beginning and its end; None where it doesn't begin or end so."""
    if not (text.startswith(beginning) and text.endswith(end) and len(text) >= len(beginning) + len(end)):
        return None
    return text[len(beginning) : len(text) - len(end)]


def _key(messages: tuple[ChatMessage, ...]) -> tuple[object, ...]:
    """Tells most chats apart without looking at all of their messages."""
    return len(messages), *messages[:2], *messages[-3:]


def _end_of_beginning(messages: tuple[ChatMessage, ...]) -> int:
    """After the first message of a user: templates treat what comes before differently from the rest."""
    return next((i + 1 for i, message in enumerate(messages) if message.role == "user"), len(messages))


def _last_step(messages: tuple[ChatMessage, ...]) -> int:
    """After the last message of a user that others follow: where the chat was encoded the time before."""
    return next((i + 1 for i in range(len(messages) - 2, -1, -1) if messages[i].role == "user"), 0)

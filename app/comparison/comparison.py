"""Replies to one question beside each other: their settings, what each took, and how their texts differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..chats import Message, ReplyCost
from .variant import settings_of
from .word_diff import Span, word_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedReply:
    """One of the replies.

    settings: those in which not all of the replies agree, in words by their names.
    cost: None where it isn't known, of an imported reply for instance.
    finish: why it ended ("stop", "length", "abort", "error"), or how it stands.
    """

    message_id: int
    name: str
    settings: dict[str, str]
    cost: ReplyCost | None
    finish: str
    text: str

    @property
    def settings_words(self) -> str:
        """Such as "temperature 0.7, seed 7"; of a system prompt its first line."""
        return ", ".join(f"{name} {_first_line(value)}" for name, value in self.settings.items())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Replies in the order in which they were asked for."""

    question: str
    replies: tuple[ComparedReply, ...]

    def diff(self, reference_id: int) -> dict[int, tuple[Span, ...]]:
        """Each reply's spans by its id, against the reply `reference_id`, which itself is all the same."""
        reference = next(reply.text for reply in self.replies if reply.message_id == reference_id)
        return {reply.message_id: word_diff(reference, reply.text) for reply in self.replies}


def compare_replies(question: str, replies: Sequence[Message]) -> Comparison:
    """The comparison of siblings, as far as they have come."""
    settings = [_settings(reply) for reply in replies]
    names = dict.fromkeys(name for one in settings for name in one)
    differing = [name for name in names if len({one.get(name) for one in settings}) > 1]
    return Comparison(
        question,
        tuple(
            ComparedReply(
                message_id=reply.id,
                name=name_of(reply, index),
                settings={name: own[name] for name in differing if name in own},
                cost=reply.cost,
                finish=reply.finish_reason or reply.status,
                text=reply.text,
            )
            for index, (reply, own) in enumerate(zip(replies, settings, strict=True))
        ),
    )


def name_of(reply: Message, index: int) -> str:
    """What a reply is called beside its siblings; `index` counts them from 0."""
    return f"Reply {index + 1}" if reply.variant is None else reply.variant.name


def _settings(reply: Message) -> dict[str, str]:
    if reply.sampling is None:
        return {}
    settings = settings_of(reply.sampling, None if reply.variant is None else reply.variant.system_prompt)
    if reply.variant is None:  # the chat's own, as it was then: that isn't kept
        del settings["system prompt"]
    return settings


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]

"""Why a prompt found no more in the cache: in words for people, and in figures for engineers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from paged_chat.engine import MissKind, PrefixMiss, PrefixProbe

from ..counted import counted
from .divergence import EXPLANATIONS, Cause, Divergence

MissCause = (
    Cause
    | Literal[
        "all reused",
        "computed beside",
        "new text",
        "first message",
        "other salt",
        "other model",
        "loaded since",
        "evicted",
        "not kept",
        "cache off",
    ]
)
_WORDS: dict[str, str] = {
    **{str(cause): words for cause, words in EXPLANATIONS.items()},
    "all reused": "everything was in the cache but the last token, which is always computed",
    "computed beside": "the reply beside this one computed the prompt for both",
    "new text": "the prompt is new",
    "first message": "the cache was empty, for this is the first that the model reads; nothing went wrong",
    "other salt": "this is the first that the model reads from you, and what others send is never reused for you",
    "other model": "another model has read this chat before, and one model's cache is of no use to another",
    "loaded since": "the model was loaded after it last read this chat, so the cache began empty",
    "evicted": "this was in the cache, and was given up when others needed the space; a larger pool keeps more",
    "not kept": "this was read before, and isn't kept any more",
    "cache off": "the engine was told to keep nothing",
}
# What nobody could have saved.
_NO_FAULT: frozenset[MissCause] = frozenset(
    ("all reused", "computed beside", "new text", "first message", "other salt")
)
NUM_SHOWN_TOKENS = 8

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of a prompt's chat beside the cache.

    num_read_tokens: of the prompt's beginning, that this process has had read or written before.
    divergence: where the prompt parts from that; None where it goes on from it.
    was_read_by: another model, which wrote the chat's last reply.
    is_older: its last reply is from before the model was loaded.
    """

    num_read_tokens: int = 0
    divergence: Divergence | None = None
    was_read_by: str | None = None
    is_older: bool = False


NOTHING_KNOWN = History()


@dataclass(frozen=True, slots=True, kw_only=True)
class MissReason:
    """Where a prompt stopped finding itself in the cache, and why.

    token_index, block_index: the first token that was computed, and its block; counted from 0.
    before, text: what the prompt says just before that token, and from it on.
    cached_text: the token that the cache has there instead; None where it has none. It is the chat's own of earlier
        where `is_from_this_chat`, else one of the user's chats that begin alike.
    candidate_block: where that lies; num_common_tokens of it were reused by copying.
    num_evicted_tokens: how many tokens from there on were in the cache once.
    was_read_by: the other model, where that is the cause.
    """

    cause: MissCause
    num_prompt_tokens: int
    num_cached_tokens: int
    num_cached_blocks: int
    token_index: int
    block_index: int
    before: str = ""
    text: str = ""
    cached_text: str | None = None
    is_from_this_chat: bool = False
    candidate_block: int | None = None
    num_common_tokens: int = 0
    num_evicted_tokens: int = 0
    was_read_by: str | None = None

    @property
    def is_fault(self) -> bool:
        """Whether more could have been reused, had something been otherwise."""
        return self.cause not in _NO_FAULT

    def __str__(self) -> str:
        """For people, such as "24 of 61 tokens were reused. From token 25 on: the system prompt was edited"."""
        why = _WORDS[self.cause]
        if self.was_read_by is not None:
            why = f"{self.was_read_by} has read this chat before, and one model's cache is of no use to another"
        if self.cause in ("all reused", "computed beside"):
            return why[0].upper() + why[1:]
        found = f"{self.num_cached_tokens:,} of {counted(self.num_prompt_tokens, 'token')} "
        found += f"{_were(self.num_cached_tokens)} reused"
        return f"{found}. From token {self.token_index + 1:,} on: {why}"

    @property
    def figures_words(self) -> str:
        """For engineers, such as "token 24, block 1: 'rude' after 'Be ', where block 17 has 'kind'"."""
        if self.cause in ("all reused", "computed beside"):
            return f"token {self.token_index}, block {self.block_index}"
        words = f"token {self.token_index}, block {self.block_index}: {self.text!r}"
        if self.before:
            words += f" after {self.before!r}"
        if self.cached_text is not None:
            holder = "the chat had" if self.is_from_this_chat else f"block {self.candidate_block} has"
            words += f", where {holder} {self.cached_text!r}"
        elif self.candidate_block is not None:
            words += f", behind the end of block {self.candidate_block}"
        if self.num_common_tokens:
            words += f"; {_tokens_were(self.num_common_tokens, f' of block {self.candidate_block}')} copied"
        if self.num_evicted_tokens:
            words += f"; {_tokens_were(self.num_evicted_tokens)} evicted"
        return words

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with the words for people beside them."""
        return {**asdict(self), "is_fault": self.is_fault, "words": str(self)}

    def to_keep(self) -> dict[str, Any]:
        """What is stored with a reply: nothing of what other chats say, which may be temporary ones."""
        return asdict(self if self.is_from_this_chat else replace(self, cached_text=None))

    @classmethod
    def kept(cls, values: Mapping[str, Any]) -> MissReason:
        """From what was stored; what another version has stored beside it is left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


# Why a prompt found what it did; made with what is known of its chat.
Explain = Callable[[PrefixProbe], MissReason]


def why_missed(
    prefix: PrefixProbe, token_ids: Sequence[int], decode: Decode, history: History = NOTHING_KNOWN
) -> MissReason:
    """prefix: what the prompt `token_ids` finds, or found when it was admitted."""
    miss = prefix.miss
    index = prefix.first_missing_token
    reason = MissReason(
        cause="all reused",
        num_prompt_tokens=len(token_ids),
        num_cached_tokens=prefix.num_cached_tokens,
        num_cached_blocks=prefix.num_cached_blocks,
        token_index=index,
        block_index=prefix.num_cached_blocks if miss is None else miss.block_index,
    )
    if miss is None:
        return reason
    cause = _cause(miss, history)
    divergence, candidate = history.divergence, miss.candidate
    cached_token = None if candidate is None else candidate.token_id
    is_from_this_chat = divergence is not None and divergence.index == index
    if divergence is not None and is_from_this_chat:
        cached_token = divergence.sent_token_id
    return replace(
        reason,
        cause=cause,
        before=decode(token_ids[max(0, index - NUM_SHOWN_TOKENS) : index]),
        text=decode(token_ids[index : index + NUM_SHOWN_TOKENS]),
        cached_text=None if cached_token is None else decode([cached_token]),
        is_from_this_chat=is_from_this_chat,
        candidate_block=None if candidate is None else candidate.block_id,
        num_common_tokens=0 if candidate is None else candidate.num_common_tokens,
        num_evicted_tokens=miss.num_evicted_tokens,
        was_read_by=history.was_read_by if cause == "other model" else None,
    )


def _cause(miss: PrefixMiss, history: History) -> MissCause:
    """The first that holds: what was surely there comes before what may be."""
    if miss.kind is MissKind.CACHE_OFF:
        return "cache off"
    if miss.kind is MissKind.EVICTED:
        return "evicted"
    if miss.token_index < history.num_read_tokens:
        return "not kept"
    if history.divergence is not None:
        return history.divergence.cause
    if history.num_read_tokens:
        return "new text"
    if history.was_read_by is not None:
        return "other model"
    if history.is_older:
        return "loaded since"
    if miss.token_index or not miss.is_root_empty:
        return "new text"
    return "other salt" if miss.num_other_roots else "first message"


def _tokens_were(number: int, whose: str = "") -> str:
    return f"{counted(number, 'token')}{whose} {_were(number)}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"

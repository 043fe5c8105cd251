"""A reply token by token: how likely each one was, and what else could have stood there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

from paged_chat.engine.request import TokenLogprobs

from ..chats import KeptLogprobs
from .token_piece import TokenPiece


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could stand in a place.

    probability: as the model alone weighs it, before temperature and penalties.
    is_written: it is the one that stands there.
    """

    piece: TokenPiece
    probability: float
    is_written: bool


@dataclass(frozen=True, slots=True)
class ReplyToken:
    """A token of a reply.

    index: from 0, in the reply.
    probability: None where it wasn't kept.
    alternatives: likeliest first, the written one among them; empty where they weren't kept.
    """

    index: int
    piece: TokenPiece
    probability: float | None
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyTokens:
    """All tokens of a reply, each exactly once, those that are no text too.

    model: which one wrote it, and weighed its tokens.
    """

    message_id: int
    model: str | None
    tokens: tuple[ReplyToken, ...]

    @property
    def has_alternatives(self) -> bool:
        """Whether those of any token were kept."""
        return any(token.alternatives for token in self.tokens)


def reply_tokens(
    message_id: int,
    model: str | None,
    token_ids: Sequence[int],
    logprobs: KeptLogprobs,
    spell: Callable[[tuple[int, ...]], Sequence[TokenPiece]],
) -> ReplyTokens:
    """logprobs: one for each id, or none at all. spell: called once, with every id that there is."""
    kept = logprobs or (None,) * len(token_ids)
    wanted = {*token_ids, *(token_id for one in kept if one is not None for token_id, _ in one.top)}
    pieces = {piece.token_id: piece for piece in spell(tuple(wanted))}
    tokens = (
        ReplyToken(index, pieces[token_id], None)
        if one is None
        else ReplyToken(index, pieces[token_id], exp(one.logprob), _alternatives(one, pieces))
        for index, (token_id, one) in enumerate(zip(token_ids, kept, strict=True))
    )
    return ReplyTokens(message_id, model, tuple(tokens))


def reply_token(
    index: int,
    token_id: int,
    top: Sequence[tuple[int, float]],
    num_shown: int,
    spell: Callable[[tuple[int, ...]], Sequence[TokenPiece]],
) -> ReplyToken:
    """A token whose place was weighed later; its probability is None if it isn't among the `top` ids.

    top: ids with their log probabilities, likeliest first; the written one is shown beside the first `num_shown`.
    """
    shown = [(other, logprob) for place, (other, logprob) in enumerate(top) if place < num_shown or other == token_id]
    pieces = {piece.token_id: piece for piece in spell((token_id, *(other for other, _ in shown)))}
    alternatives = tuple(Alternative(pieces[other], exp(logprob), other == token_id) for other, logprob in shown)
    probability = next((one.probability for one in alternatives if one.is_written), None)
    return ReplyToken(index, pieces[token_id], probability, alternatives)


def _alternatives(one: TokenLogprobs, pieces: Mapping[int, TokenPiece]) -> tuple[Alternative, ...]:
    # What was drawn may have been less likely than all that were kept.
    logprobs = {one.token_id: one.logprob, **dict(one.top)}
    ranked = sorted(logprobs.items(), key=lambda pair: -pair[1])
    return tuple(Alternative(pieces[token_id], exp(logprob), token_id == one.token_id) for token_id, logprob in ranked)

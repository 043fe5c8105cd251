"""A reply's tokens as the page is sent them."""

from __future__ import annotations

from dataclasses import dataclass

from ..token_view.reply_tokens import Alternative, ReplyToken, ReplyTokens
from ..token_view.token_words import (
    BRANCH,
    NOT_KEPT,
    PLAIN_TEXT,
    WEIGHED,
    WORK_OUT,
    WRITTEN,
    Surety,
    choice_words,
    percent,
    place_words,
    surety_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeView:
    """One line of the list that a token opens; `share` is the probability, of 1."""

    token_id: int
    label: str
    percent: str
    share: float
    note: str
    choice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """`look` is the class that tints it, empty where nothing is known; `title` says where it stands."""

    text: str
    title: str
    look: str
    alternatives: tuple[AlternativeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTokensView:
    """note, hint: what stands above the tokens and above a list of alternatives. legend: of each look its words."""

    note: str
    hint: str
    branch: str
    work_out: str
    legend: tuple[tuple[str, str], ...]
    tokens: tuple[TokenView, ...]


def reply_tokens_view(reply: ReplyTokens) -> ReplyTokensView:
    has_any = reply.has_alternatives
    return ReplyTokensView(
        note=PLAIN_TEXT if has_any else f"{PLAIN_TEXT} {NOT_KEPT}",
        hint=WEIGHED,
        branch=BRANCH,
        work_out=WORK_OUT,
        legend=tuple((surety.look.name, surety.look.words) for surety in Surety) if has_any else (),
        tokens=tuple(token_view(token, len(reply.tokens)) for token in reply.tokens),
    )


def token_view(token: ReplyToken, num_tokens: int) -> TokenView:
    """A token of a reply that has so many."""
    surety = surety_of(token)
    return TokenView(
        text=token.piece.flowing,
        title=place_words(token, num_tokens),
        look="" if surety is None else surety.look.name,
        alternatives=tuple(_alternative(token, alternative) for alternative in token.alternatives),
    )


def _alternative(token: ReplyToken, alternative: Alternative) -> AlternativeView:
    return AlternativeView(
        token_id=alternative.piece.token_id,
        label=alternative.piece.label,
        percent=percent(alternative.probability),
        share=round(alternative.probability, 4),
        note=WRITTEN if alternative.is_written else "",
        choice=choice_words(token, alternative),
    )

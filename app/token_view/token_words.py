"""The words and looks of a reply's tokens: how sure the model was, in one vocabulary for both screens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .reply_tokens import Alternative, ReplyToken

PLAIN_TEXT = "Plain text, token by token; Markdown isn't drawn here."
WEIGHED = "How likely the model alone held them, before temperature and penalties."
NOT_KEPT = "Alternatives weren't kept for this reply: open a token, and its own are worked out."
WORK_OUT = "Work out its alternatives"
WRITTEN = "written"
BRANCH = "Branch here"


@dataclass(frozen=True, slots=True)
class TokenLook:
    """How a token is drawn: a tint of one hue that grows with doubt, and a line under it for eyes that see no tint.

    name: for style sheets. words: what it means. least: the smallest probability that has it.
    light, dark: the tint behind the text in either theme; None is the page's own ground.
    """

    name: str
    words: str
    least: float
    light: str | None
    dark: str | None
    underline: str | None  # CSS's text-decoration-style


class Surety(Enum):
    """How likely a token was. Blue alone carries it, which all eyes tell from the ground; the line says it again."""

    SURE = TokenLook("sure", "90 % and more", 0.9, None, None, None)
    LIKELY = TokenLook("likely", "50 to 90 %", 0.5, "#E3F1FA", "#16303F", "dotted")
    DOUBTFUL = TokenLook("doubtful", "20 to 50 %", 0.2, "#BFE0F5", "#1D4A66", "dashed")
    UNLIKELY = TokenLook("unlikely", "under 20 %", 0.0, "#8CC9EE", "#27668E", "solid")

    @property
    def look(self) -> TokenLook:
        return self.value


def surety_of(token: ReplyToken) -> Surety | None:
    """None where nothing is known of a token."""
    if token.probability is None:
        return None
    shown = round(token.probability, 3)  # what is kept is rounded too: "50 %" is as likely as 50 %
    return next(surety for surety in Surety if shown >= surety.look.least)


def percent(probability: float) -> str:
    """Such as "42 %", "4.2 %", "0.31 %"; never a rounded 0 or 100."""
    if probability < 0.0001:
        return "<0.01 %"
    if 0.9995 <= probability < 1.0:
        return ">99.9 %"
    percents = probability * 100
    digits = 0 if 9.95 <= percents < 99.5 or probability >= 1.0 else 1 if percents >= 0.995 else 2
    return f"{percents:.{digits}f} %"


def choice_words(token: ReplyToken, alternative: Alternative) -> str:
    """What taking an alternative does, such as "“␣dog” in place of “␣cat”"."""
    if alternative.is_written:
        return f"“{alternative.piece.label}” again, and on from there with other random numbers"
    return f"“{alternative.piece.label}” in place of “{token.piece.label}”"


def place_words(token: ReplyToken, num_tokens: int) -> str:
    """Such as "token 12 of 240, 42 %"."""
    words = f"token {token.index + 1:,} of {num_tokens:,}"
    return words if token.probability is None else f"{words}, {percent(token.probability)}"

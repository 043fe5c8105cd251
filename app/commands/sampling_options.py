"""The options that say how replies are drawn."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from paged_chat.engine.request import RANGES, EarlyStopping

from .choice_option import choice_option
from .number_option import number_option


class EarlyStoppingChoice(StrEnum):
    """How `--early-stopping` names the values of `SamplingParams.early_stopping`."""

    YES = "true"
    NO = "false"
    NEVER = "never"

    @property
    def value_for_params(self) -> EarlyStopping:
        return "never" if self is EarlyStoppingChoice.NEVER else self is EarlyStoppingChoice.YES


CountOption = Annotated[int, number_option(RANGES["n"], "-n", metavar="COUNT", help="Replies to each prompt")]
SeedOption = Annotated[int | None, number_option(RANGES["seed"], metavar="SEED", help="Makes sampling repeatable")]
TemperatureOption = Annotated[
    float,
    number_option(RANGES["temperature"], "--temperature", "-t", metavar="T", help="0 takes the most likely token"),
]
TopPOption = Annotated[
    float, number_option(RANGES["top_p"], metavar="P", help="Smallest set of tokens that reach P together")
]
TopKOption = Annotated[int, number_option(RANGES["top_k"], metavar="K", help="The K most likely tokens; 0 is all")]
MinPOption = Annotated[
    float, number_option(RANGES["min_p"], metavar="P", help="Drop tokens under P times the most likely one")
]
RepetitionPenaltyOption = Annotated[
    float,
    number_option(
        RANGES["repetition_penalty"], metavar="R", help="Over 1 makes tokens of prompt and reply less likely"
    ),
]
PresencePenaltyOption = Annotated[
    float, number_option(RANGES["presence_penalty"], metavar="A", help="Taken off tokens that the reply has already")
]
FrequencyPenaltyOption = Annotated[
    float,
    number_option(RANGES["frequency_penalty"], metavar="A", help="Taken off for each time that the reply has a token"),
]
BeamWidthOption = Annotated[
    int,
    number_option(
        RANGES["beam_width"], metavar="COUNT", help="Over 1 searches for the likeliest replies, with so many beams"
    ),
]
LengthPenaltyOption = Annotated[
    float,
    number_option(
        RANGES["length_penalty"], metavar="X", help="Of beam search: over 0 favours long replies, under 0 short ones"
    ),
]
EarlyStoppingOption = Annotated[
    EarlyStoppingChoice,
    choice_option(
        EarlyStoppingChoice,
        metavar="WHEN",
        help="Of beam search: end with COUNT replies, when it looks settled, or when it surely is.",
    ),
]
MaxTokensOption = Annotated[int, number_option(RANGES["max_tokens"], metavar="COUNT", help="Longest reply, in tokens")]
StopOption = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="Ends the reply before TEXT; may be repeated.")
]
LogprobsOption = Annotated[
    int | None,
    number_option(
        RANGES["logprobs"], metavar="K", help="With --json: how likely each token was, and its K likeliest alternatives"
    ),
]

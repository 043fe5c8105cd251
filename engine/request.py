"""What goes into the engine and what comes out: sampling parameters, token deltas, finished outputs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from .cache.prefix_probe import PrefixProbe
from .errors import InvalidParameter
from .number_range import NumberRange, check_numbers, shown

Item = TypeVar("Item")
FinishReason = Literal["stop", "length", "abort", "error"]
"""Why a reply ended: it said so or wrote a stop text; it was as long as it may be; it was stopped; it failed."""
EarlyStopping = bool | Literal["never"]
MAX_TOP_LOGPROBS = 64
RANGES = {
    "temperature": NumberRange(0, 100, is_whole=False),
    "top_k": NumberRange(0, 2**31 - 1),
    "top_p": NumberRange(0, 1, is_whole=False, open_below=True),
    "min_p": NumberRange(0, 1, is_whole=False),
    "repetition_penalty": NumberRange(0, 100, is_whole=False, open_below=True),
    "presence_penalty": NumberRange(-100, 100, is_whole=False),
    "frequency_penalty": NumberRange(-100, 100, is_whole=False),
    "n": NumberRange(1, 256),
    "max_tokens": NumberRange(1, 2**31 - 1),
    "seed": NumberRange(0, 2**63 - 1),
    "logprobs": NumberRange(0, MAX_TOP_LOGPROBS),
    "beam_width": NumberRange(1, 64),
    "length_penalty": NumberRange(-10, 10, is_whole=False),
}
MAY_BE_NONE = frozenset(["max_tokens", "seed", "logprobs"])
TOKEN_IDS = NumberRange(0, 2**31 - 1)
# What looks for them takes memory for each of their characters, and is built on the thread that computes all replies.
MAX_STOP_TEXTS = 64
MAX_STOP_CHARS = 1000
MAX_STOP_TOKENS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How a reply is drawn.

    temperature: 0 takes the most likely token (as do values under 1e-3, which rounding would make erratic).
    top_k: draw from the k most likely tokens; 0 is all.
    top_p: draw from the smallest set of tokens whose probabilities reach p (nucleus sampling, Holtzman et al. 2019).
    min_p: drop tokens less likely than min_p times the most likely one.
    repetition_penalty: divides positive, multiplies negative logits of tokens in prompt or reply (Keskar et al. 2019).
    presence_penalty, frequency_penalty: subtracted once, and once per occurrence, for tokens of the reply.
    max_tokens: longest reply; None is what the window holds.
    n: replies to this prompt; reply i draws with seed + i.
    seed: None draws one.
    stop: strings that end a reply; they aren't part of it.
    stop_token_ids: ids that end a reply, beside the model's own end tokens.
    ignore_eos: go on after the model's own end tokens.
    logprobs: how many alternatives to report for each token; None reports nothing, 0 the drawn token alone.
    beam_width: over 1 searches for the likeliest replies instead of drawing them, keeping so many unfinished ones
        (see `beam_search`); the n best are given at its end.
    length_penalty: a reply found by beam search scores the sum of its log probabilities divided by its number of
        tokens to this power: over 0 favours long replies, under 0 short ones.
    early_stopping: when beam search ends. True: once beam_width replies have ended. False: once the best unfinished
        one, at the length it has, wouldn't be among them. "never": once it couldn't at any length.

    Raises InvalidParameter for a value out of range, and for values that exclude each other.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int | None = 512
    n: int = 1
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    beam_width: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False

    def __post_init__(self) -> None:
        check_numbers(self, RANGES, MAY_BE_NONE)
        if not isinstance(self.ignore_eos, bool):
            raise InvalidParameter(f"ignore_eos must be True or False, not {shown(self.ignore_eos)}")
        self._check_beams()
        stop = (self.stop,) if isinstance(self.stop, str) else _listed("stop", self.stop)
        for text in stop:
            if not isinstance(text, str) or not text:
                raise InvalidParameter(f"stop must hold strings that aren't empty, not {shown(text)}")
        if len(stop) > MAX_STOP_TEXTS or any(len(text) > MAX_STOP_CHARS for text in stop):
            raise InvalidParameter(
                f"stop must hold at most {MAX_STOP_TEXTS} strings of at most {MAX_STOP_CHARS:,} characters each"
            )
        stop_token_ids = _listed("stop_token_ids", self.stop_token_ids)
        if len(stop_token_ids) > MAX_STOP_TOKENS:
            raise InvalidParameter(f"stop_token_ids must hold at most {MAX_STOP_TOKENS:,} ids")
        for token_id in stop_token_ids:
            TOKEN_IDS.check("stop_token_ids", token_id)
        # Normalising a frozen value once, while it is built, keeps every reader free of the string-or-list question.
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", stop_token_ids)

    @property
    def is_beam_search(self) -> bool:
        """Whether replies are searched for instead of drawn."""
        return self.beam_width > 1

    @property
    def num_sequences(self) -> int:
        """Sequences that run at once for this request."""
        return self.beam_width if self.is_beam_search else self.n

    def _check_beams(self) -> None:
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise InvalidParameter(f'early_stopping must be True, False or "never", not {self.early_stopping!r}')
        if not self.is_beam_search:
            return
        if self.temperature > 0:
            raise InvalidParameter(
                f"beam_width {self.beam_width} looks for the likeliest replies and draws nothing: set temperature to 0 "
                f"instead of {self.temperature:g}, or beam_width to 1"
            )
        if self.n > self.beam_width:
            raise InvalidParameter(
                f"n is {self.n}, but a search with beam_width {self.beam_width} finds no more than {self.beam_width} "
                f"replies: raise beam_width, or ask for fewer"
            )


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities at one position, before temperature and penalties."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, log probability), most likely first


@dataclass(frozen=True, slots=True)
class BlockUse:
    """What a request's sequences held together when they held the most, and what they would have held each alone."""

    num_blocks: int
    num_blocks_alone: int
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStats:
    """What one sample cost; times in milliseconds.

    Of beam search the first token counts as come when the search has taken its first step, from when on there is a
    preview to show; the rate is that of the search. `block_use` is that of the whole request, as far as it has come.

    prefix: what its prompt found in the cache, and why no more; None for a request that was never admitted.
    """

    num_prompt_tokens: int  # with what the reply was given to begin with
    num_cached_tokens: int
    num_generated_tokens: int
    num_preemptions: int
    queue_ms: float  # from submit to the first step that computed it
    ttft_ms: float  # from submit to its first token
    total_ms: float
    decode_tokens_per_s: float  # after the first token
    num_drafted_tokens: int = 0  # guessed ahead and verified
    num_accepted_tokens: int = 0  # of those, the ones that were right and saved a step
    block_use: BlockUse | None = None  # where several sequences share a prompt
    prefix: PrefixProbe | None = None


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """New tokens of one sample; `stats` comes with the last one, `error` where that is a failure.

    What the reply was given to begin with comes with the first delta; `logprobs` are of drawn tokens alone.
    Beam search may change its mind until its end: then each of its replies comes as one delta, with its `score`.
    """

    request_id: str
    sample: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    stats: RequestStats | None = None
    error: str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class BeamPreview:
    """The best unfinished beam of a search: where it stands, not what it will say; `score` as of finished replies."""

    request_id: str
    num_beams: int
    token_ids: tuple[int, ...]
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class SampleOutput:
    """One finished reply; `token_ids` includes the end token, `text` doesn't.

    Of beam search, samples come best first; `score` is the sum of log probabilities under the length penalty.
    """

    index: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    stats: RequestStats
    logprobs: tuple[TokenLogprobs, ...] = ()
    score: float | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A finished request; `num_cached_tokens` counts prompt tokens whose KV was reused.

    block_use: None where one sequence did it all.
    """

    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    samples: tuple[SampleOutput, ...] = field(default=())
    block_use: BlockUse | None = None


def _listed(name: str, values: Sequence[Item]) -> tuple[Item, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidParameter(f"{name} must be a list, not {shown(values)}")
    return tuple(values)

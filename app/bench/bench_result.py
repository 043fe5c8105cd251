"""What a replay took, as one value: the medians of its rounds, its file, and the figures that sum it up."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from paged_chat.engine.errors import PagedChatError

from ..porting.new_file import new_file
from .replay import ReplayResult, StepResult


class BenchResultInvalid(PagedChatError):
    """A result file that can't be read, or two that can't be compared; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """One step; with several rounds each time and rate is their median."""

    chat: str
    n: int
    prompt_tokens: int
    cached_tokens: int
    ttft_ms: float
    decode_tokens_per_s: float  # over all replies; 0 where each has one token
    total_ms: float
    output_ids: tuple[tuple[int, ...], ...]  # of each reply
    num_blocks: int | None = None  # of several replies together; None where a result doesn't say
    num_blocks_alone: int | None = None  # what as many separate requests would have used
    drafted_tokens: int = 0  # guessed ahead and verified, of all replies
    accepted_tokens: int = 0  # of those, the ones that were right and saved a step

    @classmethod
    def of(cls, result: StepResult) -> "StepFigures":
        answer = result.answer
        return cls(
            chat=result.step.chat,
            n=result.step.n,
            prompt_tokens=answer.num_prompt_tokens,
            cached_tokens=answer.num_cached_tokens,
            ttft_ms=answer.ttft_ms or 0.0,
            decode_tokens_per_s=answer.decode_tokens_per_s or 0.0,
            total_ms=answer.total_ms,
            output_ids=tuple(tuple(reply.token_ids) for reply in answer.replies),
            num_blocks=None if answer.block_use is None else answer.block_use.num_blocks,
            num_blocks_alone=None if answer.block_use is None else answer.block_use.num_blocks_alone,
            drafted_tokens=answer.num_drafted_tokens,
            accepted_tokens=answer.num_accepted_tokens,
        )

    @classmethod
    def median(cls, rounds: Sequence["StepFigures"]) -> "StepFigures":
        """Of one step in several rounds; tokens, guessed ones too, and blocks are the first round's."""
        first = rounds[0]
        return cls(
            chat=first.chat,
            n=first.n,
            prompt_tokens=first.prompt_tokens,
            cached_tokens=first.cached_tokens,
            ttft_ms=median(step.ttft_ms for step in rounds),
            decode_tokens_per_s=median(step.decode_tokens_per_s for step in rounds),
            total_ms=median(step.total_ms for step in rounds),
            output_ids=first.output_ids,
            num_blocks=first.num_blocks,
            num_blocks_alone=first.num_blocks_alone,
            drafted_tokens=first.drafted_tokens,
            accepted_tokens=first.accepted_tokens,
        )

    def as_dict(self) -> dict[str, object]:
        blocks = {"blocks": self.num_blocks, "blocks_alone": self.num_blocks_alone}
        return {
            "chat": self.chat,
            "n": self.n,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "ttft_ms": self.ttft_ms,
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "total_ms": self.total_ms,
            "output_ids": self.output_ids if self.n > 1 else self.output_ids[0],
            "drafted_tokens": self.drafted_tokens,
            "accepted_tokens": self.accepted_tokens,
            **(blocks if self.num_blocks is not None else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One replay in a pool of its own."""

    load_s: float
    others_cores: float | None
    steps: tuple[StepFigures, ...]

    @classmethod
    def of(cls, result: ReplayResult, load_s: float) -> "Round":
        return cls(
            load_s=load_s,
            others_cores=result.others_cores,
            steps=tuple(StepFigures.of(step) for step in result.steps),
        )

    def as_dict(self) -> dict[str, object]:
        return {
            "load_s": self.load_s,
            "others_cores": self.others_cores,
            "steps": [step.as_dict() for step in self.steps],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """All rounds of one workload on one model. Times in ms, rates in tokens a second, memory in MiB."""

    peer: str
    workload: str
    model: str
    load_s: float
    peak_rss_mib: float | None
    others_cores: float | None  # of the round with the most
    steps: tuple[StepFigures, ...]
    rounds: tuple[Round, ...] = ()

    @classmethod
    def of(cls, rounds: Sequence[Round], *, workload: str, model: str, peak_rss_mib: float | None) -> "BenchResult":
        return cls(
            peer="project",
            workload=workload,
            model=model,
            load_s=median(each.load_s for each in rounds),
            peak_rss_mib=peak_rss_mib,
            others_cores=max((each.others_cores for each in rounds if each.others_cores is not None), default=None),
            steps=tuple(StepFigures.median(same) for same in zip(*(each.steps for each in rounds), strict=True)),
            rounds=tuple(rounds),
        )

    def write(self, path: Path) -> None:
        """Whole or not at all: a comparison keeps the files that are there and goes on with the rest.

        Raises ExportRefused.
        """
        fields: dict[str, object] = {
            "peer": self.peer,
            "workload": self.workload,
            "model": self.model,
            "load_s": self.load_s,
            "peak_rss_mib": self.peak_rss_mib,
            "others_cores": self.others_cores,
            "steps": [step.as_dict() for step in self.steps],
        }
        if len(self.rounds) > 1:
            fields["rounds"] = [each.as_dict() for each in self.rounds]
        with new_file(path, overwrite=True) as out:
            out.write(json.dumps(fields) + "\n")

    @classmethod
    def read(cls, path: Path) -> "BenchResult":
        """A file that `bench` wrote, or a program that writes the same fields; without its single rounds.

        Raises BenchResultInvalid.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BenchResultInvalid(f"can't read the result {path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise BenchResultInvalid(f"{path} isn't a result of bench: it isn't JSON ({error})") from error
        try:
            return cls(
                peer=str(fields.get("peer", path.stem)),
                workload=str(fields["workload"]),
                model=str(fields.get("model", "")),
                load_s=float(fields["load_s"]),
                peak_rss_mib=_number(fields.get("peak_rss_mib")),
                others_cores=_number(fields.get("others_cores")),
                steps=tuple(_read_step(step) for step in fields["steps"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            fault = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise BenchResultInvalid(f"{path} isn't a result of bench: {fault}") from error


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _read_step(fields: Mapping[str, Any]) -> StepFigures:
    n = int(fields.get("n", 1))
    output_ids = fields["output_ids"] if n > 1 else [fields["output_ids"]]
    return StepFigures(
        chat=str(fields.get("chat", "")),
        n=n,
        prompt_tokens=int(fields["prompt_tokens"]),
        cached_tokens=int(fields.get("cached_tokens") or 0),
        ttft_ms=float(fields["ttft_ms"]),
        decode_tokens_per_s=float(fields["decode_tokens_per_s"]),
        total_ms=float(fields["total_ms"]),
        output_ids=tuple(tuple(int(token_id) for token_id in reply) for reply in output_ids),
        num_blocks=fields.get("blocks"),
        num_blocks_alone=fields.get("blocks_alone"),
        drafted_tokens=int(fields.get("drafted_tokens") or 0),
        accepted_tokens=int(fields.get("accepted_tokens") or 0),
    )


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a whole result; `value` is None where the result has nothing to measure it by."""

    name: str
    unit: str
    is_better_when_more: bool
    value: float | None

    def times_better_than(self, other: "Metric") -> float | None:
        """Over 1 where this one is the better."""
        if not self.value or not other.value:
            return None
        return self.value / other.value if self.is_better_when_more else other.value / self.value


def metrics(result: BenchResult) -> list[Metric]:
    """What sums a result up; the same metrics in the same order for every result."""
    steps = result.steps
    single = [step.decode_tokens_per_s for step in steps if step.n == 1 and step.decode_tokens_per_s]
    several = [step.decode_tokens_per_s for step in steps if step.n > 1 and step.decode_tokens_per_s]
    prompt_tokens = sum(step.prompt_tokens for step in steps)
    return [
        Metric("first token, cold", "ms", False, steps[0].ttft_ms if steps else None),
        Metric("first token, later steps", "ms", False, _median([step.ttft_ms for step in steps[1:]])),
        Metric("decode", "tokens/s", True, _median(single)),
        Metric("decode, several replies", "tokens/s", True, _median(several)),
        Metric("all steps", "ms", False, sum(step.total_ms for step in steps) or None),
        Metric("prompt tokens reused", "%", True, 100 * sum(s.cached_tokens for s in steps) / max(1, prompt_tokens)),
        Metric("reply tokens guessed ahead", "%", True, _share_guessed(steps)),
        Metric("blocks saved by sharing", "%", True, _share_of_blocks_saved(steps)),
        Metric("peak memory", "MiB", False, result.peak_rss_mib),
        Metric("load", "s", False, result.load_s),
    ]


def _share_guessed(steps: Sequence[StepFigures]) -> float | None:
    """Of all tokens of replies those that saved a step."""
    num_accepted = sum(step.accepted_tokens for step in steps)
    return 100 * num_accepted / sum(step.n * len(step.output_ids[0]) for step in steps) if num_accepted else None


def _share_of_blocks_saved(steps: Sequence[StepFigures]) -> float | None:
    """Of the steps with several replies, against as many separate requests."""
    together = sum(step.num_blocks or 0 for step in steps)
    alone = sum(step.num_blocks_alone or 0 for step in steps)
    return 100 * (1 - together / alone) if alone else None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def num_equal_steps(first: BenchResult, second: BenchResult) -> int:
    """How many steps have the same replies, token for token.

    Raises BenchResultInvalid where the two replayed different steps: their figures can't be compared either.
    """
    if first.workload != second.workload:
        raise BenchResultInvalid(
            f"one result is of the workload {first.workload}, the other of {second.workload}: compare runs of the same"
        )
    shapes = [[(step.n, len(step.output_ids[0])) for step in result.steps] for result in (first, second)]
    if shapes[0] != shapes[1]:
        raise BenchResultInvalid(f"the two results of {first.workload} have other steps: replay the same file twice")
    return sum(one.output_ids == other.output_ids for one, other in zip(first.steps, second.steps, strict=True))

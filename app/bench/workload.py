"""A workload file: the requests that `bench` replays token for token, read and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paged_chat.engine.errors import PagedChatError


class WorkloadInvalid(PagedChatError):
    """A workload file that can't be read; the message names the file, the place in it and the fault."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a step's chat starts: after the first `upto_step` steps of another chat."""

    chat: str
    upto_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request: the chat's history so far, then `append`; `append_end` follows the reply in the history."""

    chat: str
    append: tuple[int, ...]
    append_end: tuple[int, ...]
    reply_tokens: int
    n: int = 1
    temperature: float = 0.0
    seed: int | None = None  # of the first reply; the next ones draw with seed + 1, + 2, ...
    prompt_from: Branch | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    steps: tuple[Step, ...]

    def prompt_lengths(self) -> list[int]:
        """Tokens of each step's prompt; replies have a fixed length, so these are known beforehand."""
        histories: dict[str, list[int]] = {}
        lengths = []
        for step in self.steps:
            if step.prompt_from is not None:
                histories[step.chat] = histories[step.prompt_from.chat][: step.prompt_from.upto_step + 1]
            history = histories.setdefault(step.chat, [0])
            lengths.append(history[-1] + len(step.append))
            history.append(lengths[-1] + step.reply_tokens + len(step.append_end))
        return lengths

    @property
    def largest_token_id(self) -> int:
        return max(max((*step.append, *step.append_end)) for step in self.steps)


def load_workload(path: Path) -> Workload:
    """Reads a file such as `bench` takes.

    Raises WorkloadInvalid for a file that isn't there, isn't JSON, or holds something else than a workload.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkloadInvalid(f"can't read the workload {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise WorkloadInvalid(f"{path} isn't a workload: byte {error.start} isn't UTF-8") from error
    except json.JSONDecodeError as error:
        raise WorkloadInvalid(
            f"{path} isn't a workload: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise WorkloadInvalid(f"{path} isn't a workload: it is nested too deeply") from error
    reader = _Reader(path)
    top = reader.mapping("the file", fields)
    name = reader.text("name", top.get("name", path.stem))
    steps = reader.array("steps", top.get("steps"))
    if not steps:
        raise reader.fault("steps", "holds no step")
    num_steps: dict[str, int] = {}  # of each chat so far
    return Workload(name, tuple(reader.step(f"steps[{i}]", value, num_steps) for i, value in enumerate(steps)))


class _Reader:
    """Takes typed values out of parsed JSON; each refusal names the file and the place."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fault(self, place: str, what: str) -> WorkloadInvalid:
        return WorkloadInvalid(f"{self._path} isn't a workload: {place} {what}")

    def step(self, place: str, value: object, num_steps: dict[str, int]) -> Step:
        fields = self.mapping(place, value)
        chat = self.text(f"{place}.chat", fields.get("chat"))
        prompt_from = None
        if fields.get("prompt_from") is not None:
            prompt_from = self._branch(f"{place}.prompt_from", fields["prompt_from"], num_steps)
            num_steps[chat] = prompt_from.upto_step
        num_steps[chat] = num_steps.get(chat, 0) + 1
        n = self.whole(f"{place}.n", fields.get("n", 1), 1, 256)
        temperature = fields.get("temperature", 0.0)
        if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature <= 100:
            raise self.fault(f"{place}.temperature", f"must be a number from 0 to 100, not {temperature!r}")
        append = self.token_ids(f"{place}.append", fields.get("append"))
        if not append:
            raise self.fault(f"{place}.append", "holds no token")
        return Step(
            chat=chat,
            append=append,
            append_end=self.token_ids(f"{place}.append_end", fields.get("append_end", [])),
            reply_tokens=self.whole(f"{place}.reply_tokens", fields.get("reply_tokens"), 1, 2**31 - 1),
            n=n,
            temperature=float(temperature),
            seed=self._first_seed(f"{place}.seeds", fields.get("seeds"), n),
            prompt_from=prompt_from,
        )

    def _branch(self, place: str, value: object, num_steps: Mapping[str, int]) -> Branch:
        fields = self.mapping(place, value)
        chat = self.text(f"{place}.chat", fields.get("chat"))
        if chat not in num_steps:
            raise self.fault(f"{place}.chat", f"names {chat!r}, which no earlier step has")
        return Branch(chat, self.whole(f"{place}.upto_step", fields.get("upto_step"), 0, num_steps[chat]))

    def _first_seed(self, place: str, value: object, n: int) -> int | None:
        if value is None:
            return None
        seeds = [self.whole(f"{place}[{i}]", seed, 0, 2**63 - 1) for i, seed in enumerate(self.array(place, value))]
        # The engine's reply i draws with seed + i: other seeds could only be had as requests of their own.
        if len(seeds) != n or seeds != list(range(seeds[0], seeds[0] + n)):
            raise self.fault(place, f"must be {n} consecutive numbers (one a reply), not {seeds}")
        return seeds[0]

    def mapping(self, place: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.fault(place, f"must be an object, not {_kind(value)}")
        return value

    def array(self, place: str, value: object) -> Sequence[Any]:
        if not isinstance(value, list):
            raise self.fault(place, f"must be a list, not {_kind(value)}")
        return value

    def text(self, place: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self.fault(place, f"must be a name, not {_kind(value)}")
        return value

    def whole(self, place: str, value: object, least: int, most: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.fault(place, f"must be a whole number from {least} to {most}, not {value!r:.80}")
        return value

    def token_ids(self, place: str, value: object) -> tuple[int, ...]:
        return tuple(
            self.whole(f"{place}[{i}]", token, 0, 2**31 - 1) for i, token in enumerate(self.array(place, value))
        )


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return kinds.get(type(value), "a number")

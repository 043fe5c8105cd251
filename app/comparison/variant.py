"""The settings that are compared: as a person writes them, and as they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams

from ..errors import ComparisonRefused
from ..written_setting import NOTHING, SETTING_NAMES, Setting, as_written, in_spoken_names, read_setting, spoken

MIN_VARIANTS = 2
MAX_VARIANTS = 6
MAX_NAME_LENGTH = 60

OWN = "chat"  # the word for the chat's own settings
SYSTEM = "system"
_SHORT = {"temp": "temperature", "beams": "beam_width", "max": "max_tokens", "penalty": "repetition_penalty"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Settings under which a question is answered once; `system_prompt` None is none, whatever the chat's own is."""

    name: str
    sampling: SamplingParams
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenVariant:
    """A variant as a person wrote it, over the settings of a chat.

    name: of their own; "" is made of what differs.
    preset: the name of kept settings, which take the place of the chat's.
    changes: values as they were written, by the names of settings; of several stop texts each on its own line.
    system: the name of a kept system prompt, "-" for none; None is the chat's own.
    system_prompt: a text in its place.
    """

    name: str = ""
    preset: str | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    system: str | None = None
    system_prompt: str | None = None

    def __str__(self) -> str:
        """Its name: "warm, top p 0.9, system terse"."""
        words = [self.preset] if self.preset else []
        words += [f"{spoken(name)} {' '.join(value.split())}" for name, value in self.changes.items()]
        if self.system is not None:
            words.append("no system prompt" if self.system == NOTHING else f"system {self.system}")
        elif self.system_prompt is not None:
            words.append("own system prompt")
        return (self.name.strip() or ", ".join(words) or "this chat")[:MAX_NAME_LENGTH]


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """What a variant may name: settings and system prompts that a person keeps under names."""

    presets: Mapping[str, SamplingParams]
    system_prompts: Mapping[str, str]


def variant_in(word: str, kept: KeptSettings) -> WrittenVariant:
    """A word of a command line: a preset, "chat", settings as name=value, system=NAME, several with commas between.

    A preset's name may have commas itself. Nothing is judged yet but the form.
    """
    if word in kept.presets:
        return WrittenVariant(preset=word)
    preset, system = None, None
    changes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in word.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            preset = None if part == OWN and OWN not in kept.presets else part
        elif name == SYSTEM:
            system = value
        else:
            changes[_field(name)] = value
    return WrittenVariant(preset=preset, changes=changes, system=system)


def read_variants(
    written: Sequence[WrittenVariant], sampling: SamplingParams, system_prompt: str | None, kept: KeptSettings
) -> list[Variant]:
    """The variants over a chat's settings and system prompt.

    Raises ComparisonRefused with each one that can't be used, and why.
    """
    variants, faults = [], []
    for one in written:
        try:
            variants.append(_read(one, sampling, system_prompt, kept))
        except (ComparisonRefused, InvalidParameter) as error:
            faults.append(f"{one}: {error}")
    if faults:
        raise ComparisonRefused("; ".join(faults))
    check_variants(variants)
    return variants


def check_variants(variants: Sequence[Variant]) -> None:
    """Raises ComparisonRefused for too few, too many, or two of one name."""
    if not MIN_VARIANTS <= len(variants) <= MAX_VARIANTS:
        raise ComparisonRefused(f"a comparison has {MIN_VARIANTS} to {MAX_VARIANTS} variants, not {len(variants)}")
    names = [variant.name for variant in variants]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ComparisonRefused(f"two variants are called {twice!r}: change one of them, or give it another name")


def _read(written: WrittenVariant, sampling: SamplingParams, system_prompt: str | None, kept: KeptSettings) -> Variant:
    if written.preset is not None:
        if written.preset not in kept.presets:
            raise ComparisonRefused(f"no settings are kept as {written.preset!r}, and a setting is name=value")
        sampling = kept.presets[written.preset]
    for name in written.changes:
        if name not in SETTING_NAMES:
            raise ComparisonRefused(f"there is no setting called {spoken(name)!r}: there are {_known_settings()}")
    changes: dict[str, Any] = {name: read_setting(name, text) for name, text in written.changes.items()}
    if written.system == NOTHING:
        system_prompt = None
    elif written.system is not None:
        if written.system not in kept.system_prompts:
            raise ComparisonRefused(f"no system prompt is kept as {written.system!r}")
        system_prompt = kept.system_prompts[written.system]
    elif written.system_prompt is not None:
        system_prompt = written.system_prompt or None
    with in_spoken_names():
        return Variant(name=str(written), sampling=replace(sampling, n=1, **changes), system_prompt=system_prompt)


def _known_settings() -> str:
    return ", ".join(map(spoken, SETTING_NAMES))


def _field(name: str) -> str:
    plain = name.lower().replace("-", "_")
    return _SHORT.get(plain, plain)


# What differs


def settings_of(sampling: SamplingParams, system_prompt: str | None) -> dict[str, str]:
    """All settings of a reply in words, by their spoken names."""
    words = {spoken(one.name): _words(getattr(sampling, one.name)) for one in fields(sampling) if one.name != "n"}
    return words | {"system prompt": "none" if system_prompt is None else system_prompt}


def _words(value: Setting) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(repr, value)) or "none"
    return "none" if value is None else as_written(value)

"""How replies are drawn where nobody has said how: the model's recommendation, else the general default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from paged_chat.engine.model.recommended_sampling import recommended_sampling
from paged_chat.engine.request import SamplingParams

from ..written_setting import setting_words

GENERAL_SAMPLING = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=1024)
NOT_SHOWN = frozenset(["stop_token_ids", "ignore_eos"])


@dataclass(frozen=True, slots=True)
class DefaultSampling:
    """What a new chat begins with, and which of it is recommended for the model rather than the general default."""

    sampling: SamplingParams
    model: str = ""
    recommended: frozenset[str] = frozenset()

    def origin_words(self, sampling: SamplingParams, presets: Mapping[str, SamplingParams]) -> str:
        """Where a chat's settings come from: chosen for it, kept under a name, the model's, the general default."""
        names = [one.name for one in fields(sampling) if one.name not in NOT_SHOWN]
        chosen = [name for name in names if getattr(sampling, name) != getattr(self.sampling, name)]
        sentences = []
        if kept := [name for name, preset in presets.items() if preset == sampling]:
            sentences.append(f"As kept under {', '.join(kept)}.")
        elif chosen:
            sentences.append(f"Chosen for this chat: {_listed(chosen, sampling)}.")
        if as_recommended := [name for name in names if name in self.recommended and name not in chosen]:
            sentences.append(f"Recommended for {self.model}: {_listed(as_recommended, sampling)}.")
        sentences.append("The rest are general defaults." if sentences else "These are the general defaults.")
        return " ".join(sentences)


def default_sampling_of(model: str) -> DefaultSampling:
    """Of new chats that the model of this name answers."""
    recommended: Mapping[str, Any] = recommended_sampling(model)
    return DefaultSampling(replace(GENERAL_SAMPLING, **recommended), model, frozenset(recommended))


def _listed(names: list[str], sampling: SamplingParams) -> str:
    return ", ".join(setting_words(name, getattr(sampling, name)) for name in names)

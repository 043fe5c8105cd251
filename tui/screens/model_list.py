"""The models that a person can choose without typing a path."""

from __future__ import annotations

from paged_chat.app.counted import megabytes
from paged_chat.app.known_models import known_models


def model_choices(loaded: str) -> list[tuple[str, str]]:
    """Name, and a line about it; the model that is loaded is among them in any case."""
    choices = {}
    for model in known_models():
        state = "here" if model.path is not None else f"fetches {megabytes(model.num_bytes)}"
        choices[model.name] = f"{model.name}  {model.description}, {state}"
    choices.setdefault(loaded, f"{loaded}  (loaded now)")
    return list(choices.items())

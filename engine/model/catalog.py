"""From a name to a model on this disk: catalogue entries, folders, `.gguf` files and hub ids."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import ModelNotFound
from ..progress import OnProgress, ignore_progress


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that is on this disk: a folder in Hugging Face layout, or one `.gguf` file."""

    name: str  # as it was asked for
    kind: Literal["folder", "gguf"]
    path: Path


def resolve(model: str, on_progress: OnProgress = ignore_progress) -> ModelSource:
    path = Path(model).expanduser()
    if path.is_dir():
        return ModelSource(model, "folder", path)
    if path.is_file() and path.suffix == ".gguf":
        return ModelSource(model, "gguf", path)
    raise ModelNotFound(f"there is no model {model!r}")

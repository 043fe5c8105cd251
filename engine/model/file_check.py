"""Whether a model's files are sound: all that loading refuses is found by reading their headers."""

import hashlib
from pathlib import Path

from ..errors import ModelFileInvalid
from .catalog import catalog_entry, model_on_disk
from .loader import OpenedModel


def check_files(model: str) -> int:
    """The bytes of the files of a model that is on this disk; of a catalogue's model also the checksum is compared.

    Raises ModelNotFound, ModelUnsupported or ModelFileInvalid.
    """
    source = model_on_disk(model)
    opened = OpenedModel.open(source)
    opened.tensors()
    entry = catalog_entry(model)
    if entry is not None and _checksum(source.path) != entry.file.sha256:
        raise ModelFileInvalid(f"{source.path} has been changed: its checksum is another one")
    return sum(file.stat().st_size for file in opened.files)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

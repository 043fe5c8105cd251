"""Whether a model's files are sound: all that loading refuses is found by reading their headers; and the remedy."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ModelFileInvalid
from .catalog import catalog_entry, is_hub_id, model_on_disk
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


def remedy_of_broken_file(model: str) -> str:
    """What to do about files of a model that aren't sound."""
    entry = catalog_entry(model)
    if entry is not None or is_hub_id(model):
        return f"`paged-chat models rm {model}`, then `paged-chat models pull {model}` fetch it anew"
    return "fetch the file again, or choose another model with --model"


@contextmanager
def telling_the_remedy(model: str) -> Iterator[None]:
    """Adds the remedy to what is said of files that aren't sound."""
    try:
        yield
    except ModelFileInvalid as error:
        raise ModelFileInvalid(f"{error}; {remedy_of_broken_file(model)}") from error


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Tensors of a folder in Hugging Face layout: one safetensors file, or shards and their index. Never pickle."""

from collections.abc import Collection
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import safetensors
from torch import Tensor

from ..errors import ModelFileInvalid, ModelUnsupported
from .fields import read_json

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
DTYPES = ("F64", "F32", "F16", "BF16")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def weight_files(folder: Path) -> list[Path]:
    """The folder's weight files, every one of them there.

    Raises ModelFileInvalid where there is none, or the index names a file that is missing or lies outside the folder;
    ModelUnsupported where the weights are pickled, since unpickling runs whatever code a file holds.
    """
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    if (folder / INDEX_FILE).is_file():
        return sorted({folder / shard for shard in _weight_map(folder).values()})
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise ModelFileInvalid(f"{folder} holds {len(found)} safetensors files but no {INDEX_FILE} that joins them")
    for pattern in _PICKLES:
        for pickled in sorted(folder.glob(pattern)):
            raise ModelUnsupported(
                f"{pickled} is pickled, and loading a pickle runs any code inside it; convert it on a machine you can "
                "spare: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder) writes safetensors"
            )
    raise ModelFileInvalid(f"{folder} holds no weights: there is no {SINGLE_FILE} and no {INDEX_FILE}")


def _weight_map(folder: Path) -> dict[str, str]:  # tensor name -> file inside the folder
    index = read_json(folder / INDEX_FILE)
    entries = index.nested("weight_map")
    if entries is None or not entries.values:
        raise index.invalid("weight_map", "must say which file holds each tensor")
    weight_map: dict[str, str] = {}
    for name in entries.values:
        shard = entries.text(name)
        weight_map[name] = shard
    for shard in sorted(set(weight_map.values())):
        # Judged as written, not resolved: the hub's cache is made of links that rightly lead out of the folder.
        outside = (
            PureWindowsPath(shard).drive or PureWindowsPath(shard).root or ".." in PureWindowsPath(shard).parts
        ) or PurePosixPath(shard).is_absolute()
        if outside or not shard.endswith(".safetensors"):
            raise ModelFileInvalid(
                f"{folder / INDEX_FILE} names {shard[:120]!r}; it must be a .safetensors file in the folder"
            )
        if not (folder / shard).is_file():
            raise ModelFileInvalid(f"{folder / shard} is missing: {INDEX_FILE} names it, but it isn't in the folder")
    return weight_map


class SafetensorsSource:
    """The open shards of one folder. Tensors are views of the mapped files: nothing is copied until it is converted.

    Raises ModelFileInvalid, with the file's name, for a truncated or damaged one.
    """

    def __init__(self, folder: Path) -> None:
        self.source = str(folder)
        self._file_of: dict[str, Path] = {}
        self._open: dict[Path, Any] = {}
        for path in weight_files(folder):
            try:
                self._open[path] = safetensors.safe_open(path, framework="pt")
                names = list(self._open[path].keys())
            except (safetensors.SafetensorError, OSError, ValueError, OverflowError) as error:
                raise ModelFileInvalid(f"{path} isn't a whole safetensors file: {error}") from error
            for name in names:
                if name in self._file_of:
                    raise ModelFileInvalid(f"{path}: the tensor {name[:120]} is in {self._file_of[name].name} too")
                self._file_of[name] = path

    @property
    def names(self) -> Collection[str]:
        return self._file_of.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        path = self._file_of[name]
        header = self._open[path].get_slice(name)
        if header.get_dtype() not in DTYPES:
            raise ModelUnsupported(
                f"{path}: the tensor {name[:120]} is of type {header.get_dtype()}; {', '.join(DTYPES)} work"
            )
        return tuple(header.get_shape())

    def read(self, name: str) -> Tensor:
        path = self._file_of[name]
        try:
            tensor: Tensor = self._open[path].get_tensor(name)
        except (safetensors.SafetensorError, OSError, RuntimeError) as error:
            raise ModelFileInvalid(f"{path}: the tensor {name[:120]} can't be read: {error}") from error
        return tensor

"""Weights as the decoder wants them, kept on the disk: dense in the wanted dtype, or packed; fused in any case.

Made on a model's first load; every later start maps the file and is ready. It is a safetensors file whose metadata say
what it was made from. Whatever is wrong with it, or with the disk, costs time and nothing else.
"""

import json
import math
import mmap
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
import xxhash
from torch import Tensor

from ..home import prepared_folder
from ..progress import LoadProgress, OnProgress
from ..whole_file import whole_binary_file
from .stale import remove_stale

FORMAT_VERSION = 2
SAFETENSORS_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint8: "U8"}
SPARE_DISK_BYTES = 256 * 2**20  # left free: filling a disk for speed would be rude
_ALIGNMENT = 64  # of the first tensor: a cache line, and one AVX-512 register
_WORK_PREFIX = ".prepare-"
_NO_CHECKSUM = "0" * 16


@dataclass(frozen=True, slots=True)
class PreparedTensor:
    """What a prepared file holds under one name."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class PreparedWeights:
    """Tensors mapped from the file, by name, and the digest of the source's weights."""

    tensors: dict[str, Tensor]
    source_digest: str


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """One prepared form of a model: where it is kept, what it is made from, and what it holds."""

    source: Path  # the model's folder or file
    source_files: tuple[Path, ...]  # that hold its weights
    form: str  # such as "dense-bfloat16"
    tensors: tuple[PreparedTensor, ...]

    @property
    def path(self) -> Path:
        return prepared_folder(self.source) / f"{self.form}.safetensors"

    @property
    def num_bytes(self) -> int:
        return sum(tensor.num_bytes for tensor in self.tensors)

    def open(self) -> PreparedWeights | None:
        """None where there is no such file, or it is damaged, or made from another state of the source."""
        try:
            with safetensors.safe_open(self.path, framework="pt") as file:
                metadata = file.metadata() or {}
                if any(metadata.get(key) != value for key, value in self._origin().items()):
                    return None
                if metadata.get("checksum") != _checksum(self.path):
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, OSError, ValueError, RuntimeError):
            return None
        expected = {tensor.name: (tensor.shape, tensor.dtype) for tensor in self.tensors}
        if {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()} != expected:
            return None
        return PreparedWeights(tensors, metadata.get("source_digest", ""))

    def write(self, source_digest: str, values: Iterable[Tensor], on_progress: OnProgress) -> bool:
        """Writes the tensors in order, as they come; False where the disk is full or the folder not writable.

        The file appears under its name only once it is whole, also with two processes at it.
        """
        try:
            path = self.path
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_stale(path.parent, f"{_WORK_PREFIX}*")
            if shutil.disk_usage(path.parent).free < self.num_bytes + SPARE_DISK_BYTES:
                return False
            with whole_binary_file(path, _WORK_PREFIX) as file:
                header = _header(self.tensors, {**self._origin(), "source_digest": source_digest})
                file.write(header)
                checksum, done = xxhash.xxh3_64(), 0
                for tensor, value in zip(self.tensors, values, strict=True):
                    assert (tuple(value.shape), value.dtype) == (tensor.shape, tensor.dtype), tensor.name
                    raw = value.reshape(-1).view(torch.uint8).numpy().data
                    checksum.update(raw)
                    file.write(raw)
                    done += raw.nbytes
                    on_progress(LoadProgress("convert", done, self.num_bytes))
                file.seek(header.index(_NO_CHECKSUM.encode()))
                file.write(checksum.hexdigest().encode())
            return True
        except OSError:
            return False

    def _origin(self) -> dict[str, str]:
        """What a prepared file must have been made from, and how, to be used."""
        states = [path.stat() for path in self.source_files]
        return {
            "format": f"paged-chat {FORMAT_VERSION}",
            "source_bytes": " ".join(str(state.st_size) for state in states),
            "source_modified_ns": " ".join(str(state.st_mtime_ns) for state in states),
            # A copy may bring an old time of modification along; this one is always the system's own.
            "source_changed_ns": " ".join(str(state.st_ctime_ns) for state in states),
        }


def _header(tensors: tuple[PreparedTensor, ...], metadata: dict[str, str]) -> bytes:
    """Length and JSON, filled up with spaces so that the data behind it are aligned (the format allows for that)."""
    entries: dict[str, object] = {"__metadata__": {"checksum": _NO_CHECKSUM, **metadata}}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.num_bytes
        entries[tensor.name] = {
            "dtype": SAFETENSORS_DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _checksum(path: Path) -> str:
    """Of everything behind the header. Reading it all brings the file into memory, where it is needed next anyway."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        start = 8 + int.from_bytes(mapped[:8], "little")
        with memoryview(mapped) as view, view[start:] as values:
            return xxhash.xxh3_64_hexdigest(values)

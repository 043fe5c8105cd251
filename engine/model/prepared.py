"""Weights as the decoder wants them, kept on the disk: dequantised, in the wanted dtype, fused.

Made on a model's first load; every later start maps the file and is ready. It is a safetensors file whose metadata say
what it was made from. Whatever is wrong with it, or with the disk, costs time and nothing else.
"""

import json
import mmap
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
import xxhash
from torch import Tensor

from ..home import prepared_folder
from ..progress import LoadProgress, OnProgress
from .stale import remove_stale
from .weights import FusedTensor, TensorSource, fuse

FORMAT_VERSION = 1
SAFETENSORS_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
SPARE_DISK_BYTES = 256 * 2**20  # left free: filling a disk for speed would be rude
_ALIGNMENT = 64  # of the first tensor: a cache line, and one AVX-512 register
_WORK_PREFIX = ".prepare-"
_NO_CHECKSUM = "0" * 16


@dataclass(frozen=True, slots=True)
class PreparedWeights:
    """Tensors mapped from the file, by `FusedTensor.name`, and the digest of the source's weights."""

    tensors: dict[str, Tensor]
    source_digest: str


def prepared_path(source: Path, dtype: torch.dtype) -> Path:
    return prepared_folder(source) / f"dense-{str(dtype).removeprefix('torch.')}.safetensors"


def open_prepared(source: Path, fused: list[FusedTensor], dtype: torch.dtype) -> PreparedWeights | None:
    """None where there is no prepared file, or it is damaged, or made from another state of the source."""
    path = prepared_path(source, dtype)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if any(metadata.get(key) != value for key, value in _origin(source).items()):
                return None
            if metadata.get("checksum") != _checksum(path):
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError, RuntimeError):
        return None
    expected = {tensor.name: tensor.shape for tensor in fused}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected or any(tensor.dtype != dtype for tensor in tensors.values()):
        return None
    return PreparedWeights(tensors, metadata.get("source_digest", ""))


def write_prepared(
    source: Path,
    source_digest: str,
    tensors: TensorSource,
    fused: list[FusedTensor],
    dtype: torch.dtype,
    on_progress: OnProgress,
) -> bool:
    """Converts one tensor after the other into the file; False where the disk is full or the folder not writable.

    The file appears under its name only once it is whole, also with two processes at it.
    """
    num_bytes = sum(tensor.num_elements for tensor in fused) * dtype.itemsize
    work: Path | None = None
    try:
        path = prepared_path(source, dtype)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_stale(path.parent, f"{_WORK_PREFIX}*")
        if shutil.disk_usage(path.parent).free < num_bytes + SPARE_DISK_BYTES:
            return False
        descriptor, name = tempfile.mkstemp(prefix=_WORK_PREFIX, dir=path.parent)
        work = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            header = _header(fused, dtype, {**_origin(source), "source_digest": source_digest})
            file.write(header)
            checksum, done = xxhash.xxh3_64(), 0
            for _, values in fuse(tensors, fused, dtype):
                raw = values.reshape(-1).view(torch.uint8).numpy().data
                checksum.update(raw)
                file.write(raw)
                done += raw.nbytes
                on_progress(LoadProgress("convert", done, num_bytes))
            file.seek(header.index(_NO_CHECKSUM.encode()))
            file.write(checksum.hexdigest().encode())
        os.replace(work, path)
        work = None
        return True
    except OSError:
        return False
    finally:
        if work is not None:
            work.unlink(missing_ok=True)


def _origin(source: Path) -> dict[str, str]:
    """What a prepared file must have been made from, and how, to be used."""
    state = source.stat()
    return {
        "format": f"paged-chat {FORMAT_VERSION}",
        "source_bytes": str(state.st_size),
        "source_modified_ns": str(state.st_mtime_ns),
        # A copy may bring an old time of modification along; this one is always the system's own.
        "source_changed_ns": str(state.st_ctime_ns),
    }


def _header(fused: list[FusedTensor], dtype: torch.dtype, metadata: dict[str, str]) -> bytes:
    """Length and JSON, filled up with spaces so that the data behind it are aligned (the format allows for that)."""
    entries: dict[str, object] = {"__metadata__": {"checksum": _NO_CHECKSUM, **metadata}}
    end = 0
    for tensor in fused:
        start, end = end, end + tensor.num_elements * dtype.itemsize
        entries[tensor.name] = {
            "dtype": SAFETENSORS_DTYPES[dtype],
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

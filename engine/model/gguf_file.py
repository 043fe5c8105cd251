"""The header of a GGUF file, read as what a stranger wrote: every count and offset is checked before it is followed.

The gguf package's own reader trusts both, and takes seconds for a vocabulary; its tables of types and its dequantisers
are used, in `gguf.py`. Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelFileInvalid, ModelUnsupported

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES = 2**16  # metadata entries, and tensors
MAX_NAME_BYTES = 2**16
MAX_ARRAY_ITEMS = 2**22  # the largest vocabularies have 2**18 tokens, and twice as many merges
MAX_HEADER_BYTES = 2**26  # of the names and texts that are read, a chat template's among them
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 2**40  # of one tensor
DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_UINT32, _UINT64 = _SCALARS[4], _SCALARS[10]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A way to store numbers: `block_elements` of them in `block_bytes`."""

    type_id: int
    name: str
    block_elements: int
    block_bytes: int


TENSOR_TYPES = {
    kind.type_id: kind
    for kind in (
        TensorType(0, "F32", 1, 4),
        TensorType(1, "F16", 1, 2),
        TensorType(2, "Q4_0", 32, 18),
        TensorType(3, "Q4_1", 32, 20),
        TensorType(6, "Q5_0", 32, 22),
        TensorType(7, "Q5_1", 32, 24),
        TensorType(8, "Q8_0", 32, 34),
        TensorType(12, "Q4_K", 256, 144),
        TensorType(13, "Q5_K", 256, 176),
        TensorType(14, "Q6_K", 256, 210),
        TensorType(30, "BF16", 1, 2),
    )
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    name: str
    shape: tuple[int, ...]  # rows first, as torch has it; the file lists the fastest dimension first
    type_id: int
    start: int  # bytes from the beginning of the file

    def kind(self, path: Path) -> TensorType:
        """Raises ModelUnsupported, with the type's name, for one that isn't read here."""
        kind = TENSOR_TYPES.get(self.type_id)
        if kind is None:
            raise ModelUnsupported(
                f"{path}: the tensor {self.name[:120]} is stored as {_type_name(self.type_id)}; these work: "
                + ", ".join(kind.name for kind in TENSOR_TYPES.values())
            )
        return kind

    def num_bytes(self, path: Path) -> int:
        kind = self.kind(path)
        return _num_elements(self.shape) // kind.block_elements * kind.block_bytes


@dataclass(frozen=True, slots=True)
class GgufArray:
    """An array of the metadata, left in the file until `GgufFile.array` is asked for it: vocabularies are long."""

    item_type: int
    num_items: int
    start: int


class GgufFile:
    """One open file: metadata by name, tensors by name, and the mapped bytes of their values.

    Raises ModelFileInvalid for a truncated, damaged or hostile file, ModelUnsupported for one of another version, of
    another byte order, or that is one part of several. The tensor types aren't judged before they are asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, object] = {}
        self.tensors: dict[str, GgufTensor] = {}
        try:
            with path.open("rb") as file:
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelFileInvalid(f"{path} can't be read: {error.strerror or error}") from error
        except ValueError as error:  # an empty file can't be mapped
            raise self._fault("it is empty") from error
        self._at = 0
        self._text_bytes = 0
        num_tensors, num_entries = self._preamble()
        for _ in range(num_entries):
            self._read_entry()
        alignment = self._alignment()
        infos = [self._read_tensor_info() for _ in range(num_tensors)]
        self._place_tensors(infos, -(-self._at // alignment) * alignment, alignment)

    def array(self, name: str) -> list[object] | None:
        """A metadata array; None where there is none of that name."""
        array = self.metadata.get(name)
        if not isinstance(array, GgufArray):
            return None
        if array.item_type != _STRING:
            scalar = _SCALARS[array.item_type]
            end = array.start + array.num_items * scalar.size
            return [value for (value,) in scalar.iter_unpack(self.bytes[array.start : end])]
        items: list[object] = []
        at = array.start
        for _ in range(array.num_items):
            (length,) = _UINT64.unpack_from(self.bytes, at)
            items.append(self.bytes[at + 8 : at + 8 + length].decode("utf-8", "replace"))
            at += 8 + length
        return items

    def _preamble(self) -> tuple[int, int]:  # tensors, metadata entries
        if self.bytes[:4] != MAGIC:
            raise self._fault("it doesn't begin with GGUF")
        self._at = 4
        version = self._number(_UINT32)
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            what = "a big-endian GGUF file" if swapped else f"GGUF version {version}"
            raise ModelUnsupported(f"{self.path} is {what}; versions 2 and 3, little-endian, work")
        num_tensors, num_entries = self._number(_UINT64), self._number(_UINT64)
        for what, count in (("tensors", num_tensors), ("metadata entries", num_entries)):
            if count > min(MAX_ENTRIES, len(self.bytes) // 12):
                raise self._fault(f"its header claims {count:,} {what}")
        return num_tensors, num_entries

    def _read_entry(self) -> None:
        name = self._string(MAX_NAME_BYTES)
        if name in self.metadata:
            raise self._fault(f"its metadata holds {name[:120]!r} twice")
        value_type = self._number(_UINT32)
        if value_type == _STRING:
            self.metadata[name] = self._string(MAX_HEADER_BYTES)
        elif value_type == _ARRAY:
            self.metadata[name] = self._skip_array(name)
        elif value_type in _SCALARS:
            self.metadata[name] = self._scalar(_SCALARS[value_type])
        else:
            raise self._fault(f"its metadata {name[:120]!r} is of unknown type {value_type}")

    def _skip_array(self, name: str) -> GgufArray:
        item_type, num_items = self._number(_UINT32), self._number(_UINT64)
        array = GgufArray(item_type, num_items, self._at)
        if num_items > MAX_ARRAY_ITEMS:
            raise self._fault(f"its metadata {name[:120]!r} claims {num_items:,} items")
        if item_type in _SCALARS:
            self._advance(num_items * _SCALARS[item_type].size)
        elif item_type == _STRING:
            # In local names: a vocabulary and its merges are some 100,000 strings, and this is on every start's way.
            at, size, unpack_from, mapped = self._at, len(self.bytes), _UINT64.unpack_from, self.bytes
            for _ in range(num_items):
                if at + 8 > size:
                    break
                at += 8 + unpack_from(mapped, at)[0]
            self._advance(at - self._at if at + 8 <= size or num_items == 0 else size)
        else:
            raise self._fault(f"its metadata {name[:120]!r} is an array of unsupported type {item_type}")
        return array

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
            raise self._fault(f"its alignment is {alignment!r}, which is no power of two")
        parts = self.metadata.get("split.count", 0)
        if isinstance(parts, int) and parts > 1:
            raise ModelUnsupported(
                f"{self.path} is one of {parts} parts; join them with llama.cpp's llama-gguf-split --merge"
            )
        return alignment

    def _read_tensor_info(self) -> GgufTensor:
        name = self._string(MAX_NAME_BYTES)
        num_dimensions = self._number(_UINT32)
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise self._fault(f"the tensor {name[:120]!r} has {num_dimensions} dimensions")
        shape = tuple(self._number(_UINT64) for _ in range(num_dimensions))[::-1]
        if min(shape) < 1 or _num_elements(shape) > MAX_ELEMENTS:
            raise self._fault(f"the tensor {name[:120]!r} claims the shape {list(shape)}")
        return GgufTensor(name, shape, self._number(_UINT32), self._number(_UINT64))

    def _place_tensors(self, infos: list[GgufTensor], data_start: int, alignment: int) -> None:
        for info in infos:
            if info.name in self.tensors:
                raise self._fault(f"it holds the tensor {info.name[:120]!r} twice")
            tensor = GgufTensor(info.name, info.shape, info.type_id, data_start + info.start)
            self.tensors[info.name] = tensor
            if info.start % alignment:
                raise self._fault(f"the tensor {info.name[:120]!r} begins between two multiples of {alignment} bytes")
            kind = TENSOR_TYPES.get(info.type_id)
            if kind is None:
                continue
            if info.shape[-1] % kind.block_elements:
                raise self._fault(f"rows of {info.shape[-1]} elements can't be {kind.name}: {info.name[:120]!r}")
            if tensor.start + tensor.num_bytes(self.path) > len(self.bytes):
                raise self._fault(
                    f"the tensor {info.name[:120]!r} ends at byte {tensor.start + tensor.num_bytes(self.path):,}, "
                    f"the file at {len(self.bytes):,}: it was cut short"
                )
        self._check_apart()

    def _check_apart(self) -> None:
        """Tensors that share bytes would let a small file claim to be a large model."""
        end, before = 0, ""
        for tensor in sorted(self.tensors.values(), key=lambda tensor: tensor.start):
            if tensor.start < end:
                raise self._fault(f"the tensors {before[:120]!r} and {tensor.name[:120]!r} overlap")
            if tensor.type_id in TENSOR_TYPES:
                end, before = tensor.start + tensor.num_bytes(self.path), tensor.name

    def _string(self, most: int) -> str:
        length = self._number(_UINT64)
        if length > most:
            raise self._fault(f"a name of {length:,} bytes at byte {self._at:,}")
        self._text_bytes += length
        if self._text_bytes > MAX_HEADER_BYTES:
            raise self._fault(f"the names and texts of its header have more than {MAX_HEADER_BYTES:,} bytes")
        start = self._at
        self._advance(length)
        return self.bytes[start : self._at].decode("utf-8", "replace")

    def _number(self, layout: struct.Struct) -> int:
        value = self._scalar(layout)
        assert isinstance(value, int)
        return value

    def _scalar(self, layout: struct.Struct) -> object:
        start = self._at
        self._advance(layout.size)
        return layout.unpack_from(self.bytes, start)[0]

    def _advance(self, num_bytes: int) -> None:
        if self._at + num_bytes > len(self.bytes):
            raise self._fault(f"it ends inside its header, at byte {len(self.bytes):,}: it was cut short")
        self._at += num_bytes

    def _fault(self, fault: str) -> ModelFileInvalid:
        return ModelFileInvalid(f"{self.path} isn't a sound GGUF file: {fault}")


def _num_elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _type_name(type_id: int) -> str:
    from gguf import GGMLQuantizationType

    try:
        return GGMLQuantizationType(type_id).name
    except ValueError:
        return f"unknown type {type_id}"

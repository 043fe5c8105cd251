"""The hash chain that names a prefix: every block's hash covers all tokens up to its end."""

from array import array
from collections.abc import Iterable, Sequence

import xxhash

from .block import Root


def frame(fields: Iterable[str | bytes]) -> bytes:
    """Joins fields, each behind its length, so that ("ab", "c") and ("a", "bc") stay apart."""
    framed = bytearray()
    for value in fields:
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        framed += len(raw).to_bytes(8, "little") + raw
    return bytes(framed)


class BlockHasher:
    """hash_i = xxh3_128(hash_{i-1} ‖ token ids of block i, as 4 bytes each), cut to `bits`.

    A fast hash can be made to collide, so whoever finds a block by its hash compares tokens and parent as well;
    `bits` exists to prove that they do.
    """

    def __init__(self, bits: int = 128) -> None:
        assert bits in range(8, 129, 8), "a hash is cut to whole bytes"
        self._num_bytes = bits // 8

    def root(self, fields: Iterable[str | bytes]) -> Root:
        framed = frame(fields)
        return Root(framed, xxhash.xxh3_128_digest(framed)[: self._num_bytes])

    def block(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        return xxhash.xxh3_128_digest(parent_hash + array("I", token_ids).tobytes())[: self._num_bytes]

"""Model files as a stranger might write them: random damage, and lies about sizes. Only errors of ours come out."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny_gguf
from paged_chat.engine.errors import ModelFileInvalid, PagedChatError
from paged_chat.engine.model import gguf_file
from paged_chat.engine.model.fields import Fields
from paged_chat.engine.model.gguf_config import config_from_gguf
from paged_chat.engine.model.gguf_file import GgufFile
from paged_chat.engine.model.hf_config import config_from_hf
from paged_chat.engine.model.safetensors import SafetensorsSource

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MAX_BYTES = 20_000_000  # of memory that a damaged file of some kilobytes may take to be refused

damage = st.lists(st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=12)), min_size=1, max_size=6)
cut = st.integers(0, 2**17)


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory) -> bytes:
    return tiny_gguf.build("llama", tmp_path_factory.mktemp("gguf") / "model.gguf").read_bytes()


def damaged(content: bytes, places: list[tuple[int, bytes]], length: int, head: int) -> bytes:
    """Bytes written over the head of a file, which may be cut too."""
    changed = bytearray(content)
    for place, new in places:
        at = place % head
        changed[at : at + len(new)] = new
    return bytes(changed[: max(length, head // 2)])


def only_our_errors(read: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        read()
    except PagedChatError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MAX_BYTES


@FUZZ
@given(damage, cut)
def test_a_damaged_gguf_file(gguf_bytes, tmp_path, places, length):
    file = tmp_path / "model.gguf"
    file.write_bytes(damaged(gguf_bytes, places, length, head=6000))

    def read():
        opened = GgufFile(file)
        for name in opened.metadata:
            opened.array(name)
        config_from_gguf(opened)

    only_our_errors(read)


@FUZZ
@given(damage, cut)
def test_a_damaged_safetensors_file(tiny_model, tmp_path, places, length):
    content = (tiny_model("llama") / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(damaged(content, places, length, head=2000))

    def read():
        source = SafetensorsSource(tmp_path)
        for name in source.names:
            source.shape(name)
            source.read(name)

    only_our_errors(read)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner),
    max_leaves=4,
)


@FUZZ
@given(st.data())
def test_a_config_of_absurd_values(tiny_model, data):
    sound = json.loads((tiny_model("llama") / "config.json").read_text())
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(sound)), values, min_size=1, max_size=4))
    only_our_errors(lambda: config_from_hf(Fields("config.json", sound | changed)))


# Lies in a GGUF header


def gguf_of(path: Path, entries: list[bytes], tensors: list[bytes] = [], data: bytes = b"") -> Path:  # noqa: B006
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def tensor(name: bytes, num_elements: int, offset: int) -> bytes:
    return text(name) + struct.pack("<IQIQ", 1, num_elements, 0, offset)  # float32


def test_tensors_that_share_bytes_are_refused(tmp_path):
    """Each a view of the same megabyte: a small file that would be a model of terabytes."""
    file = gguf_of(tmp_path / "a.gguf", [], [tensor(b"a", 16, 0), tensor(b"b", 16, 32)], bytes(96))
    with pytest.raises(ModelFileInvalid, match="the tensors 'a' and 'b' overlap"):
        GgufFile(file)
    assert len(GgufFile(gguf_of(file, [], [tensor(b"b", 16, 64), tensor(b"a", 16, 0)], bytes(128))).tensors) == 2


def test_texts_without_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_file, "MAX_HEADER_BYTES", 1000)
    entries = [text(f"key{i}".encode()) + struct.pack("<I", 8) + text(b"x" * 300) for i in range(4)]
    with pytest.raises(ModelFileInvalid, match="the names and texts of its header have more than 1,000 bytes"):
        GgufFile(gguf_of(tmp_path / "a.gguf", entries))
    assert len(GgufFile(gguf_of(tmp_path / "b.gguf", entries[:3])).metadata) == 3


@pytest.mark.parametrize("num_items", [2**22 + 1, 2**63, 2**64 - 1])
def test_an_array_that_claims_more_than_any_vocabulary_is_refused(tmp_path, num_items):
    entry = text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, num_items)
    with pytest.raises(ModelFileInvalid, match=f"claims {num_items:,} items"):
        GgufFile(gguf_of(tmp_path / "a.gguf", [entry]))

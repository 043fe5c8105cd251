"""GGUF: each quantisation equals the package's, each family its Hugging Face twin; hostile files are refused."""

import struct
import time

import gguf
import numpy as np
import pytest
import torch

import tiny_gguf
import tiny_models
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import ModelFileInvalid, ModelUnsupported
from paged_chat.engine.model.gguf import GgufSource
from paged_chat.engine.model.gguf_config import config_from_gguf
from paged_chat.engine.model.gguf_file import TENSOR_TYPES, GgufFile
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.weights import check_tensors, fuse, fused_tensors
from paged_decoder import PagedDecoder

PROMPT = list(range(3, 63))
WIDE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "num_hidden_layers": 1}


def load(path):
    return load_model(EngineConfig(model=str(path), dtype="float32", kernels="cpu"))


def source_of(path):
    file = GgufFile(path)
    return GgufSource(file, config_from_gguf(file))


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_a_file_holds_the_same_weights_and_configuration_as_the_folder(tmp_path, family):
    """qwen2-window's files say nothing of the window, so only its weights are compared."""
    source = source_of(tiny_gguf.build(family, tmp_path / "tiny.gguf"))
    model = tiny_models.causal_lm(family)
    for name, parameter in model.named_parameters():
        assert torch.equal(source.read(name), parameter), name
    if family != "qwen2-window":
        expected = model(torch.tensor([PROMPT])).logits[0]
        [logits] = PagedDecoder(load(tmp_path / "tiny.gguf").decoder).step(("a", PROMPT))
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("quantization", [kind.name for kind in TENSOR_TYPES.values()])
def test_every_quantisation_decodes_as_the_package_does(tmp_path, quantization):
    path = tiny_gguf.build("qwen2", tmp_path / "tiny.gguf", quantization, **WIDE)
    source = source_of(path)
    names = {"token_embd.weight": "model.embed_tokens.weight", "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight"}  # fmt: skip  # noqa: E501
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name in names:
            assert tensor.tensor_type.name == quantization
            expected = gguf.dequantize(tensor.data, tensor.tensor_type)
            found = source.read(names.pop(tensor.name)).float().numpy()
            np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert not names


@pytest.mark.parametrize("quantization", ["Q8_0", "Q4_1", "Q6_K"])
def test_permuted_rows_are_put_back_after_dequantising(tmp_path, quantization):
    """A quantised llama file's q and k, permuted by hand as llama.cpp does, are what lies in the file."""
    path = tiny_gguf.build("llama", tmp_path / "tiny.gguf", quantization, **WIDE)
    stored = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.attn_q.weight")
    expected = torch.from_numpy(gguf.dequantize(stored.data, stored.tensor_type).copy())
    found = source_of(path).read("model.layers.0.self_attn.q_proj.weight")
    permuted = found.unflatten(0, (4, 2, -1)).transpose(1, 2).reshape(256, 256)
    assert torch.equal(permuted, expected)
    assert not torch.equal(found, expected)


def test_other_types_are_refused_by_name(tmp_path):
    path = tmp_path / "ternary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in {"context_length": 64, "embedding_length": 256, "block_count": 1, "feed_forward_length": 256,
                        "attention.head_count": 4, "attention.head_count_kv": 4}.items():  # fmt: skip
        writer.add_uint32(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    kind = gguf.GGMLQuantizationType.TQ1_0
    writer.add_tensor("token_embd.weight", gguf.quantize(np.ones((32, 256), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelUnsupported, match="stored as TQ1_0; these work: F32, F16, Q4_0"):
        load(path)


def rewrite(path, out, change=None, architecture="llama", add_tensors=(), **metadata):
    """A copy of a GGUF file with some of its metadata changed, through the package's own writer."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = metadata.pop(name, field.contents())
        if value is not None:
            sub_type = field.types[-1] if len(field.types) > 1 else None
            kind = field.types[0] if isinstance(value, type(field.contents())) else gguf.GGUFValueType.get_type(value)
            writer.add_key_value(name, value, kind, sub_type=sub_type)
    for name, value in metadata.items():
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    for name in add_tensors:
        writer.add_tensor(name, np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory):
    return tiny_gguf.build("llama", tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"architecture": "gemma3"}, "'gemma3' isn't supported. Models that work: Llama 2 and 3"),
        ({"llama.expert_count": 8}, "mixtures of experts"),
        ({"llama.rope.dimension_count": 8}, r"rope\.dimension_count differs from the head size"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}, "'longrope' isn't supported"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"add_tensors": ["blk.0.ffn_gate_inp.weight"]}, r"blk\.0\.ffn_gate_inp\.weight has no place"),
    ],
)
def test_what_is_not_run_is_refused_by_name(tiny_file, tmp_path, metadata, named):
    with pytest.raises(ModelUnsupported, match=named):
        load(rewrite(tiny_file, tmp_path / "other.gguf", **metadata))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("llama.block_count", 2**31),
        ("llama.block_count", 3),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 5),
        ("llama.attention.head_count_kv", 3),
        ("llama.embedding_length", 2**31),
        ("llama.embedding_length", None),
        ("llama.context_length", 0),
        ("llama.feed_forward_length", "wide"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan")),
        ("llama.rope.freq_base", -1.0),
        ("llama.attention.key_length", 2**20),
        ("general.alignment", 33),
    ],
)
def test_metadata_that_cannot_be_are_refused(tiny_file, tmp_path, name, value):
    with pytest.raises(ModelFileInvalid, match=r"other\.gguf"):
        load(rewrite(tiny_file, tmp_path / "other.gguf", **{name: value}))


def test_end_tokens_of_a_turn_count_too(tiny_file, tmp_path):
    path = rewrite(tiny_file, tmp_path / "other.gguf", **{"tokenizer.ggml.eot_token_id": 9})
    config = config_from_gguf(GgufFile(path))
    assert config.eos_token_ids == (2, 9)


def test_arrays_of_the_metadata(tiny_file):
    file = GgufFile(tiny_file)
    tokens = file.array("tokenizer.ggml.tokens")
    assert len(tokens) == 320
    assert tokens[319] == "<319>"
    assert file.array("general.architecture") is None


def test_a_file_cut_anywhere_is_refused(tiny_file, tmp_path):
    whole = tiny_file.read_bytes()
    path = tmp_path / "cut.gguf"
    for kept in [0, 3, 4, 20, 23, *range(24, 12_000, 97), len(whole) // 2, len(whole) - 64, len(whole) - 33]:
        path.write_bytes(whole[:kept])
        with pytest.raises(ModelFileInvalid, match=r"cut\.gguf"):
            load(path)


def test_damaged_headers_are_refused_or_read_but_never_crash(tiny_file, tmp_path):
    """Bits turned at random in the header: a typed refusal, or a file that happens to be sound, and quickly."""
    whole = bytearray(tiny_file.read_bytes())
    random = np.random.default_rng(0)
    path = tmp_path / "damaged.gguf"
    header_bytes = 12_000
    refused = 0
    started = time.process_time()
    for _ in range(300):
        damaged = bytearray(whole)
        for position in random.integers(0, header_bytes, 3):
            damaged[position] = random.integers(0, 256)
        path.write_bytes(damaged)
        try:
            file = GgufFile(path)
            config = config_from_gguf(file)
            fused = fused_tensors(config)
            source = GgufSource(file, config)
            check_tensors(source, fused)
            list(fuse(source, fused, torch.float32))
        except (ModelFileInvalid, ModelUnsupported) as error:
            assert "damaged.gguf" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 20
    assert time.process_time() - started < 30  # of the processor, which a busy machine doesn't stretch


def header(num_tensors=0, num_entries=0, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, num_tensors, num_entries)


def text(value):
    return struct.pack("<Q", len(value)) + value


def tensor_info(shape, type_id=0, start=0, num_dimensions=None):
    count = len(shape) if num_dimensions is None else num_dimensions
    return (
        text(b"t")
        + struct.pack("<I", count)
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", type_id, start)
    )


@pytest.mark.parametrize(
    "content",
    [
        header(magic=b"GGML") + bytes(100),
        header(num_tensors=2**63) + bytes(100),
        header(num_entries=2**40) + bytes(100),
        header(num_entries=1) + struct.pack("<Q", 2**64 - 1) + bytes(100),
        header(num_entries=1) + text(b"k") + struct.pack("<I", 77) + bytes(100),
        header(num_entries=1) + text(b"k") + struct.pack("<IQ", 8, 2**60) + bytes(100),
        header(num_entries=1) + text(b"k") + struct.pack("<IIQ", 9, 4, 2**62) + bytes(100),
        header(num_entries=1) + text(b"k") + struct.pack("<IIQ", 9, 4, 2**24) + bytes(100),
        header(num_entries=1) + text(b"k") + struct.pack("<IIQ", 9, 8, 2**24) + bytes(100),
        header(num_entries=1) + text(b"k") + struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", 2**63) + bytes(100),
        header(num_entries=1) + text(b"k") + struct.pack("<IIQ", 9, 9, 5) + bytes(100),
        header(num_entries=2) + 2 * (text(b"k") + struct.pack("<II", 4, 1)) + bytes(100),
        header(num_tensors=1) + tensor_info([2**40, 2**40]) + bytes(100),
        header(num_tensors=1) + tensor_info([0, 4]) + bytes(100),
        header(num_tensors=1) + tensor_info([4], num_dimensions=2**31) + bytes(100),
        header(num_tensors=1) + tensor_info([4], num_dimensions=0) + bytes(100),
        header(num_tensors=1) + tensor_info([4], start=2**63) + bytes(100),
        header(num_tensors=1) + tensor_info([4], start=7) + bytes(100),
        header(num_tensors=1) + tensor_info([100]) + bytes(100),
        header(num_tensors=1) + tensor_info([31], type_id=3) + bytes(100),
        header(num_tensors=2) + 2 * tensor_info([4]) + bytes(100),
    ],
)  # fmt: skip
def test_a_hostile_header_is_refused_quickly(tmp_path, content):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises(ModelFileInvalid, match=r"hostile\.gguf"):
        load(path)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(("version", "named"), [(1, "version 1"), (4, "version 4"), (3 << 24, "big-endian")])
def test_other_versions_are_refused_by_name(tmp_path, version, named):
    path = tmp_path / "other.gguf"
    path.write_bytes(header(version=version) + bytes(100))
    with pytest.raises(ModelUnsupported, match=named):
        load(path)

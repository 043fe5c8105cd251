"""tokenizer.json as a stranger might write it: refused by name, or harmless; never a panic, never gigabytes."""

import json

import pytest

from paged_chat.engine.errors import ModelFileInvalid
from paged_chat.engine.text.tokenizer import Tokenizer
from paged_chat.engine.text.tokenizer_files import read_folder
from tiny_tokenizer import write_tokenizer


@pytest.fixture
def load(tmp_path):
    def load(**changes):
        """The tiny tokenizer with parts of its file exchanged."""
        write_tokenizer(tmp_path)
        file = tmp_path / "tokenizer.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return Tokenizer(read_folder(tmp_path))

    return load


def added(content, token_id=260):
    matching = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    return {"id": token_id, "content": content, "special": True, **matching}


@pytest.mark.parametrize(
    "model",
    [
        None,
        {},
        7,
        {"type": "BPE", "vocab": {"a": -1}, "merges": []},
        {"type": "BPE", "vocab": {"a": 1.5}, "merges": []},
        {"type": "BPE", "vocab": {"a": 2**64}, "merges": []},
        {"type": "BPE", "vocab": {"a": 0}, "merges": [["q", "w"]]},
        {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 1.5},
        {"type": "Unigram", "vocab": [], "unk_id": 0},
        {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 7},
        {"type": "BPE", "vocab": {"\ud800": 0}, "merges": []},
    ],
)
def test_a_model_that_is_none_is_refused_with_its_file(load, model):
    with pytest.raises(ModelFileInvalid, match=r"tokenizer\.json is not a tokenizer that can be read"):
        load(model=model)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}},
        {"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": None}},
        # Backtracks without end; the library gives up after ten million steps, with a panic.
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}},
    ],
    ids=["WordLevel", "Unigram", "regex"],
)
def test_what_fails_at_a_text_is_an_error_of_ours(load, changes):
    with pytest.raises(ModelFileInvalid, match="the model's tokenizer fails at this text"):
        load(**changes).encode("a" * 40 + "?")


def test_a_decoder_that_panics_is_an_error_of_ours(load):
    tokenizer = load(decoder={"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9})
    with pytest.raises(ModelFileInvalid, match="the model's tokenizer fails at this text"):
        tokenizer.decode(range(3, 200))


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_a_text_that_would_explode_is_refused_when_the_tokenizer_is_loaded(load, part):
    doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    inner = f"{part}s"
    with pytest.raises(ModelFileInvalid, match="makes a text 16,777,216 times as long; 256 times at most work"):
        load(**{part: {"type": "Sequence", inner: [doubling] * 24}})


def test_added_tokens_are_neither_endless_nor_countless(load):
    with pytest.raises(ModelFileInvalid, match=r"at most 16,384 of 512 characters each work"):
        load(added_tokens=[added("<|" + "x" * 30_000 + "|>")])
    with pytest.raises(ModelFileInvalid, match="begin with 101 different characters; at most 64 work"):
        load(added_tokens=[added(f"{chr(0x4E00 + i)}|", 260 + i) for i in range(100)])


@pytest.mark.parametrize("token_id", [999_999, 2**32 - 1])
def test_an_id_far_beyond_the_vocabulary_takes_no_memory(load, token_id):
    tokenizer = load(added_tokens=[added("<x>", token_id)])
    assert tokenizer.decode(tokenizer.encode("he <x>")) == "he <x>"


@pytest.mark.parametrize("text", ["[" * 100_000, "{" * 5, "", "nul\0", "\ufeff{}"])
def test_a_file_that_is_no_json_is_refused(tmp_path, text):
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelFileInvalid, match=r"tokenizer\.json"):
        Tokenizer(read_folder(tmp_path))


@pytest.mark.parametrize(
    ("config", "bos", "template"),
    [
        ({"bos_token": "\ud800"}, "\ufffd", None),
        ({"bos_token": {"content": "a\udc00"}, "eos_token": 7}, "a\ufffd", None),
        ({"bos_token": [], "chat_template": "\ud800{{ 1 }}"}, None, "\ufffd{{ 1 }}"),
        ({"chat_template": [{"name": [], "template": "a"}, 7, {"name": "default", "template": "b"}]}, None, "b"),
        ({"chat_template": [{"name": {}, "template": "a"}, {"template": "b"}]}, None, "a"),
        ({"chat_template": [{"name": "default"}]}, None, None),
        ({"chat_template": []}, None, None),
    ],
)
def test_what_stands_beside_it_is_read_as_text_or_not_at_all(tmp_path, config, bos, template):
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(read_folder(tmp_path))
    assert (tokenizer.bos_token, tokenizer.chat_template) == (bos, template)
    assert tokenizer.decode(tokenizer.encode("he")) == "he"

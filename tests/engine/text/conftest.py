"""Tiny tokenizers of the two kinds that language models come with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from chat_templates import CHATML, LLAMA2
from paged_chat.engine.text.tokenizer import Tokenizer
from tiny_tokenizer import load_tokenizer

MakeFolder = Callable[..., Path]


@pytest.fixture(scope="session")
def byte_level_spec() -> str:
    """A byte-level BPE: ids 0 to 2 are <|endoftext|>, <|im_start|>, <|im_end|>; then the 256 bytes; then merges."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    lines = [
        "the user asks the assistant",
        "hello there, hello again",
        "system user assistant",
        "日本語 日本",
        "end of it",
    ]
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer.to_str()


@pytest.fixture(scope="session")
def sentence_piece_spec() -> str:
    """Llama 2's kind: "▁" is a space, unknown characters are spelled in bytes, the post-processor adds <s>."""
    words = ["▁the", "▁INST", "▁hello", "▁assistant", "▁user"]
    characters = sorted({*"".join(words), *"▁abcdefghijklmnopqrstuvwxyzST[]/<>.,é"})
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    merges: list[tuple[str, str]] = []
    for token in [*characters, *(word[:end] for word in words for end in range(2, len(word) + 1))]:
        if token not in vocab:
            vocab[token] = len(vocab)
            if len(token) > 1:
                merges.append((token[:-1], token[-1]))
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer.to_str()


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """`make_folder(tokenizer_json, **config)` writes a model folder's tokenizer files."""

    def make(tokenizer_json: str, **config: Any) -> Path:
        folder = tmp_path_factory.mktemp("model")
        (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def byte_level(byte_level_spec: str, make_folder: MakeFolder) -> Tokenizer:
    """A SmolLM-like tokenizer with a ChatML template."""
    folder = make_folder(byte_level_spec, bos_token="<|im_start|>", eos_token="<|im_end|>", chat_template=CHATML)
    return loaded(folder)


@pytest.fixture(scope="session")
def sentence_piece(sentence_piece_spec: str, make_folder: MakeFolder) -> Tokenizer:
    """A Llama-2-like tokenizer with a template that begins with BOS and refuses system messages."""
    return loaded(make_folder(sentence_piece_spec, bos_token="<s>", eos_token="</s>", chat_template=LLAMA2))


@pytest.fixture(params=["byte_level", "sentence_piece"])
def twins(
    request: pytest.FixtureRequest, make_folder: MakeFolder, byte_level_spec: str, sentence_piece_spec: str
) -> tuple[Tokenizer, Any]:
    """A tokenizer of ours, and transformers' of the same file, with the same chat template."""
    from transformers import PreTrainedTokenizerFast

    ours: Tokenizer = request.getfixturevalue(request.param)
    spec = byte_level_spec if request.param == "byte_level" else sentence_piece_spec
    folder = make_folder(spec, bos_token=ours.bos_token, eos_token=ours.eos_token)
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    theirs.chat_template = ours.chat_template
    return ours, theirs


@pytest.fixture(scope="session")
def default_tokenizer(default_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return loaded(default_model_path, tmp_path_factory.mktemp("prepared"))


def loaded(source: Path, cache_folder: Path | None = None) -> Tokenizer:
    tokenizer = load_tokenizer(source, cache_folder or source / "prepared")
    assert tokenizer is not None
    return tokenizer

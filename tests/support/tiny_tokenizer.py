"""A byte-level tokenizer small enough for a tiny model: specials, the 256 bytes, and one merge."""

import json
import shutil
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from paged_chat.engine.progress import OnProgress, ignore_progress
from paged_chat.engine.text.tokenizer import Tokenizer
from paged_chat.engine.text.tokenizer_files import read_folder, read_tokenizer_files

BOS, END = 1, 2
FIRST_BYTE = 3
# Adds BOS itself, as the tokenizer's post-processor does too.
TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}{{ message['role'] + ':' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json; ids 0 to 2 are <pad>, <s>, </s>, then come the bytes in order."""
    characters = bytes_to_characters()
    vocab = {"<pad>": 0, "<s>": BOS, "</s>": END}
    vocab |= {characters[byte]: FIRST_BYTE + byte for byte in range(256)}
    vocab["he"] = FIRST_BYTE + 256
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("h", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<pad>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def with_tokenizer(model_folder: Path, folder: Path) -> Path:
    """A copy of a tiny model that speaks text."""
    shutil.copytree(model_folder, folder)
    write_tokenizer(folder)
    return folder


def load_tokenizer(source: Path, cache_folder: Path, on_progress: OnProgress = ignore_progress) -> Tokenizer | None:
    """The tokenizer that an engine gets for a model's folder or file."""
    files = read_tokenizer_files(source, cache_folder, on_progress)
    return None if files is None else Tokenizer(files)


def tokenizer_in(folder: Path) -> Tokenizer:
    write_tokenizer(folder)
    return Tokenizer(read_folder(folder))


def bytes_to_characters() -> dict[int, str]:
    """How GPT-2 spells bytes in a vocabulary (Radford et al. 2019): printable ones as they are, the rest shifted."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def spelled(text: str) -> list[int]:
    """One id for each byte of a text."""
    return [FIRST_BYTE + byte for byte in text.encode()]

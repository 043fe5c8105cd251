"""Tokenizers in other forms, converted to tokenizer.json through transformers. Takes seconds; runs once a model."""

import contextlib
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ModelFileInvalid, ModelUnsupported
from ..progress import LoadProgress, OnProgress
from .tokenizer_files import TokenizerFiles, read_chat_template

logger = logging.getLogger(__name__)

# How llama.cpp's pre-tokenizers (`tokenizer.ggml.pre`) that transformers doesn't know split a text, from llama.cpp's
# llama-vocab.cpp: every digit alone, then GPT-2's rule.
DIGITS_ALONE = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
# Where a whole word of the vocabulary is taken as it is, even when no merges lead to it (same source).
WHOLE_WORDS_FIRST = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken")
# GPT-2's own rule, and those that transformers sets by itself.
KNOWN_SPLITS = ("gpt-2", "default", "qwen2", "qwen35", "deepseek-r1-qwen", "smaug-bpe", "dbrx", "gpt-4o", "llama4")


def convert_gguf(file: Path, on_progress: OnProgress) -> TokenizerFiles | None:
    """The tokenizer of a .gguf file; None where the file holds none, or only a list of tokens.

    Raises ModelFileInvalid where the file is damaged, ModelUnsupported for a kind of tokenizer that isn't known.
    """
    on_progress(LoadProgress("convert", 0, 1))
    metadata = _gguf_metadata(file)
    if metadata is None:
        return None
    with _alone_in_a_folder(file) as folder:
        converted = _through_transformers(folder, file, gguf_file=file.name)
    spec: dict[str, Any] = json.loads(converted.backend_tokenizer.to_str())
    _correct_splits(spec, metadata, file)
    # A token beyond the model's embeddings would be an id that the model can't read.
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["id"] < metadata["num_tokens"]]
    on_progress(LoadProgress("convert", 1, 1))
    adds_bos = metadata["add_bos_token"]
    if adds_bos is None and metadata["pre"] in WHOLE_WORDS_FIRST:
        adds_bos = True  # llama.cpp's default for these
    return _files(file, spec, converted, metadata["chat_template"], adds_bos)


def convert_folder(folder: Path, on_progress: OnProgress) -> TokenizerFiles:
    """The tokenizer of a folder that holds only the files of a slow one. Raises ModelUnsupported where that fails."""
    on_progress(LoadProgress("convert", 0, 1))
    converted = _through_transformers(folder, folder)
    spec = json.loads(converted.backend_tokenizer.to_str())
    on_progress(LoadProgress("convert", 1, 1))
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
    return _files(folder, spec, converted, read_chat_template(folder, config), None)


def _files(
    path: Path, spec: dict[str, Any], converted: Any, chat_template: str | None, adds_bos: bool | None
) -> TokenizerFiles:
    return TokenizerFiles(
        path=path,
        tokenizer_json=json.dumps(spec, ensure_ascii=False),
        bos_token=converted.bos_token or None,
        eos_token=converted.eos_token or None,
        adds_bos=adds_bos,
        chat_template=chat_template,
    )


def _through_transformers(folder: Path, named: Path, **options: str) -> Any:
    """A fast tokenizer of transformers; `named` is what errors name."""
    from transformers import AutoTokenizer

    try:
        converted = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, **options
        )
    except Exception as fault:  # whatever a file makes transformers trip over, the file is what the user can change
        raise ModelUnsupported(
            f"the tokenizer of {named} could not be converted ({fault}); "
            "a folder with a tokenizer.json beside the weights works without conversion"
        ) from fault
    if not getattr(converted, "is_fast", False):
        raise ModelUnsupported(f"the tokenizer of {named} has no tokenizer.json form; use a model that comes with one")
    return converted


def _gguf_metadata(file: Path) -> dict[str, Any] | None:
    """What we need of a .gguf file's tokenizer; None where tokens, or the rules to reach them, are missing."""
    from gguf import GGUFReader

    try:
        fields = GGUFReader(file, "r").fields
        if "tokenizer.ggml.tokens" not in fields or not fields.keys() & {
            "tokenizer.ggml.merges",
            "tokenizer.ggml.scores",
        }:
            return None
        wanted = {
            "pre": "tokenizer.ggml.pre",
            "add_bos_token": "tokenizer.ggml.add_bos_token",
            "chat_template": "tokenizer.chat_template",
        }
        found = {name: fields[key].contents() if key in fields else None for name, key in wanted.items()}
        return found | {"num_tokens": len(fields["tokenizer.ggml.tokens"].data)}
    except Exception as fault:  # the reader checks little, so damage shows as any error of numpy or Python
        raise ModelFileInvalid(f"{file} is damaged or is no GGUF file: {fault}") from fault


def _correct_splits(spec: dict[str, Any], metadata: dict[str, Any], file: Path) -> None:
    """Split text as the model's own tokenizer does, where transformers takes GPT-2's rule for want of a better one."""
    pre = metadata["pre"]
    if pre in DIGITS_ALONE:
        spec["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        }
    elif pre in WHOLE_WORDS_FIRST:
        spec["model"]["ignore_merges"] = True
    elif pre is not None and pre not in KNOWN_SPLITS:
        logger.warning("%s splits text by a rule (%s) that isn't known here; GPT-2's is used instead", file, pre)


@contextlib.contextmanager
def _alone_in_a_folder(file: Path) -> Iterator[Path]:
    """A folder that holds a link to this file and nothing else, since transformers reads configurations beside it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            (Path(folder) / file.name).symlink_to(file.resolve())
        except OSError:  # Windows links only for those who may
            yield file.parent
        else:
            yield Path(folder)

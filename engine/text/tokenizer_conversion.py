"""Tokenizers in other forms, converted to tokenizer.json through transformers. Takes seconds; runs once a model."""

import contextlib
import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelUnsupported
from ..model.gguf_file import GgufArray, GgufFile
from ..progress import LoadProgress, OnProgress
from .tokenizer_files import TokenizerFiles, read_chat_template, read_json

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
    stated = _GgufTokenizer.read(file)
    if stated is None:
        return None
    with _alone_in_a_folder(file) as folder:
        # Not AutoTokenizer, which takes three times as long: it reads the file again for the model's configuration.
        from transformers import PreTrainedTokenizerFast

        converted = _through_transformers(PreTrainedTokenizerFast, folder, file, gguf_file=file.name)
    spec: dict[str, Any] = json.loads(converted.backend_tokenizer.to_str())
    _correct_splits(spec, stated.pre, file)
    # A token beyond the model's embeddings would be an id that the model can't read.
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["id"] < stated.num_tokens]
    on_progress(LoadProgress("convert", 1, 1))
    adds_bos = stated.adds_bos
    if adds_bos is None and stated.pre in WHOLE_WORDS_FIRST:
        adds_bos = True  # llama.cpp's default for these
    return _files(file, spec, converted, stated.chat_template, adds_bos)


def convert_folder(folder: Path, on_progress: OnProgress) -> TokenizerFiles:
    """The tokenizer of a folder that holds only the files of a slow one. Raises ModelUnsupported where that fails."""
    on_progress(LoadProgress("convert", 0, 1))
    from transformers import AutoTokenizer

    converted = _through_transformers(AutoTokenizer, folder, folder)
    spec = json.loads(converted.backend_tokenizer.to_str())
    on_progress(LoadProgress("convert", 1, 1))
    config = read_json(folder / "tokenizer_config.json")
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


def _through_transformers(kind: Any, folder: Path, named: Path, **options: str) -> Any:
    """A tokenizer of this class of transformers; `named` is what errors name."""
    try:
        converted = kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except Exception as fault:  # whatever a file makes transformers trip over, the file is what the user can change
        raise ModelUnsupported(
            f"the tokenizer of {named} could not be converted ({fault}); "
            "a folder with a tokenizer.json beside the weights works without conversion"
        ) from fault
    if not getattr(converted, "is_fast", False):
        raise ModelUnsupported(f"the tokenizer of {named} has no tokenizer.json form; use a model that comes with one")
    return converted


@dataclass(frozen=True, slots=True)
class _GgufTokenizer:
    """What a .gguf file says about its tokenizer, beside what transformers reads."""

    num_tokens: int
    pre: str | None  # the rule that splits text, by llama.cpp's name
    adds_bos: bool | None
    chat_template: str | None

    @classmethod
    def read(cls, file: Path) -> "_GgufTokenizer | None":
        """None where tokens, or the rules to reach them, are missing. Raises ModelFileInvalid for a damaged file."""
        metadata = GgufFile(file).metadata
        tokens = metadata.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, GgufArray) or not metadata.keys() & {
            "tokenizer.ggml.merges",
            "tokenizer.ggml.scores",
        }:
            return None
        pre, adds_bos = metadata.get("tokenizer.ggml.pre"), metadata.get("tokenizer.ggml.add_bos_token")
        chat_template = metadata.get("tokenizer.chat_template")
        return cls(
            num_tokens=tokens.num_items,
            pre=pre if isinstance(pre, str) else None,
            adds_bos=adds_bos if isinstance(adds_bos, bool) else None,
            chat_template=chat_template if isinstance(chat_template, str) else None,
        )


def _correct_splits(spec: dict[str, Any], pre: str | None, file: Path) -> None:
    """Split text as the model's own tokenizer does, where transformers takes GPT-2's rule for want of a better one."""
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

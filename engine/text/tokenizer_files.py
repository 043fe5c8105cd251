"""The files a tokenizer is made of: where they lie, what they say, and what is kept of a conversion."""

import hashlib
import json
import logging
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelFileInvalid
from ..progress import OnProgress, ignore_progress
from ..whole_file import whole_file

# Raise it when a conversion comes out differently, so that what older versions kept is made anew.
CONVERSION_VERSION = 1
KEPT_TOKENIZER = "tokenizer.json"
KEPT_METADATA = "chat.json"
# Files of slow tokenizers, which transformers converts.
SLOW_TOKENIZER_FILES = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")
MAX_FILE_BYTES = 256 * 2**20

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """What was read: `tokenizer_json` is the text of a tokenizer.json, `path` the file that errors name."""

    path: Path
    tokenizer_json: str
    bos_token: str | None = None
    eos_token: str | None = None
    adds_bos: bool | None = None  # None: the tokenizer's post-processor decides
    chat_template: str | None = None


def read_tokenizer_files(
    source: Path, cache_folder: Path, on_progress: OnProgress = ignore_progress
) -> TokenizerFiles | None:
    """The tokenizer of a folder in Hugging Face layout, or of a .gguf file; None where that holds none.

    What has to be converted (.gguf, or a folder without tokenizer.json) is converted once, through transformers, and
    kept in `cache_folder`; afterwards transformers isn't imported.

    Raises ModelFileInvalid, naming the file, for a damaged one, ModelUnsupported for a kind that can't be converted.
    """
    if source.is_dir():
        if (source / "tokenizer.json").is_file():
            return read_folder(source)
        slow_files = [source / name for name in SLOW_TOKENIZER_FILES if (source / name).is_file()]
        if not slow_files:
            return None
        stamp_of = slow_files[0]
    else:
        stamp_of = source

    stamp = _stamp(stamp_of)
    kept = _read_kept(cache_folder, stamp)
    if kept is not None:
        return kept
    # Imported here, because what it needs takes seconds to import and is needed once in a model's life.
    from .tokenizer_conversion import convert_folder, convert_gguf

    files = convert_folder(source, on_progress) if source.is_dir() else convert_gguf(source, on_progress)
    if files is not None:
        _keep(files, cache_folder, stamp)
    return files


def read_folder(folder: Path) -> TokenizerFiles:
    """A folder with tokenizer.json, and what stands beside it."""
    tokenizer_file = folder / "tokenizer.json"
    config = read_json(folder / "tokenizer_config.json")
    special = read_json(folder / "special_tokens_map.json")
    adds_bos = config.get("add_bos_token")
    return TokenizerFiles(
        path=tokenizer_file,
        tokenizer_json=read_text(tokenizer_file),
        bos_token=_token_text(config.get("bos_token", special.get("bos_token"))),
        eos_token=_token_text(config.get("eos_token", special.get("eos_token"))),
        adds_bos=adds_bos if isinstance(adds_bos, bool) else None,
        chat_template=read_chat_template(folder, config),
    )


def read_chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """The chat template of a folder: its own file wins over tokenizer_config.json, as in transformers."""
    if (folder / "chat_template.jinja").is_file():
        return read_text(folder / "chat_template.jinja")
    for holder in (read_json(folder / "chat_template.json"), config):
        template = holder.get("chat_template")
        if isinstance(template, list):
            entries = [entry for entry in template if isinstance(entry, dict)]
            entries.sort(key=lambda entry: entry.get("name") != "default")
            template = entries[0].get("template") if entries else None
        if isinstance(template, str):
            return without_lone_surrogates(template)
    return None


def without_lone_surrogates(text: str) -> str:
    """With U+FFFD for them: JSON can spell halves of a character, but no tokenizer takes them, and no file."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def read_text(path: Path) -> str:
    """Raises ModelFileInvalid where the file can't be read as text."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelFileInvalid(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB, too large for a tokenizer")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ModelFileInvalid(f"{path} can't be read: {fault}") from fault


def read_json(path: Path) -> dict[str, Any]:
    """An object; empty where there is no such file. Raises ModelFileInvalid."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as fault:
        raise ModelFileInvalid(f"{path} is not valid JSON: {fault}") from fault
    if not isinstance(content, dict):
        raise ModelFileInvalid(f"{path} should hold a JSON object")
    return content


def _token_text(value: object) -> str | None:
    """A token as configurations write it: plain, or an object with its matching rules."""
    if isinstance(value, dict):
        value = value.get("content")
    return without_lone_surrogates(value) if isinstance(value, str) and value else None


def _stamp(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError as fault:
        raise ModelFileInvalid(f"{path} can't be read: {fault}") from fault
    return {
        "conversion": CONVERSION_VERSION,
        "name": path.name,
        "size": status.st_size,
        "modified_ns": status.st_mtime_ns,
    }


def _read_kept(cache_folder: Path, stamp: dict[str, Any]) -> TokenizerFiles | None:
    """What an earlier conversion of this very file left, or None; damage isn't an error, it is converted again."""
    tokenizer_file = cache_folder / KEPT_TOKENIZER
    try:
        metadata = json.loads((cache_folder / KEPT_METADATA).read_text(encoding="utf-8"))
        tokenizer_json = tokenizer_file.read_text(encoding="utf-8")
        if metadata.pop("source") != stamp or metadata.pop("sha256") != _digest(tokenizer_json):
            return None
        return TokenizerFiles(path=tokenizer_file, tokenizer_json=tokenizer_json, **metadata)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _keep(files: TokenizerFiles, cache_folder: Path, stamp: dict[str, Any]) -> None:
    """Write the conversion, metadata last: it holds the digest, so a half-written pair is never taken for whole."""
    metadata = asdict(files)
    del metadata["path"], metadata["tokenizer_json"]
    metadata |= {"source": stamp, "sha256": _digest(files.tokenizer_json)}
    try:
        cache_folder.mkdir(parents=True, exist_ok=True)
        with whole_file(cache_folder / KEPT_TOKENIZER) as file:
            file.write(files.tokenizer_json)
        with whole_file(cache_folder / KEPT_METADATA) as file:
            json.dump(metadata, file, ensure_ascii=False, indent=1)
    except OSError as fault:
        # The tokenizer is there and works; only the next start pays for the conversion again.
        logger.warning("the converted tokenizer could not be kept in %s: %s", cache_folder, fault)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

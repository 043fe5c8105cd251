"""What a tokenizer that a stranger wrote may not do: fail in a way that ends the program, or make gigabytes of a line.

The library is compiled code that can't be interrupted, so what would grow is refused when it is loaded.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from ..errors import ModelFileInvalid

MAX_ADDED_TOKENS = 2**14
MAX_ADDED_CHARS = 512
# Each needs a stand-in, for which every text is searched.
MAX_FIRST_CHARACTERS = 64
# By how much a normaliser or decoder may lengthen a text; SentencePiece's writes one letter for one.
MAX_GROWTH = 256

Result = TypeVar("Result")


def called(function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """What a function of the library gives. Raises ModelFileInvalid where it fails: tokenizers raises plain exceptions,
    and panics, which aren't even those."""
    try:
        return function(*arguments, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:
        raise ModelFileInvalid(f"the model's tokenizer fails at this text: {str(fault)[:200]}") from fault


def check_tokenizer(tokenizer: tokenizers.Tokenizer, path: Path) -> None:
    """Raises ModelFileInvalid for added tokens that are too many or too long, and for text that would explode."""
    added = tokenizer.get_added_tokens_decoder().values()
    if len(added) > MAX_ADDED_TOKENS or any(len(token.content) > MAX_ADDED_CHARS for token in added):
        raise ModelFileInvalid(
            f"{path} adds {len(added):,} tokens; at most {MAX_ADDED_TOKENS:,} of {MAX_ADDED_CHARS} characters each work"
        )
    for step in (tokenizer.normalizer, tokenizer.decoder):
        growth = 1 if step is None else math.prod(_growths(json.loads(step.__getstate__())))
        if growth > MAX_GROWTH:
            raise ModelFileInvalid(f"{path} makes a text {growth:,} times as long; {MAX_GROWTH} times at most work")


def check_first_characters(characters: str) -> None:
    """Those with which control tokens begin. Raises ModelFileInvalid for too many."""
    if len(characters) > MAX_FIRST_CHARACTERS:
        raise ModelFileInvalid(
            f"the model's control tokens begin with {len(characters):,} different characters; at most "
            f"{MAX_FIRST_CHARACTERS} work"
        )


def _growths(step: dict[str, Any]) -> Iterator[int]:
    """By what each step of a normaliser or decoder, as tokenizer.json spells it, may multiply a text's length."""
    for inner in [*step.get("normalizers", ()), *step.get("decoders", ())]:
        yield from _growths(inner)
    yield max(1, *(len(step.get(name) or "") for name in ("content", "prepend")))

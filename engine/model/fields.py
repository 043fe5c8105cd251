"""Numbers, flags and names out of a mapping that a stranger wrote: a JSON file or a GGUF header."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from ..errors import ModelFileInvalid

# A config is a few kilobytes; one of megabytes is no config, and parsing it would only cost memory.
MAX_JSON_BYTES = 64 * 2**20


class Fields:
    """Typed reads of an untrusted mapping; whatever is missing, of another type, or out of range is refused.

    Every method raises ModelFileInvalid with the source's name, the field, and what was found in it.
    """

    def __init__(self, source: str, values: Mapping[str, object]) -> None:
        self.source = source
        self.values = values

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def integer(self, name: str, least: int, most: int, default: int | None = None) -> int:
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        # Some writers keep whole numbers as floats.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.invalid(name, f"must be a whole number from {least} to {most}")
        return value

    def number(self, name: str, above: float, most: float, default: float | None = None) -> float:
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not above < value <= most:
            raise self.invalid(name, f"must be a number above {above:g} and at most {most:g}")
        number = float(value)
        assert math.isfinite(number)
        return number

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.invalid(name, "must be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.invalid(name, "must be a string")
        return value

    def list_of(self, kind: type, name: str, length: int) -> list[object] | None:
        """The first `length` items of the list under `name`, all of them of `kind`; None where it is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < length or not all(isinstance(item, kind) for item in value):
            raise self.invalid(name, f"must list a {kind.__name__} for each of the {length} layers")
        return value[:length]

    def token_ids(self, name: str) -> tuple[int, ...]:
        """One id or a list of them; absent, null and -1 mean that there is none."""
        value = self.values.get(name)
        listed: list[object] = value if isinstance(value, list) else [] if value is None else [value]
        ids: list[int] = []
        for token_id in listed:
            if not isinstance(token_id, int) or isinstance(token_id, bool) or not -1 <= token_id < 2**31:
                raise self.invalid(name, "must be a token id or a list of token ids")
            if token_id >= 0 and token_id not in ids:
                ids.append(token_id)
        return tuple(ids)

    def nested(self, name: str) -> "Fields | None":
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.invalid(name, "must be an object")
        return Fields(f"{self.source}: {name}", value)

    def invalid(self, name: str, fault: str) -> ModelFileInvalid:
        value = self.values.get(name)
        shown = repr(value)
        found = "it is missing" if value is None else f"it is {shown if len(shown) <= 80 else shown[:80] + '…'}"
        return ModelFileInvalid(f"{self.source}: {name} {fault}; {found}")


def read_json(path: Path) -> Fields:
    """The object in a JSON file. Raises ModelFileInvalid where it isn't one, or can't be read."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise ModelFileInvalid(f"{path}: {size:,} bytes are too many for a JSON file of a model")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileInvalid(f"{path} can't be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileInvalid(f"{path} isn't valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileInvalid(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return Fields(str(path), value)

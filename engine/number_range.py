"""The numbers that a setting may have: one place for the check, the message of a refusal, and the help."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .counted import counted
from .errors import InvalidParameter

MAX_SHOWN = 30  # characters of a refused value
MAX_LISTED = 200  # and of several


@dataclass(frozen=True, slots=True)
class NumberRange:
    """From `least` to `most`, whole numbers or any; with `open_below` without `least` itself."""

    least: int
    most: int
    is_whole: bool = True
    open_below: bool = False

    def __contains__(self, value: object) -> bool:
        kinds = int if self.is_whole else int | float
        if not isinstance(value, kinds) or isinstance(value, bool):
            return False
        # Not a number in the sense of NaN is in no range either.
        return (self.least < value if self.open_below else self.least <= value) and value <= self.most

    def check(self, name: str, value: object) -> None:
        """Raises InvalidParameter, with the name, the range and the value."""
        if value not in self:
            raise InvalidParameter(f"{name} must be {self}, not {shown(value)}")

    def __str__(self) -> str:
        """As it reads behind "must be"."""
        if self.is_whole:
            return f"a whole number from {self.least} to {self.most}"
        return f"{'above' if self.open_below else 'at least'} {self.least} and at most {self.most}"

    @property
    def words(self) -> str:
        """For help: "1 to 256"; numbers that nobody gets to aren't spelled out."""
        least = f"above {self.least}" if self.open_below else f"{self.least}"
        if self.most >= 2**31 - 1:
            return f"from {least}"
        return f"{least} to {self.most}"


def check_numbers(settings: object, ranges: Mapping[str, NumberRange], may_be_none: Collection[str]) -> None:
    """Checks the attributes that `ranges` names. Raises InvalidParameter for the first that is out of its range."""
    for name, allowed in ranges.items():
        value = getattr(settings, name)
        if value is not None or name not in may_be_none:
            allowed.check(name, value)


def shown(value: object, most: int = MAX_SHOWN) -> str:
    """A refused value in a message: as it would be written, unless that takes lines; `most` characters of a text."""
    if isinstance(value, int) and abs(value) > 10**MAX_SHOWN:  # beyond 4,300 digits Python refuses to write it
        return f"one of more than {MAX_SHOWN} digits"
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]!r} and {counted(len(value) - most, 'character')} more"
    written = f"{value:g}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e6 else repr(value)
    return written if isinstance(value, str) or len(written) <= MAX_LISTED else f"{written[:MAX_LISTED]}…"

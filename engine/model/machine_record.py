"""What was found out about this machine's kernels, kept so that no other start has to find it out again."""

import contextlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..home import cache_folder
from ..whole_file import whole_file
from .path_check import PathCheck


@dataclass(slots=True)
class MachineRecord:
    """Findings by their keys, valid for one `identity`: another processor, kernel or version begins anew.

    Whatever is wrong with the file, or with the disk, costs a check and nothing else.
    """

    identity: str
    checks: dict[str, PathCheck] = field(default_factory=dict)
    crossovers: dict[str, int] = field(default_factory=dict)  # rows of a step
    sharing: dict[str, tuple[int, int]] = field(default_factory=dict)  # rows and blocks from which on it pays

    @classmethod
    def load(cls, identity: str) -> "MachineRecord":
        try:
            stored = json.loads(_path().read_text())
            if stored["identity"] == identity:
                checks = {key: PathCheck(**fields) for key, fields in stored["checks"].items()}
                crossovers = {key: int(rows) for key, rows in stored["crossovers"].items()}
                sharing = {key: (int(rows), int(blocks)) for key, (rows, blocks) in stored["sharing"].items()}
                return cls(identity, checks, crossovers, sharing)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass
        return cls(identity)

    def save(self) -> None:
        """Of two processes that save at once, one is forgotten."""
        with contextlib.suppress(OSError), whole_file(_path()) as out:
            json.dump(asdict(self), out, indent=1)


def _path() -> Path:
    return cache_folder() / "machine.json"

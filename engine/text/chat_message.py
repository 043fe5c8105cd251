"""One message of a chat, as a chat template sees it."""

from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import InvalidParameter

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """Who said what.

    token_ids: the ids a reply was generated as. Where they are given, `ChatEncoder` puts these very ids in place of
        `content`, so that the cache finds what the model itself wrote: encoding a sampled reply's text anew often gives
        other ids.

    Raises InvalidParameter for an unknown role: templates write roles between control tokens, so a free text there
    could forge a turn.
    """

    role: Role
    content: str
    token_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidParameter(f"role must be one of {', '.join(ROLES)}, not {self.role!r}")
        if not isinstance(self.content, str):
            raise InvalidParameter(f"content must be a string, not {type(self.content).__name__}")

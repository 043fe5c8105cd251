"""The options that say where a server may be reached and by whom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paged_chat.engine.number_range import NumberRange

from ..api.binding import LOOPBACK
from .number_option import number_option
from .path_option import named_path

DEFAULT_HOST = LOOPBACK


def _address(text: str) -> str:
    if not text:  # which would be every address of this machine
        raise typer.BadParameter("must be an address, such as 127.0.0.1, not ''")
    return text


def _account(text: str) -> str:
    """A refused one isn't shown: it holds a password."""
    name, _, password = text.partition(":")
    if not name.strip() or not password:
        raise typer.BadParameter("must be USER:PASSWORD, neither of them empty")
    return text


HostOption = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        parser=_address,
        help="Where to listen; others than this machine's own 127.0.0.1 need --auth or --auth-file.",
    ),
]
PortOption = Annotated[int, number_option(NumberRange(1, 65535), metavar="PORT", help="Which port to listen on")]
AuthOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="USER:PASSWORD",
        parser=_account,
        help="Who may log in; may be repeated. Each has their own chats.",
    ),
]
AuthFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=named_path, help="The same from a file, USER:PASSWORD on each line; read at the start."
    ),
]

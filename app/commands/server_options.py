"""The options that say where a server may be reached and by whom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paged_chat.engine.number_range import NumberRange

from ..api.accounts import Accounts, read_accounts
from ..api.binding import LOOPBACK, check_address
from .number_option import number_option

DEFAULT_HOST = LOOPBACK

HostOption = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", help="Where to listen; others than this machine's own 127.0.0.1 need --auth or --auth-file."
    ),
]
PortOption = Annotated[int, number_option(NumberRange(1, 65535), metavar="PORT", help="Which port to listen on")]
AuthOption = Annotated[
    list[str] | None,
    typer.Option(metavar="USER:PASSWORD", help="Who may log in; may be repeated. Each has their own chats."),
]
AuthFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The same from a file, USER:PASSWORD on each line.")
]


def accounts_for(host: str, port: int, auth: list[str] | None, auth_file: Path | None) -> Accounts:
    """Who may log in to a server that is about to be started at this address.

    Raises AccountsRefused, and AddressRefused where nothing can be served, or nothing without accounts.
    """
    accounts = read_accounts(auth or (), auth_file)
    check_address(host, port, has_accounts=len(accounts) > 0)
    return accounts

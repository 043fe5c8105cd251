"""What `web` and `serve` do alike once their options are read."""

from __future__ import annotations

import threading
from pathlib import Path

import typer

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.model import catalog

from ..api.accounts import Accounts, read_accounts
from ..api.binding import NoSuchAddress
from ..api.server_record import ServerRecord, announced
from ..api.taken_port import check_reachable
from .interrupt import wait_for


def accounts_for(
    config: EngineConfig, host: str, port: int, auth: list[str] | None, auth_file: Path | None
) -> Accounts:
    """Who may log in to a server that is about to be started at this address.

    Raises now what would end it later: ModelNotFound for a name of no model, AccountsRefused, AddressRefused where
    nothing can be served, or nothing without accounts, and BadParameter for what is no address.
    """
    catalog.check_name(config.model)
    accounts = read_accounts(auth or (), auth_file)
    try:
        check_reachable(host, port, has_accounts=len(accounts) > 0)
    except NoSuchAddress as error:
        raise typer.BadParameter(str(error)) from error
    return accounts


def serve_until(ended: threading.Event, record: ServerRecord, words: str) -> None:
    """Lets others of this person find the server that has been started, says where it is, and waits."""
    with announced(record):
        typer.echo(f"{words} (Ctrl-C ends it)")
        wait_for(ended)

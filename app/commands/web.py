"""Open a page to chat on, in the browser."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from paged_chat.engine.config import DEFAULT_MODEL, EngineConfig

from ..imports import import_page
from .engine_options import (
    DeviceOption,
    DtypeOption,
    KernelsOption,
    ModelOption,
    NumBlocksOption,
    WeightsOption,
    from_options,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7860


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def web(
    model: ModelOption = DEFAULT_MODEL,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where to listen; others than this machine's own 127.0.0.1 need --auth or --auth-file.",
        ),
    ] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Which port to listen on.", min=1, max=65535)
    ] = DEFAULT_PORT,
    auth: Annotated[
        list[str] | None,
        typer.Option(metavar="USER:PASSWORD", help="Who may log in; may be repeated. Each has their own chats."),
    ] = None,
    auth_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same from a file, USER:PASSWORD on each line.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
) -> None:
    """Open a page to chat on, in the browser."""
    from ..web.accounts import read_accounts
    from ..web.binding import check_address

    config = from_options(
        lambda: EngineConfig(
            model=model, device=device, dtype=dtype, weights=weights, kernels=kernels, num_blocks=num_blocks
        )
    )
    accounts = read_accounts(auth or (), auth_file)
    check_address(host, port, has_accounts=len(accounts) > 0)

    # Once the options are known to be good: the page takes seconds to import. The model's turn comes after it.
    import_page()
    from ..service.chat_service import ChatService
    from ..store.store import Store, default_path
    from ..web.server import WebServer

    with Store(default_path()) as store, ChatService(store, config=config) as service:
        server = WebServer(service, host, port, accounts)
        try:
            typer.echo(f"paged-chat is at {server.url} (Ctrl-C ends it)")
            if open_browser:
                typer.launch(server.url)
            _wait_for_signal()
        finally:
            server.close()


def _wait_for_signal() -> None:
    """Until Ctrl-C, or the system asks the process to end."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(1.0):  # a wait without a limit couldn't be interrupted everywhere
        pass

"""Open a page to chat on, in the browser."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paged_chat.engine.config import DEFAULT_MODEL

from ..api.binding import WEB_PORT
from ..imports import import_page
from .engine_options import (
    DeviceOption,
    DtypeOption,
    KernelsOption,
    ModelOption,
    NumBlocksOption,
    WeightsOption,
    config_from,
)
from .help_option import HELP_OPTIONS
from .interrupt import end_on_signal
from .server_options import DEFAULT_HOST, AuthFileOption, AuthOption, HostOption, PortOption
from .server_start import accounts_for, serve_until

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(context_settings=HELP_OPTIONS)
def web(
    model: ModelOption = DEFAULT_MODEL,
    host: HostOption = DEFAULT_HOST,
    port: PortOption = WEB_PORT,
    auth: AuthOption = None,
    auth_file: AuthFileOption = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
) -> None:
    """Open a page to chat on, in the browser."""
    config = config_from(model, device, dtype, weights, kernels, num_blocks)
    accounts = accounts_for(config, host, port, auth, auth_file)

    if sys.stderr.isatty():
        typer.secho("paged-chat is starting …", dim=True, err=True)
    # Once the options are known to be good: the page takes seconds to import. The model's turn comes after it.
    import_page()
    from ..api.server_record import record_of
    from ..service.chat_service import ChatService
    from ..store.store import Store, default_path
    from ..web.server import WebServer

    with Store(default_path()) as store, ChatService(store, config=config) as service:
        record = record_of("web", host, port)
        server = WebServer(service, host, port, accounts, record.token)
        try:
            if open_browser:
                typer.launch(server.url)
            serve_until(end_on_signal(), record, f"paged-chat is at {server.url}")
        finally:
            service.close()  # first: what replies have so far is saved, and who is being answered is told of the end
            server.close()

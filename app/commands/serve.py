"""Serve the engine to other programs, by OpenAI's API."""

from __future__ import annotations

import threading
from contextlib import closing

import typer

from paged_chat.engine.config import DEFAULT_MODEL

from ..api.binding import SERVE_PORT
from ..errors import EngineUnavailable
from ..service.chat_events import EngineStatus
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
def serve(
    model: ModelOption = DEFAULT_MODEL,
    host: HostOption = DEFAULT_HOST,
    port: PortOption = SERVE_PORT,
    auth: AuthOption = None,
    auth_file: AuthFileOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
) -> None:
    """Serve the engine to other programs, by OpenAI's API."""
    config = config_from(model, device, dtype, weights, kernels, num_blocks)
    accounts = accounts_for(config, host, port, auth, auth_file)

    from ..api.routes import api_routes
    from ..api.server import ApiServer
    from ..api.server_record import record_of
    from ..service.engine_host import EngineHost
    from ..service.own_engine import open_own_engine

    ended = end_on_signal()
    with closing(EngineHost(open_own_engine, config, lambda status: _tell(status, ended))) as engine_host:
        record = record_of("serve", host, port)
        server = ApiServer(api_routes(engine_host, accounts, record.token), host, port)
        try:
            serve_until(ended, record, f"paged-chat serves {model} at {server.url}/v1")
            status = engine_host.status
        finally:
            engine_host.close()  # first: who is being answered is told of the end, and has nothing more to wait for
            server.close()
        if status.phase == "failed":
            raise EngineUnavailable(status.error or "")


def _tell(status: EngineStatus, ended: threading.Event) -> None:
    """How the model stands; without one there is nothing to serve."""
    if status.phase == "ready":
        typer.echo(f"the model is loaded ({status.load_s:.1f} s); prompt and reply may have {status.window:,} tokens")
    elif status.phase == "failed":
        ended.set()

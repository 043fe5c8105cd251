"""Whose engine a command uses: one of its own, or that of a `paged-chat web` or `serve` that runs already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from paged_chat.engine.config import EngineConfig

from ..engine_mode import EngineMode
from ..errors import EngineUnavailable
from .choice_option import choice_option
from .progress import load_progress

if TYPE_CHECKING:
    from ..api.remote_steps import RemoteSteps
    from ..api.running_server import RunningServer

OTHERWISE = "leave --engine out to load a model for this command alone"

EngineOption = Annotated[
    EngineMode,
    choice_option(
        EngineMode,
        metavar="WHICH",
        help="own loads a model, shared uses that of a running paged-chat web or serve, auto does so if it's the same.",
    ),
]


def find_server(mode: EngineMode, config: EngineConfig, *, is_model_given: bool) -> RunningServer | None:
    """The server whose engine is to be used; None for an engine of our own.

    config: what an engine of our own would be. is_model_given: whether its model was asked for, or is the default.
    Raises EngineUnavailable where a shared engine was asked for and there is none with that model, and
    typer.BadParameter where it was asked for with options that only an engine of our own can have.
    """
    if mode is EngineMode.OWN:
        return None
    plain = EngineConfig(model=config.model, max_num_seqs=config.max_num_seqs)
    if config != plain and mode is EngineMode.AUTO:
        return None
    if config != plain:
        raise typer.BadParameter(
            "--engine shared takes an engine as it runs: --device, --dtype, --weights, --kernels and --num-blocks "
            f"can't be chosen; {OTHERWISE}"
        )
    from ..api.running_server import NO_SERVER, server_for

    server = server_for(config.model)
    if server is not None and server.has_model(config.model):
        return server
    if mode is EngineMode.AUTO:
        return None
    if server is None:
        raise EngineUnavailable(f"{NO_SERVER}, or {OTHERWISE}")
    if is_model_given:
        raise EngineUnavailable(f"{server.words} has {server.model} loaded, not {config.model}: {OTHERWISE}")
    return server


@contextmanager
def open_shared(server: RunningServer) -> Iterator[RemoteSteps]:
    """Its engine, once it has loaded its model; a load that goes on is shown on stderr where that is a terminal."""
    from ..api.remote_steps import RemoteSteps

    with load_progress() as on_progress:
        served = server.open(on_progress)
        try:
            steps = RemoteSteps(served)
        except BaseException:
            served.close()
            raise
    try:
        yield steps
    finally:
        served.close()

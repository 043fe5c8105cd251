"""Whose engine a command uses: one of its own, or that of a `paged-chat web` or `serve` that runs already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from paged_chat.engine.config import EngineConfig

from ..errors import EngineUnavailable
from ..known_models import is_same_model
from .choice_option import choice_option
from .progress import load_progress

if TYPE_CHECKING:
    from ..api.remote_steps import RemoteSteps
    from ..api.running_server import RunningServer

OTHERWISE = "leave --engine out to load a model for this command alone"


class EngineChoice(StrEnum):
    """What `--engine` may be."""

    OWN = "own"
    SHARED = "shared"
    AUTO = "auto"


EngineOption = Annotated[
    EngineChoice,
    choice_option(
        EngineChoice,
        metavar="WHICH",
        help="own loads a model, shared uses that of a running paged-chat web or serve, auto does so if it's the same.",
    ),
]


def find_server(choice: EngineChoice, config: EngineConfig, *, is_model_given: bool) -> RunningServer | None:
    """The server whose engine is to be used; None for an engine of our own.

    config: what an engine of our own would be. is_model_given: whether its model was asked for, or is the default.
    Raises EngineUnavailable where a shared engine was asked for and there is none with that model, and
    typer.BadParameter where it was asked for with options that only an engine of our own can have.
    """
    if choice is EngineChoice.OWN:
        return None
    plain = EngineConfig(model=config.model, max_num_seqs=config.max_num_seqs)
    if config != plain and choice is EngineChoice.AUTO:
        return None
    if config != plain:
        raise typer.BadParameter(
            "--engine shared takes an engine as it runs: --device, --dtype, --weights, --kernels and --num-blocks "
            f"can't be chosen; {OTHERWISE}"
        )
    from ..api.running_server import find_servers

    servers = find_servers()
    same = [server for server in servers if is_same_model(server.model, config.model)]
    if same or choice is EngineChoice.AUTO:
        return next(iter(same), None)
    if not servers:
        raise EngineUnavailable(f"no `paged-chat web` or `serve` of yours runs here: start one, or {OTHERWISE}")
    if is_model_given:
        raise EngineUnavailable(f"{servers[0].words} has {servers[0].model} loaded, not {config.model}: {OTHERWISE}")
    return servers[0]


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

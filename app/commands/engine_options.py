"""The options that choose a model and how it runs, the same in every command, and the engine they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from paged_chat.engine.config import DEFAULT_MODEL as DEFAULT_MODEL
from paged_chat.engine.config import DEVICES, DTYPES, KERNELS, RANGES, WEIGHTS, EngineConfig
from paged_chat.engine.errors import InvalidParameter

from ..imports import import_engine
from .number_option import number_option
from .progress import load_progress

if TYPE_CHECKING:
    from paged_chat.engine import Engine

T = TypeVar("T")
FIELD = re.compile(r"\b[a-z]+_[a-z_]+\b")  # what can't be an English word

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help=f"Catalogue name, folder in Hugging Face layout, .gguf file, or hub id. Default: {DEFAULT_MODEL}.",
        show_default=False,
    ),
]
DeviceOption = Annotated[str, typer.Option(metavar="DEVICE", help=f"{', '.join(DEVICES)} or cuda:N.")]
DtypeOption = Annotated[str, typer.Option(metavar="DTYPE", help=f"Of the computation: {', '.join(DTYPES)}.")]
WeightsOption = Annotated[str, typer.Option(metavar="FORMAT", help=f"Of the linear layers: {', '.join(WEIGHTS)}.")]
KernelsOption = Annotated[
    str, typer.Option(metavar="NAME", help=f"Which implementation of the kernels runs: {', '.join(KERNELS)}.")
]
NumBlocksOption = Annotated[
    int | None,
    number_option(
        RANGES["num_blocks"],
        metavar="COUNT",
        help="KV blocks in the pool; otherwise as many as fit the memory that is free",
    ),
]


def from_options(build: Callable[[], T]) -> T:
    """What `build` makes of the options; a value out of range becomes a usage error that names the option."""
    try:
        return build()
    except InvalidParameter as error:
        field, _, rest = str(error).partition(" ")
        raise typer.BadParameter(f"{_option(field)} {FIELD.sub(lambda name: _option(name[0]), rest)}") from error


def _option(field: str) -> str:
    return {"n": "-n"}.get(field, "--" + field.replace("_", "-"))


def config_from(
    model: str, device: str, dtype: str, weights: str, kernels: str, num_blocks: int | None, **others: Any
) -> EngineConfig:
    """The configuration that the options above ask for, and other fields; a value out of range is a usage error."""
    return from_options(
        lambda: EngineConfig(
            model=model, device=device, dtype=dtype, weights=weights, kernels=kernels, num_blocks=num_blocks, **others
        )
    )


@contextmanager
def open_engine(config: EngineConfig) -> Iterator[Engine]:
    """An engine with its model loaded, the loading shown on stderr where that is a terminal."""
    import_engine()  # only once the options are known to be good
    from paged_chat.engine import Engine

    with load_progress() as on_progress:
        engine = Engine(config, on_progress=on_progress)
    with engine:
        yield engine

"""Chat in the terminal: chats, streaming replies, and the cache beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from paged_chat.app.commands.choice_option import choice_option
from paged_chat.app.commands.engine_options import (
    DEFAULT_MODEL,
    DeviceOption,
    DtypeOption,
    KernelsOption,
    ModelOption,
    NumBlocksOption,
    WeightsOption,
    config_from,
)
from paged_chat.app.commands.help_option import HELP_OPTIONS
from paged_chat.app.commands.interrupt import ignore_signals
from paged_chat.app.engine_mode import EngineMode
from paged_chat.app.errors import PagedChatError

if TYPE_CHECKING:
    from paged_chat.app.api.running_server import RunningServer
    from paged_chat.app.service.chat_service import ChatService

app = typer.Typer(add_completion=False, rich_markup_mode=None)

KEYMAP_FILE = "keymap.toml"
CHOICE_FILE = "tui-engine.txt"


class NoTerminal(PagedChatError):
    """There is nothing to draw on, or nobody who could type."""


@app.command(context_settings=HELP_OPTIONS)
def tui(
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
    engine: Annotated[
        EngineMode,
        choice_option(
            EngineMode,
            metavar="WHICH",
            help="own loads a model here, shared uses that of a running paged-chat web or serve, auto asks.",
        ),
    ] = EngineMode.AUTO,
) -> None:
    """Chat in the terminal: chats, streaming replies, and the cache beside them."""
    config = config_from(model, device, dtype, weights, kernels, num_blocks)

    @contextmanager
    def open_chats(server: RunningServer | None) -> Iterator[ChatService]:
        from paged_chat.app.service.chat_service import ChatService
        from paged_chat.app.store.store import Store

        with Store(default_path()) as store, ChatService(store, config=config, server=server) as service:
            yield service

    from paged_chat.app.store.default_path import default_path

    from .app import PagedChatTui
    from .engine_choice import EngineChoice

    choice = EngineChoice(engine, model, default_path().with_name(CHOICE_FILE))
    if engine is EngineMode.SHARED:
        choice.look()  # where there is none, that is said before the screen takes the terminal
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # it is on the latter that Textual draws
        raise NoTerminal(
            "paged-chat tui needs a terminal, and its input or its error output is a file or a pipe: run it in a "
            "terminal, or use `paged-chat ask` in scripts"
        )
    screen = PagedChatTui(open_chats, default_path().with_name(KEYMAP_FILE), choice)
    try:
        screen.run()
    finally:
        ignore_signals()
        screen.close_chats()
    raise typer.Exit(screen.return_code or 0)

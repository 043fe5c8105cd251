"""Chat in the terminal: chats, streaming replies, and the cache beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

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

if TYPE_CHECKING:
    from paged_chat.app.service.chat_service import ChatService

app = typer.Typer(add_completion=False, rich_markup_mode=None)

KEYMAP_FILE = "keymap.toml"


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def tui(
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
) -> None:
    """Chat in the terminal: chats, streaming replies, and the cache beside them."""
    config = config_from(model, device, dtype, weights, kernels, num_blocks)

    @contextmanager
    def open_chats() -> Iterator[ChatService]:
        from paged_chat.app.service.chat_service import ChatService
        from paged_chat.app.store.store import Store, default_path

        with Store(default_path()) as store, ChatService(store, config=config) as service:
            yield service

    from paged_chat.app.store.store import default_path

    from .app import PagedChatTui

    PagedChatTui(open_chats, default_path().with_name(KEYMAP_FILE)).run()

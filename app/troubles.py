"""What commonly keeps the program from working here, or makes it slow, and what to do about each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paged_chat.engine.compiled_kernels import folder_of_numba
from paged_chat.engine.errors import ModelFileInvalid, PagedChatError
from paged_chat.engine.hardware import Device, has_wide_vectors
from paged_chat.engine.home import can_write, home
from paged_chat.engine.model import catalog
from paged_chat.engine.model.file_check import check_files, remedy_of_broken_file

from .api.binding import LOOPBACK, SERVE_PORT, WEB_PORT
from .api.server_record import records
from .api.taken_port import free_port, is_free, use_of, words_of
from .counted import megabytes
from .store.database import look_at
from .store.default_path import default_path

DEFAULT_PORTS = {"web": WEB_PORT, "serve": SERVE_PORT}
PROGRAM_BYTES = 500 * 2**20  # what the program itself takes
POOL_BYTES = 512 * 2**20  # the least that is left for KV blocks by default
SPARE_DISK_BYTES = 500 * 10**6
STORE_BYTES = 2 * 10**6  # less than this, and the chats' file can't even be opened


@dataclass(frozen=True, slots=True)
class Trouble:
    """`is_fault`: it keeps the program from working; otherwise only something of it."""

    words: str
    remedy: str
    is_fault: bool = False


def find_troubles(model: str, device: Device | None) -> Iterator[Trouble]:
    """device: the one that the model would run on; None where the one that was asked for isn't there.

    Everything is looked at and nothing is changed.
    """
    folder = home()
    if not os.path.isdir(folder) or not can_write(folder):
        yield unwritable_home(folder)
        return  # what follows is about what lies in it
    yield from database_troubles()
    yield from model_troubles(model, device, folder)
    yield from server_troubles()
    if device is not None and device.name == "cpu":
        yield from processor_troubles()


def unwritable_home(folder: Path) -> Trouble:
    fault = "can't be written to" if os.path.isdir(folder) else "can't be made"
    return Trouble(
        f"the home folder {folder} {fault}",
        "name another one with --home or PAGED_CHAT_HOME, or change the rights to it",
        is_fault=True,
    )


def database_troubles() -> Iterator[Trouble]:
    try:
        look_at(default_path())
    except PagedChatError as error:
        words, _, remedy = str(error).rpartition(": ")  # each of them ends with what to do
        yield Trouble(words, remedy, is_fault=True)


def model_troubles(model: str, device: Device | None, folder: Path) -> Iterator[Trouble]:
    free_disk = shutil.disk_usage(folder).free
    try:
        catalog.model_path(model)
    except PagedChatError:
        yield from _trouble_of_fetching(model, free_disk, folder)
        return
    if free_disk < SPARE_DISK_BYTES:
        yield Trouble(
            f"only {megabytes(free_disk)} are free on the disk of {folder}",
            "make room, or chats can't be saved soon; `paged-chat models rm` removes a model",
            is_fault=free_disk < STORE_BYTES,
        )
    try:
        num_bytes = check_files(model)
    except ModelFileInvalid as error:
        yield Trouble(str(error), remedy_of_broken_file(model), is_fault=True)
        return
    except PagedChatError as error:
        yield Trouble(str(error), "choose another model with --model", is_fault=True)
        return
    if device is not None and device.free_bytes is not None:
        yield from _trouble_of_memory(model, num_bytes, device.free_bytes, device.name)


def _trouble_of_fetching(model: str, free_disk: int, folder: Path) -> Iterator[Trouble]:
    try:
        catalog.check_name(model)
    except PagedChatError as error:
        yield Trouble(str(error), "`paged-chat models list` shows the names", is_fault=True)
        return
    entry = catalog.catalog_entry(model)
    needed = SPARE_DISK_BYTES if entry is None else entry.file.bytes_to_fetch
    if free_disk < needed:
        yield Trouble(
            f"only {megabytes(free_disk)} are free on the disk of {folder}, and fetching {model} takes "
            f"{'more' if entry is None else megabytes(needed)}",
            "make room, or set PAGED_CHAT_HOME to a folder on a larger disk",
            is_fault=True,
        )


def _trouble_of_memory(model: str, num_bytes: int, free_bytes: int, device: str) -> Iterator[Trouble]:
    program_bytes = PROGRAM_BYTES if device == "cpu" else 0
    needed = num_bytes + program_bytes + POOL_BYTES
    if free_bytes < needed:
        yield Trouble(
            f"{megabytes(free_bytes)} of memory are free on {device}, and {model} takes about {megabytes(needed)} "
            f"with the program and {megabytes(POOL_BYTES)} of KV blocks",
            "close other programs, choose a smaller model, or keep fewer blocks with --num-blocks",
            is_fault=free_bytes < num_bytes + program_bytes,
        )


def server_troubles() -> Iterator[Trouble]:
    """Servers of this person that run already, and default ports that other programs have."""
    running = records()
    taken = {record.address for record in running}
    for record in running:
        yield Trouble(words_of(record), use_of(record))
    for command, port in DEFAULT_PORTS.items():
        if f"{LOOPBACK}:{port}" not in taken and not is_free(port):
            yield Trouble(
                f"another program has port {port} of {LOOPBACK}, which `paged-chat {command}` takes by default",
                f"start it with `paged-chat {command} --port {free_port()}`",
            )


def processor_troubles() -> Iterator[Trouble]:
    if not has_wide_vectors():
        yield Trouble(
            "this processor has neither AVX2 nor AVX-512 nor NEON, so replies come slowly",
            "take a small model, such as the default one, or a machine of the last ten years",
        )
    if folder_of_numba() is None:
        where = "NUMBA_CACHE_DIR" if os.environ.get("NUMBA_CACHE_DIR") else "the program's folder and the user's cache"
        yield Trouble(
            f"Numba can keep compiled kernels nowhere: {where} can't be written",
            f"set NUMBA_CACHE_DIR to a folder that can; until then {home() / 'cache' / 'kernels'} serves",
        )

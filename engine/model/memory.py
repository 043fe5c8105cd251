"""How much memory is free, and what is said where a model doesn't fit it."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from ..errors import OutOfMemory
from .memory_limits import free_system_memory


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be used on a device; None where the system doesn't say.

    On Linux the least that the machine, a container or `ulimit -v` leaves, file caches counted as free.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return free_system_memory()


def check_fits(what: str, num_bytes: int, device: torch.device) -> None:
    """Raises OutOfMemory, with both numbers, before anything is allocated."""
    free = free_memory(device)
    if free is not None and num_bytes > free:
        raise OutOfMemory(
            f"{what} needs {num_bytes / 2**20:,.0f} MiB on {device}, but {free / 2**20:,.0f} MiB are free; "
            "choose a smaller model or a smaller dtype, or close other programs"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused, whoever made it: Python, numpy, or torch on a CPU or a GPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch's words on a CPU
    )


@contextmanager
def refusal_of_memory(what: str) -> Iterator[None]:
    """Raises OutOfMemory in the place of what an allocation raises that is refused in here."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"memory ran out while {what}: choose a smaller model or a smaller dtype, or close other programs ({error})"
        ) from error


def return_freed_memory() -> None:
    """Hands to the system what was freed here. glibc keeps it otherwise, for each thread that has had some.

    Takes milliseconds, and what is allocated next must be fetched anew: for the end of something large. Elsewhere than
    on glibc nothing happens.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)

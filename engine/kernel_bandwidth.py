"""How fast a GPU moves memory: where a kernel only waits for memory, its share of a copy's speed says it all."""

from collections.abc import Callable

import torch

COPY_BYTES = 2**30
QUEUED_CALLS = 20


def gb_per_s(num_bytes: int, call: Callable[[], object], device: torch.device) -> float:
    """10^9 bytes a second of a call that moves so many.

    Calls are queued one behind the other, so that what is measured is the device and not the launches.
    """
    return num_bytes / 1e6 / _ms_per_call(call, device)


def copy_gb_per_s(device: torch.device) -> float:
    """Of a copy on the device itself; each byte is read once and written once, and both count."""
    num_bytes = min(COPY_BYTES, torch.cuda.mem_get_info(device)[0] // 4)
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return gb_per_s(2 * num_bytes, lambda: target.copy_(source), device)


def _ms_per_call(call: Callable[[], object], device: torch.device) -> float:
    with torch.cuda.device(device):
        for _ in range(3):
            call()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(QUEUED_CALLS):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / QUEUED_CALLS

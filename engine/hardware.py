"""What this machine computes with: its devices, their memory, and what "auto" chooses on it."""

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from .config import EngineConfig
from .counted import counted
from .model.compute import choose_compute
from .model.memory import free_memory
from .model.path_choice import known_checks, sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A processor or GPU; `free_bytes` is None where the system doesn't say."""

    name: str  # as `EngineConfig.device` takes it
    description: str
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """What the values "auto" of a configuration become on this machine."""

    device: str
    dtype: str
    kernels: str


def list_devices() -> list[Device]:
    """The processor, then each GPU that torch sees."""
    cpu = torch.device("cpu")
    instructions = torch.backends.cpu.get_cpu_capability()
    description = f"{_processor_name()}, {instructions}, {counted(torch.get_num_threads(), 'thread')}"
    devices = [Device(name="cpu", description=description, free_bytes=free_memory(cpu))]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            Device(
                name=f"cuda:{index}",
                description=f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB",
                free_bytes=free_memory(torch.device("cuda", index)),
            )
        )
    return devices


def resolve_config(config: EngineConfig) -> ResolvedConfig:
    """Raises InvalidParameter for a device or kernels that this machine doesn't have."""
    compute = choose_compute(config)
    return ResolvedConfig(str(compute.device), str(compute.dtype).removeprefix("torch."), compute.backend.name)


def has_wide_vectors() -> bool:
    """Whether the processor computes with vectors that our kernels are fast with."""
    from paged_chat.kernels.cpu.simd import FEATURES

    return any(FEATURES.get(feature) for feature in ("avx512f", "avx2", "neon"))


def kernel_paths() -> tuple[list[str], list[str]]:
    """(ways to compute that were checked on this machine and pass, what is wrong with the rest), a line each.

    A path is checked when a model that uses it is first loaded; nothing is checked here.
    """
    from paged_chat.kernels.cpu.flash_operator import why_no_flash

    checks = known_checks()
    wrong = [sentence(check) for check in checks if not check.passed]
    if (missing := why_no_flash()) is not None:
        wrong.append(f"{missing}: long prompts over cached ones are computed with masks instead, which is slower")
    return [str(check) for check in checks if check.passed], wrong


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

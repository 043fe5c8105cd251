"""What computes: the device, the dtype and the kernels that a configuration means on this machine."""

from dataclasses import dataclass

import torch

from ...kernels import Backend, choose_backend
from ..config import EngineConfig
from ..errors import InvalidParameter

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Compute:
    device: torch.device
    dtype: torch.dtype
    backend: Backend


def choose_compute(config: EngineConfig) -> Compute:
    """Raises InvalidParameter for a device or kernels that this machine doesn't have."""
    device = choose_device(config.device)
    try:
        backend = choose_backend(config.kernels, device)
    except ValueError as error:
        raise InvalidParameter(str(error)) from error
    return Compute(device, choose_dtype(config.dtype, device), backend)


def choose_device(name: str) -> torch.device:
    """Raises InvalidParameter where the device isn't there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidParameter(
            f"device {name!r} isn't there: torch sees {torch.cuda.device_count()} CUDA devices; choose auto or cpu, or "
            "a CUDA device that `paged-chat doctor` shows"
        )
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """ "auto" is bfloat16 on GPUs, and on processors that multiply it in hardware; float32 elsewhere."""
    if name != "auto":
        return DTYPES[name]
    return torch.bfloat16 if device.type == "cuda" or cpu_multiplies_bfloat16() else torch.float32


def cpu_multiplies_bfloat16() -> bool:
    """In hardware, that is."""
    # Torch's names for this are private: one that is gone counts as a processor without it, which is only slower.
    checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(check() for check in checks if check is not None)

"""Functions over tensors, in three implementations of one interface: `reference`, `cpu` and `gpu`.

Importing this package imports neither triton nor numba; a backend's own imports come with `choose_backend`.
"""

import importlib.util
import os

import torch

from .backend import Backend

BACKEND_NAMES = ("auto", "triton", "cpu", "reference")

__all__ = ["BACKEND_NAMES", "Backend", "choose_backend"]


def choose_backend(name: str, device: torch.device) -> Backend:
    """The kernels for a device; "auto" is triton on a CUDA (or ROCm) device and cpu on the processor.

    Raises:
        ValueError: an unknown name, or kernels that can't run on this device or machine.
    """
    if name not in BACKEND_NAMES:
        raise ValueError(f"unknown kernels {name!r}; choose one of {', '.join(BACKEND_NAMES)}")
    if name == "auto":
        if device.type not in ("cuda", "cpu"):
            raise ValueError(f"no fast kernels for device {device}; choose device cpu or cuda, or kernels reference")
        name = "triton" if device.type == "cuda" else "cpu"
    if name == "triton":
        return _choose_triton(device)
    if name == "cpu":
        if device.type != "cpu":
            raise ValueError(f"the cpu kernels can't run on device {device}; choose kernels triton or reference")
        from . import cpu

        return cpu
    from . import reference

    return reference


def _choose_triton(device: torch.device) -> Backend:
    if importlib.util.find_spec("triton") is None:
        raise ValueError("the triton kernels need the package triton; install it or choose kernels reference")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f"the triton kernels can't run on device {device}; choose kernels cpu, "
            "or set TRITON_INTERPRET=1 to run them slowly through triton's interpreter"
        )
    from . import gpu

    return gpu

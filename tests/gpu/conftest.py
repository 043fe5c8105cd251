"""The gate for a GPU: what the interpreter and compiling ahead can't show. Skipped where there is no CUDA device.

Run it on a machine that has one with `pytest tests/gpu`.
"""

import os
from pathlib import Path

import pytest
import torch


def _missing() -> str | None:
    """Why nothing here can run on this machine, or None where it can."""
    if not torch.cuda.is_available():
        return "needs a CUDA device, and torch sees none"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 keeps Triton's kernels off the device"
    return None


MISSING = _missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("gpu")
            if MISSING is not None:
                item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())

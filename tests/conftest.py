"""What every test stands on: a home of its own, tiny models built once, and the default model fetched once.

Everything is torch-free to import, so that the tests of the pure logic start at once.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Two worker processes with two threads each wait for each other on two cores. Must be set before torch is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

TinyModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder: no test sees a user's chats and models, or another test's."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PAGED_CHAT_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """`tiny_model(family, seed=0, **overrides)` gives the folder of a tiny model with random weights, built once."""
    built: dict[tuple[Any, ...], Path] = {}

    def build(family: str = "llama", seed: int = 0, **overrides: Any) -> Path:
        key = (family, seed, repr(sorted(overrides.items())))
        if key not in built:
            import tiny_models

            built[key] = tiny_models.build(family, tmp_path_factory.mktemp(family) / "model", seed=seed, **overrides)
        return built[key]

    return build

"""What every test stands on: a home of its own, tiny models built once, and the default model fetched once.

Nothing here imports torch, so that the tests of the pure logic start at once.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import HealthCheck, settings

# Two worker processes with two threads each wait for each other on two cores. Must be set before torch is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

# Under nohup the programs that are started here would take a closed terminal for nothing, as they should there.
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Speed is never asserted, of no example either.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

HOME_VARIABLE = "PAGED_CHAT_HOME"
# Holds the default model and what is prepared from it, across runs and checkouts.
SHARED_HOME = Path(os.environ.get("PAGED_CHAT_TEST_HOME") or platformdirs.user_cache_path("paged-chat-tests"))
DEFAULT_MODEL = "smollm2-135m"

TinyModel = Callable[..., Path]
_session_home = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    # For what runs outside of any one test, such as session fixtures: never the user's own home.
    config.stash[_session_home] = os.environ[HOME_VARIABLE] = tempfile.mkdtemp(prefix="paged-chat-home-")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_session_home], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "default_model_path" in getattr(item, "fixturenames", ()):
            item.add_marker("default_model")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder: no test sees a user's chats and models, or another test's."""
    folder = tmp_path / "home"
    monkeypatch.setenv(HOME_VARIABLE, str(folder))
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


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The file of the default model, fetched once for all runs on this machine."""
    from filelock import FileLock

    from paged_chat.engine.model.catalog import resolve

    SHARED_HOME.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, FileLock(SHARED_HOME / "fetch.lock"):
        patch.setenv(HOME_VARIABLE, str(SHARED_HOME))
        return resolve(DEFAULT_MODEL).path


@pytest.fixture
def default_model(default_model_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The default model's name, in a home where it is fetched already and what is prepared from it is kept."""
    monkeypatch.setenv(HOME_VARIABLE, str(SHARED_HOME))
    return DEFAULT_MODEL

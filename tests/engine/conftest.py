"""Engines over tiny models, closed when their test ends."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from engine_workshop import Workshop
    from paged_chat.engine import Engine

MakeEngine = Callable[..., Any]


@pytest.fixture
def make_engine(tiny_model: Callable[..., Any]) -> Iterator[MakeEngine]:
    """`make_engine(family="llama", seed=0, overrides={}, **config)`: on the CPU, invariants checked."""
    from paged_chat.engine import Engine, EngineConfig

    made: list[Engine] = []

    def make(family: str = "llama", seed: int = 0, overrides: dict[str, Any] | None = None, **config: Any) -> Engine:
        if "model" not in config:
            config["model"] = str(tiny_model(family, seed, **(overrides or {})))
        chosen = {
            "device": "cpu",
            "dtype": "float32",
            "weights": "dense",
            "kernels": "cpu",
            "num_blocks": 64,
            "watermark": 0.0,
            "check_integrity": True,
            **config,
        }
        made.append(Engine(EngineConfig(**chosen)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def engine(make_engine: MakeEngine) -> "Engine":
    """One of the tiny model, in float32."""
    return make_engine()


@pytest.fixture
def workshop() -> "Iterator[Workshop]":
    from engine_workshop import Workshop

    workshop = Workshop()
    yield workshop
    workshop.close()

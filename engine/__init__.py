"""Tokens in, tokens out: the engine's public names, each imported when it is first used.

Importing this package imports no torch, so a command line or a screen can build its configuration at once.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

# Read when torch is imported. Its OpenMP threads spin for each other, by default so long that one busy core elsewhere
# makes a long prompt 10 times slower (docs/performance.md).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

if TYPE_CHECKING:
    from .async_engine import AsyncEngine
    from .cache.block_detail import BlockDetail
    from .cache.prefix_probe import CachedCandidate, MissKind, PrefixMiss, PrefixProbe
    from .config import EngineConfig
    from .engine import Engine
    from .errors import PagedChatError
    from .events import BlockEvent, EventKind
    from .metrics import PoolSnapshot, TimeEstimate
    from .progress import LoadProgress
    from .request import (
        BeamPreview,
        BlockUse,
        RequestOutput,
        RequestStats,
        SampleOutput,
        SamplingParams,
        TokenDelta,
        TokenLogprobs,
    )
    from .text.chat_message import ChatMessage

_MODULES = {
    "AsyncEngine": "async_engine",
    "BeamPreview": "request",
    "BlockDetail": "cache.block_detail",
    "BlockEvent": "events",
    "BlockUse": "request",
    "CachedCandidate": "cache.prefix_probe",
    "ChatMessage": "text.chat_message",
    "Engine": "engine",
    "EngineConfig": "config",
    "EventKind": "events",
    "LoadProgress": "progress",
    "MissKind": "cache.prefix_probe",
    "PagedChatError": "errors",
    "PoolSnapshot": "metrics",
    "PrefixMiss": "cache.prefix_probe",
    "PrefixProbe": "cache.prefix_probe",
    "RequestOutput": "request",
    "RequestStats": "request",
    "SampleOutput": "request",
    "SamplingParams": "request",
    "TimeEstimate": "metrics",
    "TokenDelta": "request",
    "TokenLogprobs": "request",
}

__all__ = [
    "AsyncEngine",
    "BeamPreview",
    "BlockDetail",
    "BlockEvent",
    "BlockUse",
    "CachedCandidate",
    "ChatMessage",
    "Engine",
    "EngineConfig",
    "EventKind",
    "LoadProgress",
    "MissKind",
    "PagedChatError",
    "PoolSnapshot",
    "PrefixMiss",
    "PrefixProbe",
    "RequestOutput",
    "RequestStats",
    "SampleOutput",
    "SamplingParams",
    "TimeEstimate",
    "TokenDelta",
    "TokenLogprobs",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value

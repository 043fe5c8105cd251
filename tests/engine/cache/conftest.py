"""A cache over simulated memory."""

from collections.abc import Iterator

import pytest

from cache_driver import CacheDriver


@pytest.fixture
def cache() -> Iterator[CacheDriver]:
    """A pool of 11 blocks of 16 tokens and the null block; after each story every slot is checked."""
    cache = CacheDriver(num_blocks=12)
    yield cache
    cache.check()

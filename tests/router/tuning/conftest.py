"""A Valkey server of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from router.store.valkey import PrivateValkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state", max_memory_mib=64)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def redis(valkey: PrivateValkey) -> AsyncIterator[Redis]:
    client = Redis.from_url(valkey.url)
    yield client
    await client.aclose(close_connection_pool=True)

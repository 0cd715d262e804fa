"""A Valkey server for the tests of a module, empty for each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis import Redis as Blocking
from redis.asyncio import Redis

from router.store.valkey import PrivateValkey


@pytest.fixture
def valkey(shared_valkey: PrivateValkey) -> PrivateValkey:
    with Blocking.from_url(shared_valkey.url) as client:
        client.flushall()
    return shared_valkey


@pytest.fixture
async def redis(valkey: PrivateValkey) -> AsyncIterator[Redis]:
    client = Redis.from_url(valkey.url)
    yield client
    await client.aclose(close_connection_pool=True)

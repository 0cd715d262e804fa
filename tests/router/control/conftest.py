"""A real Valkey server, empty for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from router.control.store import ControlStore, open_store
from router.store.valkey import PrivateValkey


@pytest.fixture
def valkey(shared_valkey: PrivateValkey) -> PrivateValkey:
    return shared_valkey


@pytest.fixture
async def redis(valkey: PrivateValkey) -> AsyncIterator[AsyncRedis]:
    async with AsyncRedis.from_url(valkey.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def store(valkey: PrivateValkey) -> AsyncIterator[ControlStore]:
    with Redis.from_url(valkey.url) as client:
        client.flushall()
    found = open_store(valkey.url, password=None, timeout_s=5)
    yield found
    await found.close()

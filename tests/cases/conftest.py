"""Upstreams of the cases: they outlive the worker in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis

from router.store.valkey import PrivateValkey
from tests.support.upstream import ScriptedUpstream


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    """One upstream that serves model `g`."""
    async with ScriptedUpstream("g") as server:
        yield server


@pytest.fixture
async def other() -> AsyncIterator[ScriptedUpstream]:
    """A second one."""
    async with ScriptedUpstream("g") as server:
        yield server


@pytest.fixture(scope="module")
def shared_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateValkey]:
    """A Valkey server for all tests of a module."""
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(shared_valkey: PrivateValkey) -> str:
    """Its URL; it is empty."""
    with Redis.from_url(shared_valkey.url) as client:
        client.flushall()
    return shared_valkey.url

"""Upstreams of the cases: they outlive the worker in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

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

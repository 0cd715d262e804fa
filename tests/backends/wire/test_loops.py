"""The client works on asyncio's own loop and on uvloop, whose transports are no subclass of asyncio's."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from backends.wire import Limits, Pool
from tests.support.upstream import ScriptedUpstream


async def _twice_on_one_connection() -> None:
    async with ScriptedUpstream() as up:
        pool = Pool(up.url)
        for _ in range(2):
            connection = await pool.request(b"GET", b"/version", [], b"", Limits())
            assert await connection.read_all(1000) == b'{"version":"0.32.0"}'
            pool.release(connection)
        assert up.accepted == 1
        pool.close()
        await up.until(lambda: up.open_connections == 0)


async def _a_stalled_loop_is_not_the_replicas_fault() -> None:
    async with ScriptedUpstream() as up:
        pool = Pool(up.url)
        loop = asyncio.get_running_loop()
        opening = asyncio.ensure_future(pool.connect(0.1))
        loop.call_soon(time.sleep, 0.3)
        connection = await opening
        pool.release(connection)
        pool.close()


def test_asyncio_loop() -> None:
    asyncio.run(_twice_on_one_connection())
    asyncio.run(_a_stalled_loop_is_not_the_replicas_fault())


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run on Windows")
def test_uvloop() -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_twice_on_one_connection())
        runner.run(_a_stalled_loop_is_not_the_replicas_fault())

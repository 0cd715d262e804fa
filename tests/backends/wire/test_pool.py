"""Kept connections: reused, found stale, aged, bounded, never leaked."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator

import pytest

from backends.wire import Limits, Pool, UpstreamError
from backends.wire import connection as connection_module
from tests.conftest import until
from tests.support.upstream import Close, Hang, ScriptedUpstream, Send, Wait
from tests.support.wire import json_response

LONG = Limits(5, 5, 5, 5)


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as server:
        server.always([Send(json_response(b"{}"))])
        yield server


async def once(pool: Pool, limits: Limits = LONG) -> bytes:
    connection = await pool.request(b"POST", b"/v1/x", [(b"x-a", b"1")], b"{}", limits)
    try:
        return await connection.read_all(1000)
    finally:
        pool.release(connection)


async def test_one_connection_serves_one_request_after_the_other(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    for _ in range(20):
        await once(pool)
    assert up.accepted == 1
    assert pool.idle == 1
    pool.close()


async def test_requests_at_once_get_a_connection_each_and_leave_them_for_the_next(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    await asyncio.gather(*(once(pool) for _ in range(30)))
    first = up.accepted
    await asyncio.gather(*(once(pool) for _ in range(30)))
    assert up.accepted == first
    assert pool.idle == first


async def test_the_head_is_plain_http(up: ScriptedUpstream) -> None:
    pool = Pool(up.url + "/base/")
    await once(pool)
    exchange = await up.exchange()
    assert exchange.head == (
        b"POST /base/v1/x HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n" % up.port
    )


def test_credentials_of_a_url_stay_out_of_the_host_header() -> None:
    pool = Pool("http://user:secret@127.0.0.1:9")
    assert b"secret" not in pool.head(b"GET", b"/", [], 0)


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://h", "http://", "unix:///x"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not an http"):
        Pool(url)


async def test_a_connection_closed_while_kept_is_not_taken(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    up.enqueue([Send(json_response(b"{}")), Close()])
    await once(pool)
    await until(lambda: pool.idle == 0)
    await once(pool)
    assert up.accepted == 2


async def test_a_connection_found_stale_says_that_sending_again_is_safe(
    up: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(up.url)
    await once(pool)
    up.enqueue([Close()])
    connection = await pool.request(b"POST", b"/v1/x", [], b"{}", LONG)
    with pytest.raises(UpstreamError) as caught:
        await connection.read_all(10)
    assert caught.value.stale
    monkeypatch.setattr(connection_module, "STALE_S", 0.0)
    await once(pool)
    up.enqueue([Close()])
    at_work = await pool.request(b"POST", b"/v1/x", [], b"{}", LONG)
    with pytest.raises(UpstreamError) as caught:
        await at_work.read_all(10)
    assert at_work.reused
    assert not caught.value.stale
    fresh = await pool.connect(1)
    up.enqueue([Close()])
    fresh.send(pool.head(b"POST", b"/v1/x", [], 2) + b"{}", LONG)
    with pytest.raises(UpstreamError) as caught:
        await fresh.read_all(10)
    assert not caught.value.stale


async def test_kept_connections_age(up: ScriptedUpstream) -> None:
    pool = Pool(up.url, keep_alive_s=0.0)
    await once(pool)
    assert pool.idle == 1
    await asyncio.sleep(0.002)
    await once(pool)
    assert up.accepted == 2


async def test_no_more_are_kept_than_asked_for(up: ScriptedUpstream) -> None:
    pool = Pool(up.url, max_idle=3)
    await asyncio.gather(*(once(pool) for _ in range(10)))
    assert pool.idle <= 3
    await up.until(lambda: up.open_connections <= 3)


async def test_an_unfinished_answer_is_never_reused(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    go = asyncio.Event()
    up.enqueue([Send(json_response(b"{}")[:-1]), Wait(go)])
    connection = await pool.request(b"POST", b"/v1/x", [], b"{}", LONG)
    while connection.headers is None:
        await connection.wait()
    pool.release(connection)
    assert pool.idle == 0
    exchange = await up.exchange()
    await asyncio.wait_for(exchange.closed.wait(), 60)


async def test_a_connection_that_the_server_wants_closed_is_closed(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    up.enqueue([Send(json_response(b"{}", headers=[("connection", "close")]))])
    await once(pool)
    assert pool.idle == 0


async def test_small_pieces_leave_at_once(up: ScriptedUpstream) -> None:
    connection = await Pool(up.url).connect(1)
    assert connection.transport is not None
    sock = connection.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.abort()


async def test_five_hundred_requests_given_up_leave_nothing(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    up.always([Hang()])

    async def give_up() -> None:
        connection = await pool.request(b"POST", b"/v1/x", [], b"{}", LONG)
        await asyncio.sleep(0)
        connection.abort()
        pool.release(connection)

    for _ in range(10):
        await asyncio.gather(*(give_up() for _ in range(50)))
    await up.until(lambda: up.open_connections == 0)
    assert pool.idle == 0


async def test_close_ends_the_kept_and_lets_the_used_finish(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    await asyncio.gather(*(once(pool) for _ in range(3)))
    kept = pool.idle
    go = asyncio.Event()
    up.enqueue([Wait(go), Send(json_response(b'{"late":1}'))])
    connection = await pool.request(b"POST", b"/v1/x", [], b"{}", LONG)
    pool.close()
    await up.until(lambda: up.open_connections == 1 and kept > 0)
    go.set()
    assert await connection.read_all(100) == b'{"late":1}'
    pool.release(connection)
    await up.until(lambda: up.open_connections == 0)


async def test_what_a_server_said_unasked_is_no_answer_to_the_next_question() -> None:
    said = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n",
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        spoke = threading.Event()

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                connection.recv(65536)
                connection.sendall(said[0])
                # As proxies do when nothing came for a while; the worker's loop is busy meanwhile.
                time.sleep(0.05)
                connection.sendall(said[1])
                spoke.set()
                kept.append(connection)

        kept: list[socket.socket] = []
        thread = threading.Thread(target=serve)
        thread.start()
        pool = Pool(f"http://127.0.0.1:{server.getsockname()[1]}")
        statuses = []
        for _ in range(2):
            connection = await pool.request(b"POST", b"/", [], b"{}", Limits(5, 5, 5, 5))
            await connection.read_all(100)
            statuses.append(connection.status)
            pool.release(connection)
            assert spoke.wait(60)
            spoke.clear()
        pool.close()
        thread.join()
        for one in kept:
            one.close()
    assert statuses == [200, 200]


async def test_a_machine_without_descriptors_blames_itself() -> None:
    async with ScriptedUpstream() as up:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # No number below the lowest free one is free.
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        try:
            with pytest.raises(UpstreamError) as caught:
                await Pool(up.url).connect(5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert (caught.value.failure, caught.value.own) == ("connect", True)
    with pytest.raises(UpstreamError) as caught:
        await Pool(up.url).connect(5)
    assert (caught.value.failure, caught.value.own) == ("connect", False)

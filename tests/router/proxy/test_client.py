"""The client's side: its body within a limit, its answer, and the moment it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from router.proxy.client import Client, ClientLeft
from router.proxy.errors import ApiError


class Wire:
    """ASGI's two callables, scripted."""

    def __init__(self, messages: Iterable[dict[str, Any]] = ()) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in messages:
            self.incoming.put_nowait(message)
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        return await self.incoming.get()

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def body(data: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


LEAVE = {"type": "http.disconnect"}


def client(*messages: dict[str, Any]) -> tuple[Client, Wire]:
    wire = Wire(messages)
    return Client(wire.receive, wire.send), wire


async def test_a_body_is_put_together() -> None:
    one, _ = client(body(b"ab", True), body(b"", True), body(b"c"))
    assert await one.body([], 3) == b"abc"


@pytest.mark.parametrize("length", [b"4", b"99999999999999999999"])
async def test_a_length_above_the_limit_is_413_before_a_byte_is_read(length: bytes) -> None:
    one, wire = client(body(b"abcd"))
    with pytest.raises(ApiError) as caught:
        await one.body([(b"content-length", length)], 3)
    assert (caught.value.status, caught.value.param) == (413, "body")
    assert wire.incoming.qsize() == 1


async def test_a_body_that_grows_above_the_limit_is_413_at_once() -> None:
    one, wire = client(body(b"ab", True), body(b"cd", True), body(b"ef"))
    with pytest.raises(ApiError) as caught:
        await one.body([(b"transfer-encoding", b"chunked")], 3)
    assert caught.value.status == 413
    assert wire.incoming.qsize() == 1


async def test_an_encoding_is_415() -> None:
    one, _ = client(body(b"ab"))
    with pytest.raises(ApiError) as caught:
        await one.body([(b"content-encoding", b"gzip")], 3)
    assert caught.value.status == 415
    two, _ = client(body(b"ab"))
    assert await two.body([(b"content-encoding", b"Identity")], 3) == b"ab"


async def test_a_client_that_leaves_within_its_body_is_gone() -> None:
    one, _ = client(body(b"a", True), LEAVE)
    with pytest.raises(ClientLeft):
        await one.body([], 3)
    assert one.left


async def test_leaving_is_told_once_and_at_once() -> None:
    one, wire = client()
    told = asyncio.Event()
    one.watch(told.set)
    wire.incoming.put_nowait(LEAVE)
    await asyncio.wait_for(told.wait(), 60)
    assert one.left


async def test_the_end_of_a_finished_answer_is_no_leaving() -> None:
    one, wire = client()
    told: list[int] = []
    one.watch(lambda: told.append(1))
    await one.answer(200, [], b"x")
    wire.incoming.put_nowait(LEAVE)
    await asyncio.sleep(0.01)
    assert told == []
    assert not one.left


async def test_after_unwatch_nothing_is_told() -> None:
    one, wire = client()
    told: list[int] = []
    one.watch(lambda: told.append(1))
    one.unwatch()
    wire.incoming.put_nowait(LEAVE)
    await asyncio.sleep(0.01)
    assert told == []


async def test_an_answer_has_its_length() -> None:
    one, wire = client()
    await one.answer(404, [(b"x", b"y")], b"abc")
    assert wire.sent == [
        {"type": "http.response.start", "status": 404, "headers": [(b"x", b"y"), (b"content-length", b"3")]},
        {"type": "http.response.body", "body": b"abc", "more_body": False},
    ]
    assert one.started
    assert one.finished


async def test_a_stream_goes_piece_by_piece() -> None:
    one, wire = client()
    await one.start(200, [])
    assert not one.finished
    await one.write(b"a")
    await one.finish()
    assert [m.get("body") for m in wire.sent] == [None, b"a", b""]
    assert one.finished

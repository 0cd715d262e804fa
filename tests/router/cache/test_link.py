"""The shared connection on a real server, and on one that answers wrongly."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import hiredis
import pytest
from redis import Redis

from router.cache import link as link_module
from router.cache.address import Address, parse_address
from router.cache.link import LinkLost, Refusal, connect
from router.store.valkey import PrivateValkey
from tests.conftest import until


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


def pack(command: tuple[str | int, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]
    return packed


def nothing(why: str, hung: bool) -> None:
    pass


async def test_many_at_once_each_gets_its_own(valkey: PrivateValkey) -> None:
    link = await connect(parse_address(valkey.url), 5, nothing)
    await asyncio.gather(*(link.call("SET", f"k{n}", f"你{n}") for n in range(500)))
    found = await asyncio.gather(*(link.call("GET", f"k{n}") for n in range(500)))
    assert [f.decode() for f in found] == [f"你{n}" for n in range(500)]
    first = link.send(("SET", "a", b"\x00\r\n"), ("SET", "b", 2))
    assert first is not None
    assert await first == b"OK"
    assert await link.call("MGET", "a", "b", "none") == [b"\x00\r\n", b"2", None]
    link.end("done", False)


async def test_who_leaves_shifts_no_answers(valkey: PrivateValkey) -> None:
    link = await connect(parse_address(valkey.url), 5, nothing)
    left = [link.call("ECHO", str(n)) for n in range(10)]
    stays = link.call("ECHO", "stays")
    for future in left:
        future.cancel()
    assert await stays == b"stays"
    assert await link.call("ECHO", "next") == b"next"
    link.end("done", False)


async def test_an_error_belongs_to_its_command(valkey: PrivateValkey) -> None:
    link = await connect(parse_address(valkey.url), 5, nothing)
    wrong, right = link.call("NO-SUCH-COMMAND"), link.call("PING")
    with pytest.raises(Refusal, match="unknown command"):
        await wrong
    assert await right == b"PONG"
    link.end("done", False)


async def test_users_passwords_and_databases(valkey: PrivateValkey) -> None:
    with Redis.from_url(valkey.url) as client:
        client.acl_setuser("bob", enabled=True, passwords=["+p@ss"], categories=["+@all"], keys=["bitgear:*"])
    path = valkey.url.removeprefix("unix://")
    link = await connect(Address(path=path, username="bob", password="p@ss"), 5, nothing)
    assert await link.call("ACL", "WHOAMI") == b"bob"
    with pytest.raises(Refusal, match="NOPERM"):
        await link.call("GET", "other")
    link.end("done", False)
    lost: list[str] = []
    with pytest.raises(Refusal, match="WRONGPASS"):
        await connect(Address(path=path, username="bob", password="no"), 5, lambda why, hung: lost.append(why))
    with pytest.raises(Refusal, match="DB index"):
        await connect(Address(path=path, db=99), 5, nothing)
    assert lost == ["not let in"]


@asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[Address]:
    """Greets properly, then answers everything with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"+PONG\r\n")
        while await reader.read(100):
            writer.write(answer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", listening.sockets[0].getsockname()[1])
    finally:
        listening.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"", "no answer in 0.2 s"), (b"?", "not Redis"), (b"+A\r\n+B\r\n", "an answer that nobody asked for")],
)
async def test_answers_that_are_late_wrong_or_too_many_end_it(answer: bytes, why: str) -> None:
    lost: list[tuple[str, bool]] = []
    async with server(answer) as address:
        link = await connect(address, 0.2, lambda reason, hung: lost.append((reason, hung)))
        futures = [link.call("GET", "a")]
        await asyncio.wait(futures, timeout=5)
        async with asyncio.timeout(60):
            while not lost:
                await asyncio.sleep(0.01)
        assert lost[0][0].startswith(why)
        assert lost[0][1] == (answer == b"")
        with pytest.raises(LinkLost):
            await link.call("GET", "b")
        assert link.send(("GET", "b")) is None
        assert len(lost) == 1


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await connect(Address(path=str(tmp_path / "none")), 1, nothing)


async def test_an_answer_that_lay_there_while_the_loop_was_busy_is_not_late() -> None:
    """Timers are seen before sockets: a worker that was busy for longer than the timeout still has a good connection."""
    listening = socket.create_server(("127.0.0.1", 0))
    answered = threading.Event()

    def serve() -> None:
        client, _ = listening.accept()
        with client:
            client.recv(100)
            client.sendall(b"+PONG\r\n")
            while client.recv(100):
                time.sleep(0.05)
                client.sendall(b"+OK\r\n")
                answered.set()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    lost: list[str] = []
    link = await connect(
        Address("127.0.0.1", listening.getsockname()[1]), 0.2, lambda reason, hung: lost.append(reason)
    )
    answer = link.call("GET", "a")
    await asyncio.sleep(0.01)
    # Busy for longer than the timeout, and until the answer lies there.
    time.sleep(0.5)
    assert answered.wait(60)
    assert await answer == b"OK"
    assert lost == []
    link.end("done", False)
    listening.close()


async def test_writes_that_nobody_waits_for_go_with_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "COMPANY_S", 60)
    pieces: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(4096):
            pieces.append(piece)
            writer.write(b"+OK\r\n" * piece.count(b"*"))
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    link = await connect(Address("127.0.0.1", listening.sockets[0].getsockname()[1]), 5, nothing)
    written = link.send(("SET", "a", 1), ("SET", "b", 2))
    await asyncio.sleep(0.02)
    assert len(pieces) == 1, "only the greeting so far"
    assert await link.call("GET", "a") == b"OK"
    assert written is not None
    assert await written == b"OK"
    assert pieces[1:] == [pack(("SET", "a", 1)) + pack(("SET", "b", 2)) + pack(("GET", "a"))]
    link.send(("SET", "c", 3))
    link.end("stopped", False)
    await until(lambda: pieces[2:] == [pack(("SET", "c", 3))])
    listening.close()


async def test_writes_that_nobody_waits_for_go_alone_after_a_moment(valkey: PrivateValkey) -> None:
    link = await connect(parse_address(valkey.url), 5, nothing)
    written = link.send(("SET", "alone", 1))
    assert written is not None
    assert await asyncio.wait_for(written, 60) == b"OK"
    link.end("done", False)

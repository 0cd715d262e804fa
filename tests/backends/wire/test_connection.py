"""One connection against real sockets: framing, limits, back-pressure, giving up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backends.wire import Connection, Limits, Pool, UpstreamError
from backends.wire import connection as wire_connection
from backends.wire.connection import HIGH_WATER
from tests.conftest import until
from tests.support.upstream import Close, Hang, Reset, ScriptedUpstream, Send, Sleep, Step, Wait, sends
from tests.support.wire import chunk, json_response, response, response_head, split

pytestmark = pytest.mark.timing

LONG = Limits(5, 5, 5, 5)
SAID = b"event one\n\nevent two\n\n"


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as server:
        yield server


async def ask(up: ScriptedUpstream, script: list[Step], limits: Limits = LONG, method: bytes = b"POST") -> Connection:
    up.enqueue(script)
    return await Pool(up.url).request(method, b"/v1/x", [], b"" if method == b"HEAD" else b"{}", limits)


async def failure(connection: Connection) -> str:
    with pytest.raises(UpstreamError) as caught:
        await connection.read_all(1 << 20)
    return caught.value.failure


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("cuts", ["whole", "every byte"])
async def test_every_framing_at_every_cut_gives_the_same_body(up: ScriptedUpstream, framing: str, cuts: str) -> None:
    wire = b"".join(response([SAID, b"three"], framing, headers=[("x-a", "1")]))  # type: ignore[arg-type]
    pieces = [wire] if cuts == "whole" else split(wire, range(len(wire)))
    connection = await ask(up, [*sends(pieces), *([Close()] if framing == "close" else [])])
    assert await connection.read_all(1000) == SAID + b"three"
    assert connection.status == 200
    assert (b"x-a", b"1") in (connection.headers or [])
    assert connection.keep_alive == (framing != "close")


async def test_informational_answers_are_passed_over(up: ScriptedUpstream) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    connection = await ask(up, [Send(early), Send(json_response(b"{}"))])
    assert await connection.read_all(100) == b"{}"
    assert connection.status == 200
    assert all(name != b"link" for name, _ in connection.headers or [])


async def test_switching_protocols_is_refused(up: ScriptedUpstream) -> None:
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assert await failure(await ask(up, [Send(upgrade), Hang()])) == "protocol"


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_ends_with_its_head(up: ScriptedUpstream, status: int) -> None:
    connection = await ask(up, [Send(b"HTTP/1.1 %d X\r\n\r\n" % status), Hang()])
    assert await connection.read_all(100) == b""
    assert connection.status == status


async def test_head_is_not_kept_waiting_for_the_body_that_its_length_tells_of() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response_head(framing="length", length=500))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        pool = Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        connection = await pool.request(b"HEAD", b"/v1/x", [], b"", LONG)
        assert await connection.read_all(100) == b""
        assert connection.status == 200
        pool.release(connection)


@pytest.mark.parametrize("more", ["two answers at once", "bytes that are no HTTP"])
async def test_what_comes_after_the_answer_never_becomes_part_of_it(up: ScriptedUpstream, more: str) -> None:
    extra = json_response(b'{"second":true}', 500) if more.startswith("two") else b"garbage"
    pool = Pool(up.url)
    up.enqueue([Send(json_response(b'{"first":true}') + extra)])
    connection = await pool.request(b"POST", b"/v1/x", [], b"{}", LONG)
    assert await connection.read_all(1000) == b'{"first":true}'
    assert connection.status == 200
    pool.release(connection)
    assert pool.idle == 0


async def test_a_server_that_speaks_unasked_is_not_asked_again(up: ScriptedUpstream) -> None:
    pool = Pool(up.url)
    late = asyncio.Event()
    up.enqueue([Send(json_response(b"{}")), Wait(late), Send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")])
    connection = await pool.request(b"POST", b"/v1/x", [], b"{}", LONG)
    await connection.read_all(100)
    pool.release(connection)
    assert pool.idle == 1
    late.set()
    await up.until(lambda: up.open_connections == 0)
    assert pool.reusable() is None


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([Close()], "closed"),
        ([Reset()], "closed"),
        ([Send(response_head()), Send(chunk(b"a")), Close()], "closed"),
        ([Send(response_head(framing="length", length=10)), Send(b"short"), Close()], "closed"),
        ([Send(response_head(framing="close")), Send(b"part"), Reset()], "closed"),
        ([Send(b"HTTP/1.1 abc\r\n\r\n")], "protocol"),
        ([Send(response_head() + b"zz\r\n")], "protocol"),
        ([Send(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 10)], "first_token_timeout"),
    ],
)
async def test_a_broken_answer_is_an_error_never_a_short_answer(
    up: ScriptedUpstream, script: list[Step], expected: str
) -> None:
    limits = Limits(1, 0.2, 0.2, 2) if expected.endswith("timeout") else LONG
    assert await failure(await ask(up, [*script, Hang()], limits)) == expected


async def test_what_came_before_the_break_is_still_read(up: ScriptedUpstream) -> None:
    connection = await ask(up, [Send(response_head()), Send(chunk(b"kept")), Reset()])
    await up.until(lambda: up.open_connections == 0)
    while not connection.done:
        await connection.wait()
    assert connection.take() == b"kept"
    with pytest.raises(UpstreamError, match="in the middle"):
        await connection.wait()


async def test_an_answer_above_the_readers_limit_is_refused(up: ScriptedUpstream) -> None:
    connection = await ask(up, [Send(json_response(b"x" * 2000))])
    with pytest.raises(UpstreamError, match="larger than 1000 bytes"):
        await connection.read_all(1000)


async def test_a_connection_that_is_never_accepted_ends_with_its_own_limit() -> None:
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(UpstreamError) as caught:
            await Pool(f"http://127.0.0.1:{full.getsockname()[1]}").connect(0.1)
    assert caught.value.failure == "connect_timeout"


async def test_a_refused_connection_is_told_at_once(up: ScriptedUpstream) -> None:
    await up.stop()
    with pytest.raises(UpstreamError) as caught:
        await Pool(up.url).connect(5)
    assert caught.value.failure == "connect"


async def timed(connection: Connection) -> tuple[str, float]:
    began = time.monotonic()
    return await failure(connection), time.monotonic() - began


async def test_the_first_token_has_a_limit_of_its_own(up: ScriptedUpstream) -> None:
    what, seconds = await timed(await ask(up, [Hang()], Limits(5, 0.1, 9, 9)))
    assert what == "first_token_timeout"
    assert 0.09 <= seconds < 5


async def test_headers_and_comments_do_not_put_the_first_tokens_limit_off(up: ScriptedUpstream) -> None:
    drip: list[Step] = [Send(response_head())]
    for _ in range(100):
        drip += [Sleep(0.03), Send(chunk(b": ping\n\n"))]
    what, seconds = await timed(await ask(up, drip, Limits(5, 0.2, 9, 9)))
    assert what == "first_token_timeout"
    assert 0.19 <= seconds < 2.5


async def test_between_tokens_each_pause_is_measured_anew(up: ScriptedUpstream) -> None:
    steps: list[Step] = [Send(response_head() + chunk(b"0"))]
    for i in range(1, 6):
        steps += [Sleep(0.15), Send(chunk(b"%d" % i))]
    connection = await ask(up, [*steps, Hang()], Limits(5, 9, 0.4, 9))
    connection.between_tokens()
    what, seconds = await timed(connection)
    assert what == "between_tokens_timeout"
    assert 0.7 < seconds < 5


async def test_equal_limits_are_told_apart(up: ScriptedUpstream) -> None:
    connection = await ask(up, [Send(response_head() + chunk(b"0")), Hang()], Limits(5, 0.1, 0.1, 9))
    while connection.take() is None:
        await connection.wait()
    connection.between_tokens()
    assert await failure(connection) == "between_tokens_timeout"


async def test_the_total_limit_holds_while_tokens_flow(up: ScriptedUpstream) -> None:
    steps: list[Step] = [Send(response_head())]
    for _ in range(200):
        steps += [Send(chunk(b"x")), Sleep(0.02)]
    connection = await ask(up, steps, Limits(5, 9, 9, 0.3))
    connection.between_tokens()
    what, seconds = await timed(connection)
    assert what == "total_timeout"
    assert 0.25 <= seconds < 3


async def test_a_slow_reader_is_not_the_replicas_silence(up: ScriptedUpstream) -> None:
    connection = await ask(up, [*sends(response([b"a", b"b"]))], Limits(5, 0.05, 0.05, 9))
    await up.until(lambda: up.running == 0)
    await asyncio.sleep(0.2)
    assert await connection.read_all(10) == b"ab"


async def test_a_fast_server_waits_for_a_slow_reader(up: ScriptedUpstream) -> None:
    piece = chunk(b"x" * 100_000)
    connection = await ask(up, [Send(response_head()), *[Send(piece)] * 600, Send(b"0\r\n\r\n")], Limits(5, 60, 60, 60))
    exchange = await up.exchange()
    with pytest.raises(TimeoutError):
        await up.until(exchange.done.is_set, timeout=0.3)
    # What the kernel's buffers hold, and no more.
    assert exchange.sent < 20_000_000
    most = total = 0
    while not (connection.done and not connection._parts):
        most = max(most, connection._queued)
        total += len(connection.take() or b"")
        if not connection.done:
            await connection.wait()
    assert total == 60_000_000
    assert most <= 2 * HIGH_WATER + 64 * 1024


async def test_giving_up_wakes_the_reader_at_once_and_closes(up: ScriptedUpstream) -> None:
    connection = await ask(up, [Hang()])
    reader = asyncio.create_task(failure(connection))
    await asyncio.sleep(0)
    began = time.monotonic()
    connection.abort()
    assert await reader == "aborted"
    assert time.monotonic() - began < 1
    exchange = await up.exchange()
    await asyncio.wait_for(exchange.closed.wait(), 60)


async def test_no_timer_is_left_behind(up: ScriptedUpstream) -> None:
    done = await ask(up, [Send(json_response(b"{}"))])
    await done.read_all(10)
    given_up = await ask(up, [Hang()])
    given_up.abort()
    assert done._timer is None
    assert given_up._timer is None


BEGUN = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 200 OK\r\nx-long: ", BEGUN + b"0\r\nx-long: ", BEGUN + b"2;"],
    ids=["header", "trailer", "extension"],
)
async def test_a_head_without_end_is_a_broken_answer_before_it_holds_the_loop(
    up: ScriptedUpstream, begin: bytes
) -> None:
    pieces: list[Step] = [Send(begin), *[Send(b"a" * 65536)] * 100]
    connection = await ask(up, [*pieces, Hang()])
    began = time.process_time()
    assert await failure(connection) == "protocol"
    assert time.process_time() - began < 1.0
    assert "headers" in str(connection.error)


async def test_an_answer_in_ever_so_many_pieces_is_no_endless_head(
    up: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_connection, "MAX_BARE", 200)
    # Size lines that come by themselves are no body either.
    pieces: list[Step] = [Send(BEGUN)]
    for _ in range(100):
        pieces += [Send(b"3\r\n"), Sleep(0.001), Send(b"abc\r\n"), Sleep(0.001)]
    connection = await ask(up, [*pieces, Send(b"0\r\n\r\n")])
    assert await connection.read_all(1000) == b"{}" + b"abc" * 100


ASK = """
import asyncio, sys
import uvloop
from backends.wire import Limits, Pool

async def main():
    limits = Limits(5, 0.5, 0.5, 20)
    connection = await Pool(sys.argv[1]).request(b"POST", b"/v1/x", [], b"{}", limits)
    if sys.argv[2] == "between":
        while connection.headers is None:
            await connection.wait()
        connection.between_tokens()
    print("waits", flush=True)
    print(await connection.read_all(1000))

uvloop.run(main())
"""


@pytest.mark.parametrize("late", ["first", "between"])
async def test_a_process_that_stood_still_reads_what_came_meanwhile(up: ScriptedUpstream, late: str) -> None:
    head, *rest = response([SAID, b"three"], "length")
    go = asyncio.Event()
    up.enqueue([Send(head), Wait(go), *sends(rest)] if late == "between" else [Wait(go), Send(head), *sends(rest)])
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ASK, up.url, late), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    exchange = await up.exchange(timeout=30)
    assert asking.stdout is not None
    assert await asyncio.wait_for(asking.stdout.readline(), 30) == b"waits\n"
    # It is in the kernel now, and not in a turn of its loop.
    await asyncio.sleep(0.05)
    asking.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{asking.pid}/stat")
    await until(lambda: state.read_text().rpartition(") ")[2].startswith("T"))
    go.set()
    await up.until(exchange.done.is_set)
    # Its limit is over when it goes on: a machine that was suspended.
    await asyncio.sleep(0.6)
    asking.send_signal(signal.SIGCONT)
    out, wrong = await asyncio.wait_for(asking.communicate(), 30)
    assert out.strip() == repr(SAID + b"three").encode(), wrong.decode()

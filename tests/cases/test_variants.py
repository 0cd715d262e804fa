"""Cases 22 and 23: a thousand streams at once on one worker, and limits of time that are separate."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from tests.cases.helpers import CHAT_PATH, UNBREAKABLE, WIRE, Start, ask, in_turn, inflight, settled, stream
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Hang, ScriptedUpstream, Send, Sleep, Step, Wait, sends
from tests.support.wire import DONE, chunk, json_response, response

pytestmark = pytest.mark.timing

LONG = 30.0
SHORT = 0.3
EVENTS = [WIRE.role(), WIRE.content("Hel"), WIRE.content("lo", "stop"), DONE]
WIRES = response(EVENTS)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Client, worker and upstream live in this process: four descriptors a stream."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 6000:
        pytest.skip(f"needs 6000 open files, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Case 22

BUSY_S = 300.0
"""In which 1,000 streams have begun on a machine that does much else."""


async def test_case_22_1000_concurrent_streams_on_one_worker(
    bitgear: Start, up: ScriptedUpstream, many_files: None
) -> None:
    gear = await bitgear({"fp16": up.url})
    go = asyncio.Event()
    events = WIRE.stream([f"t{i}" for i in range(10)])
    wires = response(events)
    up.always([*sends(wires[:3]), Wait(go), *sends(wires[3:])])

    async def one(number: int) -> Answer:
        async with RawClient(gear.url) as client:
            await client.request("POST", CHAT_PATH, ask(user=str(number)))
            return await client.answer(timeout=2 * BUSY_S)

    tasks = [asyncio.create_task(one(i)) for i in range(1000)]
    await up.until(lambda: up.running == 1000, timeout=BUSY_S)
    assert inflight(gear) == 2000
    began = time.monotonic()
    assert (await fetch(gear.admin_url, "/healthz")).status == 200
    assert time.monotonic() - began < 2
    go.set()
    expected = b"".join(events)
    for answer in await asyncio.gather(*tasks):
        assert answer.status == 200
        assert answer.complete
        assert answer.body == expected
    assert up.peak_running == 1000
    await settled(gear, up)


@asynccontextmanager
async def worker_process(up: ScriptedUpstream, folder: Path) -> AsyncIterator[str]:
    """A worker as a shell starts it, with the usual soft limit of 1,024 open files; gives the API's URL."""
    api, admin = (socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(2))
    variant = RuntimeVariant(group="g", variant="fp16", precision="fp16", urls=(up.url,), served_model="g")
    Runtime(config=Config(), variants=(variant,)).write(folder / "runtime.json")
    numbers = (str(api.fileno()), str(admin.fileno()))
    arguments = ["--runtime", str(folder / "runtime.json"), "--api-fd", numbers[0], "--admin-fd", numbers[1]]
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", 'ulimit -Sn 1024 && exec "$@"', "sh", sys.executable, "-m", "router.worker", *arguments,
        pass_fds=(api.fileno(), admin.fileno()),
    )  # fmt: skip
    url, admin_url = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in (api, admin))
    api.close()
    admin.close()
    try:
        async with asyncio.timeout(60):
            while (await fetch(admin_url, "/readyz", timeout=30)).status != 200:
                await asyncio.sleep(0.02)
        yield url
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


@pytest.mark.soak
async def test_case_22_1000_concurrent_streams_where_the_shell_allows_1024_files(
    up: ScriptedUpstream, many_files: None, tmp_path: Path
) -> None:
    go = asyncio.Event()
    up.always([*sends(WIRES[:3]), Wait(go), *sends(WIRES[3:])])
    async with worker_process(up, tmp_path) as url:
        tasks = [asyncio.create_task(stream(url, timeout=2 * BUSY_S)) for _ in range(1000)]
        await up.until(lambda: up.running == 1000, timeout=BUSY_S)
        go.set()
        bodies = {answer.body for answer in await asyncio.gather(*tasks)}
    assert bodies == {b"".join(EVENTS)}


async def test_case_22_over_the_limit_of_requests_in_flight_is_503_with_retry_after(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"max_concurrent": 5}})
    up.always([Hang()])
    clients = [RawClient(gear.url) for _ in range(5)]
    try:
        for client in clients:
            await client.connect()
            await client.request("POST", CHAT_PATH, ask())
        await up.until(lambda: up.running == 5)
        refused = await stream(gear.url)
        assert refused.status == 503
        assert refused.json()["error"]["code"] == "overloaded"
        assert int(refused.head.get("retry-after") or 0) >= 1
    finally:
        for client in clients:
            client.close()
    await settled(gear, up)
    up.always(sends(WIRES))
    assert (await stream(gear.url)).body == b"".join(EVENTS)


# Case 23


def limits(**seconds: float) -> dict[str, Any]:
    """Every limit long, but these; the failing replicas stay in."""
    named = {"connect_s": LONG, "first_token_s": LONG, "between_tokens_s": LONG, "total_s": LONG}
    return {"timeouts": {**named, **seconds}, **UNBREAKABLE}


async def timed(url: str, **more: Any) -> tuple[Answer, float]:
    began = time.monotonic()
    answer = await stream(url, **more)
    return answer, time.monotonic() - began


def code_of(answer: Answer) -> str:
    """The code of an error answer, or of the error event at a stream's end, with its message."""
    error = orjson.loads(answer.events()[-1] if answer.status == 200 else answer.body)["error"]
    return f"{error['code']} {error['message']}"


def deaf_listener(port: int) -> list[socket.socket]:
    """A listener on this port whose queue is full: a further connection hangs. Close what comes back."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(0)
    waiting = [socket.socket() for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    return [listener, *waiting]


async def test_case_23_connect_limit_alone(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=limits(connect_s=SHORT))
    await up.stop()
    sockets = deaf_listener(up.port)
    try:
        answer, took = await timed(gear.url)
    finally:
        for one in sockets:
            one.close()
    assert answer.status == 504
    assert "connect_timeout" in code_of(answer)
    assert SHORT * 0.9 < took < LONG / 3


async def test_case_23_connect_limit_hands_over_to_another_replica(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url, "int8": other.url}, config=limits(connect_s=SHORT))
    for upstream in (up, other):
        upstream.always(sends(WIRES))
    await up.stop()
    sockets = deaf_listener(up.port)
    try:
        for _ in range(3):
            answer, took = await timed(gear.url)
            assert answer.body == b"".join(EVENTS)
            assert took < LONG / 3
    finally:
        for one in sockets:
            one.close()


@pytest.mark.parametrize("sent", [0, 1, 2], ids=["nothing", "head", "role"])
async def test_case_23_first_token_limit_alone(bitgear: Start, up: ScriptedUpstream, sent: int) -> None:
    gear = await bitgear({"fp16": up.url}, config=limits(first_token_s=SHORT))
    up.always([*sends(WIRES[:sent]), Hang()])
    answer, took = await timed(gear.url)
    assert answer.status == 504
    assert "first_token_timeout" in code_of(answer)
    assert SHORT * 0.9 < took < LONG / 3
    await settled(gear, up)


async def test_case_23_first_token_limit_is_not_put_off_by_keep_alives(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=limits(first_token_s=SHORT))
    ping: list[Step] = [Send(chunk(b": ping\n\n")), Sleep(SHORT / 3)]
    up.always([Send(WIRES[0]), *ping * 15, Hang()])
    answer, took = await timed(gear.url)
    assert took < SHORT * 4
    assert "first_token_timeout" in code_of(answer)
    await settled(gear, up)


async def test_case_23_first_token_limit_hands_over_to_another_replica(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]}, config=limits(first_token_s=SHORT))
    seen = in_turn([[Send(WIRES[0]), Hang()]], sends(WIRES), up, other)
    answer, _ = await timed(gear.url)
    assert answer.body == b"".join(EVENTS)
    assert len(seen) == 2
    await asyncio.wait_for(seen[0].closed.wait(), 60)


async def test_case_23_first_token_limit_does_not_hold_after_it_or_for_plain_answers(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url}, config=limits(first_token_s=SHORT))
    up.enqueue([*sends(WIRES[:3]), Sleep(SHORT * 2), *sends(WIRES[3:])])
    answer, took = await timed(gear.url)
    assert answer.body == b"".join(EVENTS)
    assert took > SHORT * 2
    up.enqueue([Sleep(SHORT * 2), Send(json_response(WIRE.answer()))])
    assert (await fetch(gear.url, CHAT_PATH, chat(model="g"))).status == 200


async def test_case_23_between_tokens_limit_alone(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=limits(between_tokens_s=SHORT))
    up.always([Sleep(SHORT * 2), *sends(WIRES[:3]), Hang()])
    answer, took = await timed(gear.url)
    assert answer.body.startswith(b"".join(EVENTS[:2]))
    assert "between_tokens_timeout" in code_of(answer)
    assert SHORT * 2.9 < took < LONG / 3
    await settled(gear, up)


async def test_case_23_equal_limits_are_told_apart(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=limits(between_tokens_s=SHORT, first_token_s=SHORT))
    up.always([*sends(WIRES[:3]), Hang()])
    answer, _ = await timed(gear.url)
    assert "between_tokens_timeout" in code_of(answer)


async def test_case_23_total_limit_alone(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=limits(total_s=SHORT * 2))
    trickle = [s for i in range(100) for s in (Send(chunk(WIRE.content(str(i)))), Sleep(SHORT / 6))]
    up.enqueue([*sends(WIRES[:2]), *trickle], [Hang()], [Hang()])
    answer, took = await timed(gear.url)
    assert "total_timeout" in code_of(answer)
    assert answer.body.count(b"data: ") > 3
    assert SHORT * 1.9 < took < SHORT * 5
    began = time.monotonic()
    plain = await fetch(gear.url, CHAT_PATH, chat(model="g"))
    assert plain.status == 504
    assert "total_timeout" in code_of(plain)
    assert SHORT * 1.9 < time.monotonic() - began < SHORT * 5
    await settled(gear, up)


async def test_case_23_total_limit_includes_retries(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]}, config=limits(first_token_s=SHORT * 2, total_s=SHORT * 3))
    for upstream in (up, other):
        upstream.always([Hang()])
    answer, took = await timed(gear.url)
    assert answer.status == 504
    assert SHORT * 2.5 < took < SHORT * 6
    await settled(gear, up, other)


async def test_case_23_a_stream_within_every_limit_passes(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear(
        {"fp16": up.url},
        config=limits(connect_s=SHORT, first_token_s=SHORT, between_tokens_s=SHORT, total_s=SHORT * 20),
    )
    events = WIRE.stream([str(i) for i in range(10)])
    up.always(sends(response(events), gap_s=SHORT / 4))
    answer, took = await timed(gear.url)
    assert answer.body == b"".join(events)
    assert took > SHORT * 2

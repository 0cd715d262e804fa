"""Each failure on demand, as a client sees it, and that nothing is left running after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from backends.settings import SimulatorSettings
from backends.simulator import Fault, Running
from backends.simulator.faults import Faults
from tests.backends.simulator.conftest import Start
from tests.conftest import until

_ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
_STREAM = {**_ASK, "stream": True}


async def plant(running: Running, *faults: dict[str, Any]) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"{running.url}/sim/faults", json=list(faults))
        assert response.status_code == 200


def chat(running: Running) -> str:
    return f"{running.url}/v1/chat/completions"


async def drain(response: httpx.Response, into: bytearray) -> None:
    async for piece in response.aiter_bytes():
        into += piece


def idle(running: Running) -> Callable[[], bool]:
    core = running.simulator.core
    return lambda: core.engine.idle and core.in_flight == 0 and core.engine.used_blocks == 0


async def test_a_status_with_retry_after_strikes_as_often_as_told(simulator: Start) -> None:
    running = await simulator()
    await plant(running, {"kind": "status", "status": 429, "retry_after": 2.5, "count": 2})
    async with httpx.AsyncClient(timeout=60) as client:
        answers = [await client.post(chat(running), json=_ASK) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "2.5"
    assert answers[0].json()["error"]["code"] == 429
    assert "retry-after" not in answers[2].headers


async def test_faults_strike_work_and_not_probes(simulator: Start) -> None:
    running = await simulator()
    await plant(running, {"kind": "status", "count": 1})
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        for path in ("/health", "/metrics", "/v1/models", "/load", "/version"):
            assert (await client.get(path)).status_code == 200
        embedding = await client.post("/v1/embeddings", json={"model": "m", "input": "x"})
    assert embedding.status_code == 500


async def test_a_hang_answers_nothing_and_ends_with_the_client(simulator: Start) -> None:
    running = await simulator()
    await plant(running, {"kind": "hang", "count": 1})
    async with httpx.AsyncClient(timeout=60) as client:
        asking = asyncio.create_task(client.post(chat(running), json=_ASK))
        await until(lambda: running.simulator.core.in_flight == 1)
        assert running.simulator.core.engine.idle
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(idle(running))


async def test_a_drop_resets_before_any_byte(simulator: Start) -> None:
    running = await simulator()
    await plant(running, {"kind": "drop", "count": 1})
    async with httpx.AsyncClient(timeout=60) as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await client.post(chat(running), json=_ASK)
        assert (await client.post(chat(running), json=_ASK)).status_code == 200
    assert idle(running)()


@pytest.mark.parametrize("tokens", [0, 3])
async def test_a_stream_that_dies_after_some_tokens(simulator: Start, tokens: int) -> None:
    running = await simulator()
    await plant(running, {"kind": "reset", "tokens": tokens, "count": 1})
    got = bytearray()
    async with httpx.AsyncClient(timeout=60) as client, client.stream("POST", chat(running), json=_STREAM) as response:
        assert response.status_code == 200
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await drain(response, got)
    # a reset may overtake what was sent before it
    assert got.count(b'"content":"') <= (tokens and tokens + 1)
    assert b"[DONE]" not in got
    await until(idle(running))


@pytest.mark.parametrize("body", [_ASK, {"model": "m", "prompt": "hi", "max_tokens": 9}])
async def test_an_answer_in_one_piece_dies_too(simulator: Start, body: dict[str, Any]) -> None:
    running = await simulator()
    await plant(running, {"kind": "reset", "tokens": 2, "count": 1})
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await client.post(running.url + path, json=body)
    await until(idle(running))


async def nothing_more(response: httpx.Response, got: bytearray, all_there: Callable[[], bool]) -> None:
    """Read until all is there, and a moment longer. Raises TimeoutError when nothing more comes in it."""
    async with asyncio.timeout(60) as limit:
        pieces = response.aiter_bytes()
        while True:
            if all_there():
                limit.reschedule(asyncio.get_running_loop().time() + 0.3)
            got.extend(await anext(pieces))


@pytest.mark.parametrize("tokens", [0, 3])
async def test_a_stream_that_hangs_after_some_tokens(simulator: Start, tokens: int) -> None:
    running = await simulator()
    await plant(running, {"kind": "hang_after", "tokens": tokens, "count": 1})
    got = bytearray()
    async with httpx.AsyncClient(timeout=60) as client, client.stream("POST", chat(running), json=_STREAM) as response:
        assert response.status_code == 200
        with pytest.raises(TimeoutError):
            await nothing_more(response, got, lambda: got.count(b'"content":"') == (tokens and tokens + 1))
    # the role, then the tokens
    assert got.count(b'"content":"') == (tokens and tokens + 1)
    await until(idle(running))


async def test_an_error_inside_a_stream_of_status_200(simulator: Start) -> None:
    running = await simulator()
    await plant(running, {"kind": "error_event", "tokens": 2, "count": 3})
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        stream = await client.post("/v1/chat/completions", json=_STREAM)
        plain = await client.post("/v1/chat/completions", json=_ASK)
        completion = await client.post("/v1/completions", json={"model": "m", "prompt": "x", "stream": True})
    events = [event for event in stream.text.split("\n\n") if event]
    assert stream.status_code == 200
    assert len(events) == 5  # role, two tokens, error, end
    assert events[3] == (
        'data: {"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}'
    )
    assert events[4] == "data: [DONE]"
    assert plain.status_code == 500
    assert '"error"' in completion.text
    assert idle(running)()


@pytest.mark.parametrize(
    ("path", "body", "sign"),
    [
        (
            "/v1/messages",
            {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
            "event: error",
        ),
        ("/v1/responses", {"model": "m", "input": "x"}, "event: error"),
    ],
)
async def test_error_events_of_the_other_formats(simulator: Start, path: str, body: dict[str, Any], sign: str) -> None:
    running = await simulator()
    await plant(running, {"kind": "error_event", "tokens": 2})
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        stream = await client.post(path, json={**body, "stream": True})
        plain = await client.post(path, json=body)
    assert sign in stream.text
    assert plain.status_code == 500
    assert "error" in plain.json()


async def test_slow_multiplies_every_time_until_it_is_removed(simulator: Start) -> None:
    running = await simulator(time_scale=1.0, overhead_ms=1.0)
    times = []
    async with httpx.AsyncClient(timeout=60) as client:
        for faults in ([], [{"kind": "slow", "factor": 20}], []):
            await plant(running, *faults)
            started = asyncio.get_running_loop().time()
            await client.post(chat(running), json=_ASK)
            times.append(asyncio.get_running_loop().time() - started)
    assert times[1] > 5 * max(times[0], times[2])


async def test_reject_only_while_the_queue_is_longer(simulator: Start) -> None:
    running = await simulator(time_scale=1.0, max_num_seqs=1)
    long = {**_ASK, "max_tokens": 4000, "ignore_eos": True}
    engine = running.simulator.core.engine
    async with httpx.AsyncClient(timeout=60) as client:
        asking = [asyncio.create_task(client.post(chat(running), json=long)) for _ in range(3)]
        await until(lambda: len(engine.waiting) == 2)
        await plant(running, {"kind": "reject", "queue": 1, "retry_after": 3})
        refused = await client.post(chat(running), json=_ASK)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await until(idle(running))
        taken = await client.post(chat(running), json=_ASK)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "3")
    assert taken.status_code == 200
    assert running.simulator.core.metrics.rejected == 1


async def test_an_error_rate_strikes_about_its_share_and_the_same_ones_for_the_same_seed(simulator: Start) -> None:
    outcomes = []
    for _ in range(2):
        running = await simulator(error_rate=0.3, seed=5)
        async with httpx.AsyncClient(timeout=60) as client:
            outcomes.append([(await client.post(chat(running), json=_ASK)).status_code for _ in range(100)])
    assert outcomes[0] == outcomes[1]
    assert 15 < outcomes[0].count(500) < 45


async def test_a_fault_that_makes_no_sense_is_refused_and_changes_nothing(simulator: Start) -> None:
    running = await simulator()
    async with httpx.AsyncClient(timeout=60) as client:
        for content in (b'{"kind": "nope"}', b'{"kind": "status", "status": 200}', b"{", b'[{"kind": "hang", "x": 1}]'):
            response = await client.post(f"{running.url}/sim/faults", content=content)
            assert response.status_code == 400
    assert running.simulator.core.faults.faults == []


def test_faults_are_used_up_in_order() -> None:
    faults = Faults(SimulatorSettings())
    faults.replace([Fault(kind="slow", factor=2), Fault(kind="hang", count=1), Fault(kind="status", count=2)])
    struck = [fault.kind if (fault := faults.strike(0)) else None for _ in range(4)]
    assert struck == ["hang", "status", "status", None]
    assert faults.slow == 2
    assert faults.struck == 3

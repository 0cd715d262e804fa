"""The test tools themselves: what one sends, the other receives, byte for byte."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.client import Answer, BadFramingError, ChunkedDecoder, RawClient, chat, fetch
from tests.support.upstream import Close, Hang, Reset, ScriptedUpstream, Send, Wait, sends
from tests.support.wire import ChatWire, CompletionWire, Framing, chunk, crlf, json_response, response, split

WIRE = ChatWire()


async def test_side_requests_answer_as_vllm() -> None:
    async with ScriptedUpstream(max_model_len=777) as up:
        up.reported_running, up.reported_waiting = 3, 2
        assert (await fetch(up.url, "/health")).status == 200
        assert (await fetch(up.url, "/v1/models")).json()["data"][0]["max_model_len"] == 777
        metrics = (await fetch(up.url, "/metrics")).body
        assert b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n' in metrics
        probe = await fetch(up.url, "/v1/chat/completions", chat(max_tokens=1))
        assert probe.json()["usage"]["completion_tokens"] == 1
        probe = await fetch(up.url, "/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1})
        assert probe.json()["object"] == "text_completion"
        probe = await fetch(up.url, "/v1/chat/completions", chat("Say hello.", stream=True, max_tokens=8))
        assert probe.events()[-1] == b"[DONE]"
        assert (await fetch(up.url, "/nothing")).status == 404
        assert up.exchanges == []
        assert len(up.side) == 7


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_every_framing_gives_the_same_body(framing: Framing) -> None:
    events = WIRE.odd_stream()
    async with ScriptedUpstream() as up:
        up.always([*sends(response(events, framing)), *([Close()] if framing == "close" else [])])
        answer = await fetch(up.url, "/v1/chat/completions", chat(stream=True))
        assert answer.complete
        assert answer.body == b"".join(events)
        assert answer.events()[-1] == b"[DONE]"


async def test_pieces_arrive_apart() -> None:
    wire = b"".join(response(WIRE.stream(["你", "好"])))
    async with ScriptedUpstream() as up:
        up.always(sends(split(wire, range(len(wire)))))
        answer = await fetch(up.url, "/v1/chat/completions", chat(stream=True))
        assert answer.body == b"".join(WIRE.stream(["你", "好"]))
        assert len(answer.pieces) > len(answer.body) // 2


async def test_steps_wait_for_the_test_and_connections_are_kept() -> None:
    go = asyncio.Event()
    first, *rest = response(WIRE.stream(["a"]))
    async with ScriptedUpstream() as up, RawClient(up.url) as client:
        up.enqueue([Send(first), Wait(go), *sends(rest)], [Send(json_response(WIRE.answer()))])
        await client.request("POST", "/v1/chat/completions", chat(stream=True), [("x-a", "1")])
        answer = Answer(await client.head())
        assert up.running == 1
        go.set()
        assert b"".join([p.data async for p in client.pieces(answer)]) == b"".join(WIRE.stream(["a"]))
        await client.request("POST", "/v1/chat/completions", chat())
        assert (await client.answer()).json()["usage"]["total_tokens"] == 18
        await up.until(lambda: up.running == 0)
        one, two = up.exchanges
        assert one.connection == two.connection
        assert one.header("x-a") == "1"
        assert one.json()["stream"] is True
        assert one.head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
        assert not one.closed.is_set()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_is_seen_at_once(how: str) -> None:
    async with ScriptedUpstream() as up:
        up.always([Hang()])
        async with RawClient(up.url) as client:
            await client.request("POST", "/v1/chat/completions", chat())
            exchange = await up.exchange()
            assert up.running == 1
            getattr(client, how)()
        await asyncio.wait_for(exchange.closed.wait(), 60)
        assert up.running == 0
        await up.until(lambda: up.open_connections == 0)


async def test_reset_and_close_reach_the_client() -> None:
    head, role, *_ = response(WIRE.stream(["a"]))
    async with ScriptedUpstream() as up:
        up.enqueue([Send(head), Send(role), Close()], [Reset()])
        cut = await fetch(up.url, "/v1/chat/completions", chat(stream=True))
        assert cut.body == WIRE.role()
        assert not cut.complete
        with pytest.raises(ConnectionResetError):
            await fetch(up.url, "/v1/chat/completions", chat())


async def test_a_slow_reader_holds_the_upstream_back() -> None:
    piece = chunk(WIRE.content("x" * 60_000))
    async with ScriptedUpstream() as up:
        up.always([Send(response([])[0]), *[Send(piece)] * 2000])
        async with RawClient(up.url, receive_buffer=4096) as client:
            await client.request("POST", "/v1/chat/completions", chat(stream=True))
            exchange = await up.exchange()
            await client.head()
            with pytest.raises(TimeoutError):
                await up.until(exchange.done.is_set, timeout=0.2)
            assert exchange.sent < 20_000_000


async def test_stopped_server_refuses_and_comes_back_on_its_port() -> None:
    async with ScriptedUpstream() as up:
        url = up.url
        await up.stop()
        with pytest.raises(ConnectionRefusedError):
            await fetch(url, "/health")
        await up.listen()
        assert (await fetch(url, "/health")).status == 200


def test_events_are_valid_json() -> None:
    tools = [WIRE.tool_start("f"), WIRE.tool_arguments('{\\"a\\": \\"\\u4f60'), WIRE.tool_arguments('\\"}')]
    completions = CompletionWire().stream(["a", "b"], usage=True)
    for raw in [*WIRE.stream(["a", '"'], usage=True), *WIRE.odd_stream(), *tools, WIRE.error(), *completions]:
        data = raw.removeprefix(b"data: ").strip()
        assert raw.endswith(b"\n\n")
        assert data == b"[DONE]" or json.loads(data)
    for body in (WIRE.answer(), WIRE.odd_answer(), CompletionWire().answer()):
        assert json.loads(body)["usage"]["total_tokens"] > 0
    assert crlf(WIRE.role()).endswith(b"}\r\n\r\n")


def test_decoder_takes_any_cut_and_refuses_bad_framing() -> None:
    wire = chunk(b"ab\r\n") + chunk("é".encode()) + b"0\r\n\r\n"
    for cut in range(len(wire)):
        decoder = ChunkedDecoder()
        assert decoder.feed(wire[:cut]) + decoder.feed(wire[cut:]) == "ab\r\né".encode()
        assert decoder.done
    with pytest.raises(BadFramingError):
        ChunkedDecoder().feed(b"2\r\nabc\r\n")
    with pytest.raises(BadFramingError):
        ChunkedDecoder().feed(wire + b"x")

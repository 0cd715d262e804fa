"""Traces as a collector gets them: over a real socket, in OTLP's protobuf."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from router.config.telemetry import TracingConfig
from router.telemetry.tracing import TracingSetupError, build_tracing
from tests.conftest import Bitgear, until
from tests.support.client import RawClient, chat, fetch
from tests.support.upstream import Close, Hang, ScriptedUpstream, Send, sends
from tests.support.wire import ChatWire, json_response, response

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Start = Callable[..., Awaitable[Bitgear]]
WIRE = ChatWire("g")
PROMPT = "my-secret-prompt"
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SERVER_KIND, CLIENT_KIND = 2, 3


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.bodies: list[bytes] = []
        self.services: set[str] = set()
        self.headers: list[str] = []
        self.status = 200
        self.answers: asyncio.Event | None = None
        """Without it each request is answered at once, else once it is set."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                self.headers.append(head)
                self.bodies.append(body)
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    self.services.add(attributes(resource.resource)["service.name"])
                    self.spans += [span for scope in resource.scope_spans for span in scope.spans]
                if self.answers is not None:
                    await self.answers.wait()
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % self.status)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def of(self, kind: int) -> list[Any]:
        return sorted((s for s in self.spans if s.kind == kind), key=lambda s: s.start_time_unix_nano)


def attributes(thing: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in thing.attributes}


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    made = Collector()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield made, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/traces"
    server.close()


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g") as server:
        yield server


def tracing(url: str, sample: float = 1.0) -> dict[str, Any]:
    return {"tracing": {"endpoint": url, "sample": sample, "timeout_s": 2}}


async def flushed(gear: Bitgear) -> None:
    await until(lambda: gear.worker.app.inflight == 0)
    gear.worker.app.settle()
    made = gear.worker.tracing
    assert made is not None
    assert await asyncio.to_thread(made._provider.force_flush, 10_000)


async def test_one_server_span_and_one_client_span_join_the_clients_trace_to_the_replica(
    bitgear: Start, up: ScriptedUpstream, collector: tuple[Collector, str]
) -> None:
    made, url = collector
    gear = await bitgear({"fp16": up.url}, config=tracing(url))
    up.always(sends(response(WIRE.stream(["a", "b", "c"], 5, usage=True))))
    headers = [("traceparent", CLIENT), ("tracestate", "vendor=1"), ("x-request-id", "find-me")]
    answer = await fetch(gear.url, "/v1/chat/completions", chat(PROMPT, model="g", stream=True), headers)
    assert answer.status == 200
    await flushed(gear)
    (server,), (attempt,) = made.of(SERVER_KIND), made.of(CLIENT_KIND)
    assert server.trace_id.hex() == attempt.trace_id.hex() == CLIENT.split("-")[1]
    assert server.parent_span_id.hex() == CLIENT.split("-")[2]
    assert attempt.parent_span_id == server.span_id
    sent = up.exchanges[0]
    assert sent.header("traceparent") == f"00-{attempt.trace_id.hex()}-{attempt.span_id.hex()}-01"
    assert sent.header("tracestate") == "vendor=1"
    assert server.name == "chat g"
    told = attributes(server)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "g"
    assert told["gen_ai.response.model"] == "g@fp16"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (5, 3)
    assert told["http.response.status_code"] == 200
    assert told["bitgear.request_id"] == "find-me"
    assert (told["bitgear.variant"], told["bitgear.precision"], told["bitgear.reason"]) == (
        "fp16",
        "fp16",
        "within_limits",
    )
    assert (told["bitgear.risk"], told["bitgear.propensity"], told["bitgear.scenario"]) == (0.0, 1.0, "realtime")
    assert "error.type" not in told
    assert [e.name for e in server.events] == ["cache.lookup", "first_token"]
    up_told = attributes(attempt)
    assert (up_told["server.address"], up_told["server.port"]) == ("127.0.0.1", up.port)
    assert (up_told["gen_ai.provider.name"], up_told["gen_ai.request.model"]) == ("vllm", "g")
    assert server.start_time_unix_nano <= attempt.start_time_unix_nano <= attempt.end_time_unix_nano
    assert attempt.end_time_unix_nano <= server.end_time_unix_nano
    assert made.services == {"bitgear"}
    assert not any(PROMPT.encode() in body for body in made.bodies)


async def test_each_attempt_is_a_span_and_the_failed_one_says_so(
    bitgear: Start, up: ScriptedUpstream, collector: tuple[Collector, str]
) -> None:
    made, url = collector
    async with ScriptedUpstream("g") as other:
        gear = await bitgear({"fp16": [up.url, other.url]}, config=tracing(url))
        up.always([Send(json_response(b"{}", 500))])
        other.always([Send(json_response(WIRE.answer()))])
        for _ in range(2):
            assert (await fetch(gear.url, "/v1/chat/completions", chat(model="g"))).status == 200
        await flushed(gear)
        assert len(made.of(SERVER_KIND)) == 2
        assert len(made.of(CLIENT_KIND)) == 3
        failed = [s for s in made.of(CLIENT_KIND) if s.status.code == 2]
        assert [attributes(s)["server.port"] for s in failed] == [up.port]
        assert all(attributes(s)["error.type"] for s in failed)
        assert [attributes(s)["bitgear.attempts"] for s in made.of(SERVER_KIND)] in ([2, 1], [1, 2])
        assert len({s.trace_id for s in made.spans}) == 2


@pytest.mark.parametrize(
    ("body", "script", "error", "status_code"),
    [
        (chat(model="nope"), [], "404", 0),
        (chat(model="g"), [Close()], "502", 2),
        (chat(model="g", stream=True), [*sends(response([WIRE.content("a")])[:-1]), Close()], "broken_stream", 2),
    ],
)
async def test_errors_are_told_and_only_the_servers_own_count_as_such(
    bitgear: Start,
    up: ScriptedUpstream,
    collector: tuple[Collector, str],
    body: dict[str, Any],
    script: list[Any],
    error: str,
    status_code: int,
) -> None:
    made, url = collector
    gear = await bitgear({"fp16": up.url}, config=tracing(url))
    up.always(script)
    await fetch(gear.url, "/v1/chat/completions", body)
    await flushed(gear)
    (server,) = made.of(SERVER_KIND)
    assert attributes(server)["error.type"] == error
    assert server.status.code == status_code


async def test_a_client_that_leaves_ends_its_spans(
    bitgear: Start, up: ScriptedUpstream, collector: tuple[Collector, str]
) -> None:
    made, url = collector
    gear = await bitgear({"fp16": up.url}, config=tracing(url))
    up.always([Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", "/v1/chat/completions", chat(model="g"))
        await up.exchange()
    await flushed(gear)
    assert attributes(made.of(SERVER_KIND)[0])["error.type"] == "499"
    assert len(made.of(CLIENT_KIND)) == 1


async def test_the_client_decides_on_sampling_and_without_it_the_share_does(
    bitgear: Start, up: ScriptedUpstream, collector: tuple[Collector, str]
) -> None:
    made, url = collector
    gear = await bitgear({"fp16": up.url}, config=tracing(url, sample=0.0))
    up.always([Send(json_response(WIRE.answer()))])
    for traceparent in (CLIENT, CLIENT[:-2] + "00", "garbage", None):
        headers = [("traceparent", traceparent)] if traceparent else []
        assert (await fetch(gear.url, "/v1/chat/completions", chat(model="g"), headers)).status == 200
    await flushed(gear)
    assert len(made.of(SERVER_KIND)) == 1
    seen = [e.header("traceparent") or "" for e in up.exchanges]
    # The lowest bit says sampled.
    assert [int(s[-2:], 16) & 1 for s in seen] == [1, 0, 0, 0]
    assert seen[0][3:35] == seen[1][3:35] == CLIENT[3:35]
    assert len({s[3:35] for s in seen}) == 3


async def test_a_collector_that_is_away_or_refuses_costs_no_request(
    bitgear: Start, up: ScriptedUpstream, collector: tuple[Collector, str]
) -> None:
    made, url = collector
    made.status = 400
    gear = await bitgear({"fp16": up.url}, config=tracing(url))
    up.always([Send(json_response(WIRE.answer()))])
    assert (await fetch(gear.url, "/v1/chat/completions", chat(model="g"))).status == 200
    await flushed(gear)
    assert gear.worker.tracing is not None
    assert gear.worker.tracing.counts() == (0, 2)
    text = (await fetch(gear.admin_url, "/metrics")).body.decode()
    assert 'bitgear_spans_total{result="failed"} 2.0' in text


async def test_a_collector_that_hangs_costs_no_request_and_little_memory(
    bitgear: Start, up: ScriptedUpstream, collector: tuple[Collector, str]
) -> None:
    made, url = collector
    made.answers = asyncio.Event()
    config = tracing(url)
    config["tracing"].update(queue=64, timeout_s=60)
    up.always([Send(json_response(WIRE.answer()))])
    gear = await bitgear({"fp16": up.url}, config=config)
    answers = [await fetch(gear.url, "/v1/chat/completions", chat(model="g")) for _ in range(100)]
    await until(lambda: bool(made.bodies))
    # The collector has a batch and says nothing: of 200 spans more 64 may wait.
    answers += [await fetch(gear.url, "/v1/chat/completions", chat(model="g")) for _ in range(100)]
    assert {a.status for a in answers} == {200}
    gear.worker.app.settle()
    assert gear.worker.tracing is not None
    (processor,) = gear.worker.tracing._provider._active_span_processor._span_processors
    assert len(processor._batch_processor._queue) == 64
    assert gear.worker.tracing.counts() == (0, 0)
    made.answers.set()
    await flushed(gear)
    sent, failed = gear.worker.tracing.counts()
    assert 64 < sent < 200
    assert failed == 0


async def test_without_tracing_the_clients_context_passes_as_it_came(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    assert gear.worker.tracing is None
    up.always([Send(json_response(WIRE.answer()))])
    await fetch(gear.url, "/v1/chat/completions", chat(model="g"), [("traceparent", CLIENT)])
    assert up.exchanges[0].header("traceparent") == CLIENT


def test_without_the_packages_the_worker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracingSetupError, match=r"pip install 'bitgear\[otel\]'"):
        build_tracing(TracingConfig(endpoint="http://127.0.0.1:1/v1/traces"), {})
    assert build_tracing(TracingConfig(), {}) is None


async def test_headers_for_the_collector_come_from_the_environment(collector: tuple[Collector, str]) -> None:
    made, url = collector
    config = TracingConfig(endpoint=url, headers_env="OTEL_KEYS", sample=1.0)
    built = build_tracing(config, {"OTEL_KEYS": "authorization=Bearer abc, x-team = 7"})
    assert built is not None
    from router.proxy.outcome import Outcome
    from router.proxy.surface import CHAT

    outcome = Outcome("id", CHAT, began=1.0, ended=2.0, status=400, error="x")
    built.begin([], outcome, "POST").finish(outcome)
    await built.close()
    assert "Bearer abc" in made.headers[0]
    assert re.search(r"x-team: 7\r", made.headers[0], re.IGNORECASE)

"""What is told of a request: one event, one line when it failed, and never its words or a key."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from router.config.runtime import Runtime, RuntimeVariant
from router.decision import POLICIES, Candidate, Decision, Exploration, RequestFacts, Scenario
from router.proxy.deciding import Question
from router.proxy.outcome import Outcome
from router.proxy.resolve import Target
from router.proxy.surface import CHAT
from router.proxy.usage import Usage
from router.state import Fleet
from router.telemetry import Metrics, Telemetry, event_of
from tests.conftest import Bitgear, until
from tests.support.client import RawClient, chat, fetch
from tests.support.upstream import Close, Hang, ScriptedUpstream, Send, Step, sends
from tests.support.wire import ChatWire, error_body, json_response, response

Start = Callable[..., Awaitable[Bitgear]]
PROMPT, KEY = "my-secret-prompt", "sk-client-key"
WIRE = ChatWire("g")


class Sink:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, object]] = []
        self.found_by: list[Mapping[str, object]] = []

    def put(self, event: Mapping[str, object]) -> None:
        self.events.append(event)

    def put_index(self, event: Mapping[str, object]) -> None:
        self.found_by.append(event)


@pytest.fixture
def outcome() -> Outcome:
    spec = RuntimeVariant(group="g", variant="int8", precision="int8", urls=("http://127.0.0.1:9",), served_model="m")
    group = Fleet(Runtime(variants=(spec,)), {}, {}).groups["g"]
    variant = group.variants["int8"]
    candidate = Candidate("int8", "int8", True, 0.123457, 0.5, True, True, True, 0.1, 0.2, 0.3, 8.0)
    decision = Decision(
        "int8", "within_limits", 0.12, 0.5, "realtime", "v7", (candidate,), 0.9, (0.9,), True, "canary", {"int8": 0.5}
    )
    facts = RequestFacts(90, 30, 22, 64, None, 0.4)
    target = Target(group, "g", None, Scenario("realtime", 1.0, None, "quality"))
    asked = Question(target, facts, {"int8": 0.123457}, 90.0, POLICIES["adaptive"], 0.25, 0.01, Exploration(0.02, 0.3))
    return Outcome(
        "id-1",
        CHAT,
        began=9.9,
        group=group,
        decision=decision,
        question=asked,
        risks={"int8": 0.123457},
        stream=True,
        variant=variant,
        replica=variant.replicas[0],
        attempts=2,
        first_token_at=10.5,
        last_token_at=12.4,
        ended=12.5,
        usage=Usage(100, 20),
        status=200,
    )


async def test_an_event_holds_the_decision_and_what_became_of_it(outcome: Outcome) -> None:
    event = event_of(outcome)
    assert isinstance(event.pop("t"), float)
    assert event == {
        "id": "id-1",
        "endpoint": "chat.completions",
        "group": "g",
        "variant": "int8",
        "replica": 0,
        "stream": True,
        "attempts": 2,
        "status": 200,
        "error": None,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "ttft_ms": 600.0,
        "itl_ms": 100.0,
        "e2e_ms": 2600.0,
        "risks": {"int8": 0.123457},
        "scenario": "realtime",
        "policy": "v7",
        "reason": "within_limits",
        "propensity": 0.9,
        "candidates": [["int8", True, 0.123457, 0.5, 0.1, 0.2, "int8", 8.0, True, False, 0.3, 0.9]],
        "arm": "canary",
        "explored": True,
        "thresholds": {"int8": 0.5},
        "draw": 0.25,
        "dice": 0.01,
        "exploration": [0.02, 0.3],
        "targets": [1.0, None, "quality", "cheapest"],
        "request": [90, 30, 22, 64, None, 0.4, 0],
        "generates": True,
    }
    json.dumps(event, allow_nan=False)


async def test_an_event_of_a_request_that_got_nowhere(outcome: Outcome) -> None:
    empty = Outcome("id-2", CHAT, began=1.0, ended=1.5, status=400, error="invalid_json")
    event = event_of(empty)
    assert (event["variant"], event["ttft_ms"], event["e2e_ms"], event["status"]) == (None, None, 500.0, 400)
    json.dumps(event, allow_nan=False)


async def test_only_decided_requests_become_events(outcome: Outcome) -> None:
    sink = Sink()
    telemetry = Telemetry(Metrics(None), sink, logging.getLogger("test"))
    telemetry.finished(outcome)
    telemetry.finished(Outcome("id-2", CHAT, began=1.0, ended=1.5, status=400, error="x"))
    assert [e["id"] for e in sink.events] == ["id-1"]


@pytest.mark.parametrize(
    ("status", "error", "level"),
    [
        (200, None, None),
        (499, "client_left", None),
        (400, "invalid_json", logging.INFO),
        (429, "rate_limit_exceeded", logging.INFO),
        (502, "upstream_error", logging.WARNING),
        (200, "closed", logging.WARNING),
    ],
)
async def test_one_line_for_a_failure_none_for_a_success(
    outcome: Outcome, caplog: pytest.LogCaptureFixture, status: int, error: str | None, level: int | None
) -> None:
    caplog.set_level(logging.DEBUG, "test")
    outcome.status, outcome.error = status, error
    Telemetry(Metrics(None), None, logging.getLogger("test")).log_end(outcome)
    assert [r.levelno for r in caplog.records] == ([] if level is None else [level])
    assert all("id=id-1" in r.getMessage() for r in caplog.records)


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(ScriptedUpstream("g"))


def quoting(status: int) -> list[Step]:
    return [Send(json_response(error_body(f"your prompt was {PROMPT}, your key {KEY}", "x", None, status), status))]


QUESTION: dict[str, Any] = chat(PROMPT, model="g")
FAILURES: list[tuple[str, Any, list[Step], int]] = [
    ("bad JSON", b'{"model":"g","messages":"%b' % PROMPT.encode(), [], 400),
    ("wrong type", {**QUESTION, "stream": PROMPT}, [], 400),
    ("unknown model", {**QUESTION, "model": "nope"}, [], 404),
    ("the replica's 400", QUESTION, quoting(400), 400),
    ("the replica's 500", QUESTION, quoting(500), 502),
    ("the replica's 401", QUESTION, quoting(401), 502),
    ("the replica's 429", QUESTION, quoting(429), 429),
    ("closed", QUESTION, [Close()], 502),
    ("no HTTP", QUESTION, [Send(PROMPT.encode() + b"\r\n\r\n")], 502),
    ("silent", QUESTION, [Hang()], 504),
    (
        "error in the stream",
        {**QUESTION, "stream": True},
        sends(response([WIRE.content(PROMPT), WIRE.error(PROMPT)])),
        200,
    ),
    ("broken stream", {**QUESTION, "stream": True}, [*sends(response([WIRE.content(PROMPT)])[:-1]), Close()], 200),
]


@pytest.mark.parametrize(("body", "script", "status"), [f[1:] for f in FAILURES], ids=[f[0] for f in FAILURES])
async def test_a_failure_is_one_line_with_its_id_and_no_line_holds_a_prompt_or_a_key(
    bitgear: Start,
    up: ScriptedUpstream,
    caplog: pytest.LogCaptureFixture,
    body: Any,
    script: list[Step],
    status: int,
) -> None:
    caplog.set_level(logging.DEBUG)
    timeouts = {"first_token_s": 0.2, "total_s": 0.3}
    gear = await bitgear({"fp16": up.url}, config={"breaker": {"failures": 100}, "timeouts": timeouts})
    up.always(script)
    headers = [("authorization", f"Bearer {KEY}"), ("x-request-id", "find-me")]
    answer = await fetch(gear.url, "/v1/chat/completions", body, headers)
    assert answer.status == status
    await until(lambda: any("request failed" in r.getMessage() for r in caplog.records))
    lines = [r for r in caplog.records if r.name.startswith("bitgear")]
    failed = [r.getMessage() for r in lines if "request failed" in r.getMessage()]
    assert len(failed) == 1
    assert "id=find-me" in failed[0]
    assert all("id=find-me" in r.getMessage() for r in lines if "attempt failed" in r.getMessage())
    assert all(r.exc_info is None for r in lines)
    told = "\n".join(f"{r.getMessage()} {r.args} {r.exc_text}" for r in caplog.records)
    assert PROMPT not in told
    assert KEY not in told


async def test_a_client_that_leaves_is_no_failure(
    bitgear: Start, up: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bitgear")
    gear = await bitgear({"fp16": up.url})
    up.always([Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", "/v1/chat/completions", QUESTION)
        await up.exchange()
    await until(lambda: gear.worker.app.inflight == 0)
    assert not any("failed" in r.getMessage() for r in caplog.records)


async def test_a_mistake_of_ours_is_a_500_with_one_traceback(
    bitgear: Start, up: ScriptedUpstream, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gear = await bitgear({"fp16": up.url})

    def broken(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(gear.worker.serving.decider, "question", broken)
    answer = await fetch(gear.url, "/v1/chat/completions", QUESTION, [("x-request-id", "find-me")])
    assert (answer.status, answer.json()["error"]["code"]) == (500, "internal_error")
    assert b"ours" not in answer.body
    tracebacks = [r for r in caplog.records if r.exc_info]
    assert len(tracebacks) == 1
    assert "id=find-me" in tracebacks[0].getMessage()
    assert gear.worker.app.inflight == 0

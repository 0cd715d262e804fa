"""Log lines: one JSON object each, whatever is in them; one for each request where that is asked for."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.telemetry.logs import JsonFormatter, say
from tests.conftest import Bitgear, until
from tests.support.client import chat, fetch
from tests.support.upstream import ScriptedUpstream, Send
from tests.support.wire import ChatWire, json_response

Start = Callable[..., Awaitable[Bitgear]]


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g") as server:
        yield server


@given(st.text(), st.text())
def test_any_text_is_one_line_of_json(message: str, value: str) -> None:
    message, value = (t.encode("utf-8", "replace").decode() for t in (message, value))
    record = logging.LogRecord("bitgear", logging.WARNING, "f", 1, "%s", (message,), None)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == message
    record.event, record.fields = "attempt failed", {"cause": value, "n": 3}
    told = json.loads(JsonFormatter().format(record))
    assert (told["event"], told["cause"], told["n"], told["level"]) == ("attempt failed", value, 3, "warning")
    assert "message" not in told


def test_an_exception_stays_in_its_line() -> None:
    try:
        raise RuntimeError("ours")
    except RuntimeError:
        record = logging.LogRecord("bitgear", logging.ERROR, "f", 1, "failed: id=%s", ("x",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "RuntimeError: ours" in json.loads(line)["exception"]


def test_a_line_with_an_exception_has_its_fields_too(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError("ours")
    except RuntimeError:
        say(logging.getLogger("bitgear"), logging.ERROR, "failed", trace=True, id="a")
    told = json.loads(JsonFormatter().format(caplog.records[-1]))
    assert (told["event"], told["id"], "RuntimeError: ours" in told["exception"]) == ("failed", "a", True)


def test_the_same_line_for_people(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bitgear")
    say(logging.getLogger("bitgear"), logging.INFO, "request", id="a", status=200)
    assert [r.getMessage() for r in caplog.records] == ["request: id=a status=200"]


@pytest.mark.parametrize("access", [True, False])
async def test_one_line_a_request_where_asked_for(
    bitgear: Start, up: ScriptedUpstream, caplog: pytest.LogCaptureFixture, access: bool
) -> None:
    caplog.set_level(logging.INFO, "bitgear")
    gear = await bitgear({"fp16": up.url}, config={"logging": {"access": access}})
    up.always([Send(json_response(ChatWire("g").answer(prompt=7, completion=3)))])
    headers = [("x-request-id", "find-me"), ("authorization", "Bearer sk-secret")]
    await fetch(gear.url, "/v1/chat/completions", chat("my-secret-prompt", model="g"), headers)
    await until(lambda: gear.worker.app.inflight == 0)
    lines = [json.loads(JsonFormatter().format(r)) for r in caplog.records if getattr(r, "event", "") == "request"]
    assert len(lines) == access
    for line in lines:
        assert (line["id"], line["status"], line["variant"], line["completion_tokens"]) == ("find-me", 200, "fp16", 3)
        assert line["e2e_ms"] > 0
        assert "secret" not in json.dumps(line)


def test_a_worker_writes_as_configured() -> None:
    code = (
        "import logging, sys; from router.config.telemetry import LoggingConfig; from router.telemetry.logs import *;"
        "configure(LoggingConfig(format=sys.argv[1], level='warning'));"
        "logging.getLogger('bitgear').info('no'); logging.getLogger('bitgear').warning('yes')"
    )
    for form, expected in (("json", '"message":"yes"'), ("text", "WARNING yes")):
        done = subprocess.run(
            [sys.executable, "-c", code, form], capture_output=True, text=True, timeout=60, check=True
        )
        assert expected in done.stderr
        assert len(done.stderr.splitlines()) == 1

"""A changed configuration reaches what lives as long as its worker: feedback, shadow pairs, events, logs, prices, drift."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.conftest import until
from tests.router.admin.conftest import Operator
from tests.support.client import chat, fetch

CHAT = "/v1/chat/completions"


async def change(operator: Operator, patch: dict[str, Any]) -> None:
    answer = await operator("PATCH", "/admin/config", patch, if_match="*")
    assert answer.status_code == 200, answer.text


async def say(operator: Operator, **more: Any) -> tuple[int, Any]:
    asked = await fetch(operator.gear.url, CHAT, chat(model="g"))
    body = {"request_id": asked.head.get("x-request-id"), "thumbs": "up", **more}
    answer = await fetch(operator.gear.url, "/v1/feedback", body)
    return answer.status, json.loads(answer.body)


async def test_feedback_is_switched_off_and_on(operator: Operator) -> None:
    assert (await say(operator))[0] == 200
    await change(operator, {"feedback": {"enabled": False}})
    status, body = await say(operator)
    assert (status, body["error"]["code"]) == (404, "feedback_off")
    await change(operator, {"feedback": {"enabled": True, "comment_chars": 3}})
    assert (await say(operator, comment="longer"))[0] == 200
    worker = operator.gear.worker
    assert worker.quality._inbox.settings.comment_chars == 3
    assert worker.quality.index.settings.enabled


async def test_shadow_share_and_judges_hold_at_once(operator: Operator) -> None:
    worker = operator.gear.worker
    shadow = worker.quality.shadow
    assert shadow._share == 0.0
    await change(operator, {"shadow": {"judges": ["match"], "max_load": 0.9}, "tuning": {"mode": "manual"}})
    assert (shadow._share, [name for name, _ in shadow._judges], shadow._settings.max_load) == (0.02, ["match"], 0.9)
    await change(operator, {"shadow": {"share": 1.0, "judges": ["llm"], "judge_model": "m", "judge_url": "http://h:1"}})
    assert shadow._share == 1.0
    assert len(worker.quality._servers) == 1
    first = worker.quality._servers
    await change(operator, {"shadow": {"share": 0.5}})
    assert worker.quality._servers is first
    await change(operator, {"shadow": None, "tuning": None})
    assert (shadow._share, worker.quality._servers) == (0.0, [])


async def test_events_prices_and_the_inner_loop_follow(operator: Operator) -> None:
    worker = operator.gear.worker
    await change(
        operator,
        {
            "events": {"max_per_s": 1e-6, "max_length": 200},
            "cost": {"gpu_hour": 2.5},
            "tuning": {"inner_loop": {"target": 0.5, "enabled": False}},
            "drift": {"one_in": 0},
        },
    )
    assert (await fetch(operator.gear.url, CHAT, chat(model="g"))).status == 200
    await until(lambda: worker._telemetry.events_left_out == 1)
    assert worker._sink._settings.max_length == 200
    assert worker._metrics._gpu_hour == 2.5
    assert (worker._inner_loop._settings.target, worker._inner_loop._settings.enabled) == (0.5, False)
    assert worker._telemetry.drift is None


async def test_the_access_log_is_switched_on(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    # The real one takes every other handler off, pytest's too.
    monkeypatch.setattr("router.worker.configure", seen.append)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("bitgear")
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        await fetch(operator.gear.url, CHAT, chat(model="g"))
        await change(operator, {"logging": {"access": True, "level": "debug"}})
        await fetch(operator.gear.url, CHAT, chat(model="g"))
        await until(lambda: sum(line.startswith("request:") for line in lines) == 1)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert [config.level for config in seen] == ["debug"]


async def test_the_configuration_says_what_may_change_and_why_not(operator: Operator) -> None:
    shown = (await operator("GET", "/admin/config")).json()["$changes"]
    assert "shadow" in shown["live"]
    assert "sockets" in shown["restart"]["server"]
    answer = await operator("PATCH", "/admin/config", {"events": {"stream": "other"}}, if_match="*")
    assert answer.status_code == 422
    assert "events.stream" in answer.text
    assert shown["restart"]["events.stream"] in answer.text

"""Every answer has the form of the one recorded from vLLM: fields, their order, their kinds, status, error texts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.settings import SimulatorSettings
from backends.simulator import simulated

_RECORDED = Path(__file__).with_name("recorded.txt").read_text(encoding="utf-8")
# Fields whose value is part of the format; of the others only the kind is compared.
_EXACT = {
    "object",
    "type",
    "role",
    "finish_reason",
    "stop_reason",
    "status",
    "service_tier",
    "truncation",
    "param",
    "code",
}
# Maps whose keys are tokens.
_BY_TOKEN = {"prompt_logprobs", "top_logprobs"}


@dataclass(frozen=True)
class Case:
    name: str
    path: str
    request: str
    answer: str
    status: int
    content_type: str


def _cases() -> list[Case]:
    cases = []
    for block in _RECORDED.split("\n## ")[1:]:
        name, head, rest = block.split("\n", 2)
        end = re.search(r"\n?\[HTTP (\d+) (.*)\]\s*$", rest)
        assert end is not None
        path, _, request = head.partition(" ")
        cases.append(Case(name, path, request, rest[: end.start()], int(end[1]), end[2]))
    return cases


def _shape(value: Any, key: str = "") -> Any:
    """What two answers have in common: names in order and kinds; lists are one item of each kind in them."""
    if isinstance(value, dict):
        if key in _BY_TOKEN:
            return ["by token", _distinct([_shape(item) for item in value.values()])]
        return [(name, _shape(item, name)) for name, item in value.items()]
    if isinstance(value, list):
        return _distinct([_shape(item, key) for item in value])
    if isinstance(value, bool) or value is None or key in _EXACT:
        return value
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _error(answer: dict[str, Any]) -> str:
    # vLLM counts fields that it adds itself
    return re.sub(r"<dict of \d+ items>", "<dict>", json.dumps(answer))


def _distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if item not in kept:
            kept.append(item)
    return kept


def _stream(text: str) -> list[Any]:
    """Shapes of the events of a stream, in the order of their first appearance: several choices may interleave."""
    shapes: list[Any] = []
    for event in text.strip().split("\n\n"):
        lines = event.split("\n")
        data = lines[-1].removeprefix("data: ")
        shape = [*lines[:-1], data if data == "[DONE]" else _shape(json.loads(data))]
        shapes.append(shape)
    return _distinct(shapes)


async def _ask(url: str, case: Case) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        if case.request == "-":
            return await client.get(case.path)
        body = case.request.removeprefix("raw:").encode()
        return await client.post(case.path, content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.name)
async def test_the_answer_has_the_form_of_vllms(case: Case) -> None:
    settings = SimulatorSettings(max_model_len=512, time_scale=0)
    async with simulated(settings, model="tiny") as url:
        response = await _ask(url, case)
    assert response.status_code == case.status
    assert response.headers["content-type"] == case.content_type
    if case.content_type.startswith("text/event-stream"):
        assert _stream(response.text) == _stream(case.answer)
        return
    found, expected = response.json(), json.loads(case.answer)
    if case.status >= 400:
        assert _error(found) == _error(expected)
    else:
        assert _shape(found) == _shape(expected)


@pytest.mark.parametrize("name", ["chat", "stream-usage", "stream-continuous", "completions", "messages", "responses"])
async def test_bytes_are_spaced_as_vllms(name: str) -> None:
    case = next(case for case in _cases() if case.name == name)
    async with simulated(SimulatorSettings(max_model_len=512, time_scale=0), model="tiny") as url:
        found = (await _ask(url, case)).text

    def bare(text: str) -> list[str]:
        # without numbers, hexadecimal ids and what the model said
        text = re.sub(r'"(content|text|delta)":"(?:[^"\\]|\\.)*"', r'"\1":""', text.strip())
        lines = re.sub(r"[0-9a-f]{8,}|\d+", "0", text).replace("m-0", "m").split("\n")
        return list(dict.fromkeys(lines))

    assert bare(found) == bare(case.answer)

"""`bitgear up` with three real vLLM variants: minutes, so marked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import httpx
import openai
import pytest

from backends.wire import parse_vllm_metrics
from tests.e2e.mt_bench import ask_all
from tests.e2e.own_home import own_home

pytestmark = pytest.mark.vllm
GROUP = "smollm2-135m"
VARIANTS = {"fp16", "int8", "int4"}
START_S = 900
TOKEN = "the-operators-token"


@dataclass(frozen=True)
class Up:
    api: str
    admin: str
    process: subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    port, admin_port = free_port(), free_port()
    folder = tmp_path_factory.mktemp("up")
    log = folder / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "bitgear"), "up", "--port", str(port), "--admin-port", str(admin_port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                **own_home(folder),
                "BITGEAR_SCENARIOS__REALTIME__TTFT_MS": "5000",
                "BITGEAR_ADMIN__TOKENS": json.dumps({"tester": {"sha256": sha256(TOKEN.encode()).hexdigest()}}),
            },
        )
    found = Up(f"http://127.0.0.1:{port}", f"http://tester:{TOKEN}@127.0.0.1:{admin_port}", process)
    try:
        end = time.monotonic() + START_S
        while not _all_ready(found):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(1)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def _all_ready(up: Up) -> bool:
    try:
        variants = httpx.get(up.admin + "/admin/variants", timeout=5).json()
    except httpx.HTTPError:
        return False
    return {v["variant"] for v in variants if v["ready"]} == VARIANTS


async def test_mt_bench_is_answered_whole_and_accounted_exactly(up: Up) -> None:
    report = await ask_all(up.api, up.admin, GROUP, max_tokens=32, at_once=6)
    print(report.shares(), report.counted)
    assert len(report.answers) == 80
    for answer in report.answers:
        assert answer.finish_reason in ("stop", "length")
        assert answer.completion_tokens > 0
        # A small model may have nothing to say: its only token then is the end.
        assert answer.text or (answer.finish_reason, answer.completion_tokens) == ("stop", 1)
        assert answer.decision["group"] == GROUP
        assert answer.decision["scenario"] == answer.scenario
        assert answer.decision["reason"]
        assert 0.0 <= float(answer.decision["risk"]) <= 1.0
    assert sum(bool(a.text) for a in report.answers) >= 70
    for variant in VARIANTS:
        assert report.seen(variant) == report.counted[variant] == report.accounted[variant]
    assert sum(prompt for prompt, _ in report.counted.values()) > 0


@pytest.mark.parametrize("precision", sorted(VARIANTS))
async def test_each_pinned_variant_answers_under_the_name_the_client_used(up: Up, precision: str) -> None:
    client = openai.AsyncOpenAI(base_url=up.api + "/v1", api_key="unused")
    model = f"{GROUP}@{precision}"
    answer = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Why is the sky blue?"}], max_tokens=12, temperature=0
    )
    assert answer.model == model
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 12


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_decoding(up: Up, stream: bool) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        server = next(v for v in (await http.get(up.admin + "/admin/variants")).json() if v["variant"] == "int8")
        metrics_url = server["replicas"][0]["url"] + "/metrics"

        async def running() -> float:
            metrics = parse_vllm_metrics((await http.get(metrics_url)).content)
            assert metrics is not None
            return metrics.running

        body = {
            "model": f"{GROUP}@int8",
            "messages": [{"role": "user", "content": "Count to a thousand."}],
            "max_tokens": 2000,
            "ignore_eos": True,
            "stream": stream,
        }
        request = asyncio.create_task(http.post(up.api + "/v1/chat/completions", json=body, timeout=120))
        async with asyncio.timeout(30):
            while await running() < 1:
                await asyncio.sleep(0.1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        left = time.monotonic()
        async with asyncio.timeout(10):
            while await running() > 0:
                await asyncio.sleep(0.05)
        # About a second on an idle machine; vLLM looks for aborted requests between steps.
        assert time.monotonic() - left < 5


async def test_too_long_a_prompt_gets_vllms_own_400(up: Up) -> None:
    client = openai.AsyncOpenAI(base_url=up.api + "/v1", api_key="unused")
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        await client.chat.completions.create(
            model=GROUP, messages=[{"role": "user", "content": "word " * 30000}], max_tokens=5
        )

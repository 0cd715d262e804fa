"""The simulator as the process that `bitgear up` starts."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import psutil
import pytest

from backends.simulator.__main__ import main

_STREAMS = 1000
_TOKENS = 30


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A simulator process and its base URL."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "backends.simulator", "--port", "0", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert started.stdout is not None
        line = await asyncio.wait_for(started.stdout.readline(), 60)
        yield started, line.decode().split()[-1]
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def test_it_serves_under_the_names_given_and_ends_when_told() -> None:
    arguments = ("--model", "qwen", "--alias", "qwen@int8", "--precision", "int8", "--settings", '{"time_scale": 0}')
    async with process(*arguments) as (started, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            models = (await client.get("/v1/models")).json()["data"]
            assert [model["id"] for model in models] == ["qwen", "qwen@int8"]
            body = {"model": "qwen@int8", "messages": [{"role": "user", "content": "hi"}]}
            answer = (await client.post("/v1/chat/completions", json=body)).json()
            assert answer["choices"][0]["message"]["content"].startswith("[simulated int8]")
        started.terminate()
        assert await asyncio.wait_for(started.wait(), 60) == 0


async def stream(url: str, body: bytes) -> int:
    """Tokens that came in a stream that was complete."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    got = bytearray()
    while not got.endswith(b"0\r\n\r\n") and (piece := await reader.read(65536)):
        got += piece
    writer.close()
    assert b"data: [DONE]" in got
    return got.count(b'"token_ids":null')


async def test_a_thousand_streams_at_once_on_part_of_a_core() -> None:
    settings = {"max_num_seqs": 1024, "kv_cache_gib": 400, "overhead_ms": 100, "efficiency": 1.0}
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": _TOKENS, "ignore_eos": True, "stream": True}
    async with process("--settings", json.dumps(settings)) as (started, url), asyncio.timeout(60):
        asking = [asyncio.create_task(stream(url, json.dumps(body).encode())) for _ in range(_STREAMS)]
        most = 0
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            while not all(task.done() for task in asking) and most < _STREAMS:
                most = max(most, (await client.get("/sim/state")).json()["running"])
            counts = await asyncio.gather(*asking)
            state = (await client.get("/sim/state")).json()
        cpu = psutil.Process(started.pid).cpu_times()
        print(f"{_STREAMS} streams of {_TOKENS} tokens: {cpu.user + cpu.system:.1f} s of CPU")
    assert counts == [_TOKENS] * _STREAMS
    assert most == _STREAMS
    assert (state["running"], state["waiting"], state["generation_tokens"]) == (0, 0, _STREAMS * _TOKENS)
    # 100 ms and more a step: the streams took at least 3 s
    assert cpu.user + cpu.system < 6


def test_a_prediction_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--predict", "--context", "256"]) == 0
    assert "INT8 overtakes INT4" in capsys.readouterr().out


def test_settings_that_make_no_sense_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", '{"max_num_seqs": 0}']) == 2
    assert "max_num_seqs" in capsys.readouterr().err


def test_a_taken_address_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err

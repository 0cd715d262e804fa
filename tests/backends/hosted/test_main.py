"""The sidecar as the process that `bitgear up` starts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from backends.hosted.__main__ import main
from backends.simulator import simulated


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


STAND_IN = """
import json
import urllib.request
from types import SimpleNamespace

model_cost = {}

def asked(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)

async def acompletion(*, model, api_base, api_key, messages, max_tokens, **_):
    import asyncio
    assert api_key == "sk-x"
    body = {"model": model.removeprefix("openai/"), "messages": messages, "max_tokens": max_tokens}
    found = await asyncio.to_thread(asked, f"{api_base}/chat/completions", body)
    return SimpleNamespace(model_dump=lambda warnings: found)
"""
"""What the process needs of litellm here. `test_provider.py` is about litellm itself, which takes ten seconds to import."""


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_it_serves_and_ends_when_told(tmp_path: Path, real: bool) -> None:
    # Looked for, not imported: it is the other process that needs it.
    if real and find_spec("litellm") is None:
        pytest.skip("the extra `hosted`")
    environment = {**os.environ, "THEIR_KEY": "sk-x"}
    if not real:
        (tmp_path / "litellm.py").write_text(STAND_IN)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    port = free_port()
    async with simulated(model="theirs") as theirs:
        settings = {"target": "openai/theirs", "api_base": f"{theirs}/v1", "api_key_env": "THEIR_KEY"}
        arguments = ("--port", str(port), "--model", "g", "--alias", "g@hosted", "--settings", json.dumps(settings))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "backends.hosted", *arguments, env=environment
        )
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                async with asyncio.timeout(240):
                    while True:
                        assert process.returncode is None
                        try:
                            assert (await client.get("/health")).status_code == 200
                            break
                        except httpx.ConnectError:
                            await asyncio.sleep(0.1)
                body = {"model": "g@hosted", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
                answer = (await client.post("/v1/chat/completions", json=body)).json()
                assert answer["model"] == "g@hosted"
                assert answer["choices"][0]["message"]["content"].startswith("[simulated fp16]")
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 60) in (0, -15)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("{", "JSON"),
        ('{"nope": 1}', "nope"),
        ("{}", "target is missing"),
        ('{"target": "openai/x", "timeout_s": 0}', "timeout_s"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "g", "--settings", settings]) == 2
    assert named in capsys.readouterr().err


def test_without_litellm_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    assert main(["--model", "g", "--settings", '{"target": "openai/x"}']) == 3
    assert "bitgear[hosted]" in capsys.readouterr().err

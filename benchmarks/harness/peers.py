"""Who is measured: Bitgear, the baselines of `peers/`, and other gateways where they are installed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from harness.native import Stub
from harness.processes import Process, StartError, free_ports, spawn, wait_http

MODEL = "stub"
PEERS_DIR = Path(__file__).resolve().parent.parent / "peers"
PRECISIONS = ("fp16", "int8", "int4")


@dataclass(frozen=True, slots=True)
class Peer:
    """A running proxy, or the stub itself."""

    name: str
    port: int
    process: Process | None = None
    key: str | None = None

    @property
    def pid(self) -> int | None:
        """Root of the process tree that is measured; None for the stub itself."""
        return self.process.pid if self.process else None


@dataclass(frozen=True, slots=True)
class Setting:
    """Where peers run: the stub behind them, a folder for logs and configurations, a core."""

    stub: Stub
    folder: Path
    cpu: int | None = None
    workers: int = 1
    extra_config: dict[str, object] = field(default_factory=dict)


def direct(setting: Setting) -> Peer:
    """The stub without a proxy."""
    return Peer("direct", setting.stub.ports[0])


def bitgear(setting: Setting) -> Peer:
    """Bitgear in front of the stub as one model at three precisions, with its defaults and nothing kept from before."""
    port, admin = free_ports(2)
    home = setting.folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    backends = [
        {"precision": precision, "urls": [url]}
        for precision, url in zip(PRECISIONS, (setting.stub.urls * len(PRECISIONS))[: len(PRECISIONS)], strict=True)
    ]
    config = {
        "server": {"port": port, "workers": setting.workers},
        "admin": {"port": admin},
        "local": {"home": str(home)},
        "groups": {MODEL: {"backends": backends}},
        **setting.extra_config,
    }
    path = setting.folder / "bitgear.yaml"
    setting.folder.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    argv = [str(Path(sys.executable).parent / "bitgear"), "serve", "--config", str(path)]
    return _started("bitgear", argv, port, setting)


def fastapi_httpx(setting: Setting) -> Peer:
    """FastAPI and httpx: the twenty-line proxy."""
    return _uvicorn("fastapi-httpx", "fastapi_httpx:app", setting)


def raw_asgi(setting: Setting) -> Peer:
    """Raw ASGI and a pooled client, nothing else."""
    return _uvicorn("raw-asgi", "raw_asgi:app", setting)


def litellm(setting: Setting) -> Peer:
    """LiteLLM's proxy, from the virtual environment `$LITELLM_VENV`."""
    (port,) = free_ports(1)
    key = "sk-" + secrets.token_hex(24)
    path = setting.folder / "litellm.yaml"
    params = {"model": f"openai/{MODEL}", "api_base": f"{setting.stub.urls[0]}/v1", "api_key": "none"}
    path.write_text(yaml.safe_dump({"model_list": [{"model_name": MODEL, "litellm_params": params}]}))
    argv = [
        _venv("LITELLM_VENV", "litellm"),
        "--config",
        str(path),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]
    return _started(
        "litellm", argv, port, setting, {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": key}, key
    )


def vllm_router(setting: Setting) -> Peer:
    """vLLM's router (Rust), from the virtual environment `$VLLM_ROUTER_VENV`."""
    port, metrics = free_ports(2)
    argv = [
        _venv("VLLM_ROUTER_VENV", "vllm-router"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--worker-urls",
        setting.stub.urls[0],
    ]
    argv += ["--policy", "round_robin", "--prometheus-port", str(metrics), "--log-level", "warn"]
    return _started("vllm-router", argv, port, setting)


PEERS: dict[str, Callable[[Setting], Peer]] = {
    "direct": direct,
    "bitgear": bitgear,
    "raw-asgi": raw_asgi,
    "fastapi-httpx": fastapi_httpx,
    "vllm-router": vllm_router,
    "litellm": litellm,
}
DEFAULT_PEERS = ("direct", "bitgear", "raw-asgi", "fastapi-httpx")


def _uvicorn(name: str, app: str, setting: Setting) -> Peer:
    (port,) = free_ports(1)
    options = [
        "--port",
        str(port),
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--no-access-log",
        "--log-level",
        "warning",
    ]
    argv = [sys.executable, "-m", "uvicorn", "--app-dir", str(PEERS_DIR), app, *options]
    return _started(name, argv, port, setting, {"UPSTREAM": setting.stub.urls[0]})


def _venv(variable: str, program: str) -> str:
    folder = os.environ.get(variable)
    path = Path(folder or "", "bin", program)
    if not folder or not path.exists():
        raise StartError(f"{program}: set {variable} to a virtual environment that has it")
    return str(path)


def _started(
    name: str, argv: list[str], port: int, setting: Setting, env: dict[str, str] | None = None, key: str | None = None
) -> Peer:
    process = spawn(name, argv, setting.folder, env, setting.cpu)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()
    try:
        wait_http(
            f"http://127.0.0.1:{port}/v1/chat/completions", 90, process, body, {"authorization": f"Bearer {key or 'x'}"}
        )
    except StartError:
        process.stop()
        raise
    time.sleep(0.2)
    return Peer(name, port, process, key)

"""Fixtures of all tests: a real worker on real sockets, in the test's own uvloop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from redis import Redis

from classifier.artefact import FOLDER, Artefact, read
from router.admin.app import build_admin_app, build_routes
from router.admin.auth import Tokens
from router.admin.context import Admin
from router.admin.holder import Holders
from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from router.store.valkey import PrivateValkey
from router.worker import Worker
from tests.support.held_up import pytest_runtest_protocol

__all__ = ["pytest_runtest_protocol"]

TOKEN = "the-operators-token"
SMALL_BUFFER = 4096
"""Bytes of a socket's buffer under `small_buffers`; a client asks for as little itself."""
FAST = {
    "admin": {"tokens": {"tester": {"sha256": sha256(TOKEN.encode()).hexdigest(), "role": "write"}}},
    "health": {"metrics_interval_s": 0.05, "probe_interval_s": 0.05, "probe_timeout_s": 30},
    # A server that is late because the machine is busy is not away: only what is about that has short limits.
    "redis": {"timeout_s": 10},
    "cache": {"timeout_ms": 10_000},
}

# A loaded machine is slow now and then: time is measured where a test is about time. In continuous integration each
# test tries the same examples every time, so that only a change turns it red; elsewhere each run tries others.
settings.register_profile(
    "bitgear", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("bitgear")


_ADMIN: ContextVar[Admin] = ContextVar("admin")
"""Of the worker whose admin address is asked."""


class _Asked:
    """Stands for the one that is asked, in the routes that all workers of the process share."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_ADMIN.get(), name)


class _SharedRoutes:
    """A worker's admin application, whose routes were built once for all workers: that takes a tenth of a second."""

    def __init__(self, admin: Admin, tokens: Tokens, people: Holders | None = None) -> None:
        self._admin = admin
        self._app = build_admin_app(admin, tokens, people)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        _ADMIN.set(self._admin)
        await self._app(scope, receive, send)


@pytest.fixture(scope="session", autouse=True)
def _quick_workers() -> Iterator[None]:
    """Hundreds of workers start in one process: the classifiers that are shipped are read once for all of them.

    So are the admin API's routes built.
    """
    shared = cache(lambda: build_routes(_Asked()))  # type: ignore[arg-type]
    once: dict[Path, Artefact] = {}

    def read_once(path: Path) -> Artefact:
        if path.parent != FOLDER:
            return read(path)
        if path not in once:
            once[path] = read(path)
        return once[path]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("classifier.scoring.read", read_once)
        patch.setattr("router.admin.app.build_routes", lambda _: shared())
        patch.setattr("router.worker.build_admin_app", _SharedRoutes)
        yield


LONG = (
    "backends/hosted/",
    "backends/process/",
    "cases/",
    "classifier/test_adapt.py",
    "classifier/test_heads.py",
    "classifier/test_own.py",
    "router/calibration/",
    "router/cli/test_serve.py",
    "router/cli/test_up.py",
    "router/keys/test_concurrent.py",
    "router/store/",
    "router/tuning/",
)
"""Files that take long: they come first, so that at the end no process is left alone with one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first; `--no-loadscope-reorder` keeps xdist to this order."""
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(LONG))


def pytest_collection() -> None:
    """Look after no garbage while hundreds of modules are imported: next to nothing of them is any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look after garbage as a worker's process does: what was imported is never searched, and what is young seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on the loop that the worker runs on."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass(frozen=True)
class Bitgear:
    """A running worker."""

    url: str
    """The API's base URL, without `/v1`."""
    admin_url: str
    """The admin API's base URL, with a token as its password."""
    worker: Worker


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `over` laid on it, section by section."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        out[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return out


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until `condition` holds; fail the test after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would else keep megabytes for a client that does not read."""
    made = socket.socket.listen

    def listen(self: socket.socket, backlog: int) -> None:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        made(self, backlog)

    monkeypatch.setattr(socket.socket, "listen", listen)


def _listen() -> tuple[socket.socket, str]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(4096)
    sock.setblocking(False)
    return sock, f"http://127.0.0.1:{sock.getsockname()[1]}"


@asynccontextmanager
async def running(
    urls: Mapping[str, str | Sequence[str]],
    *,
    config: Mapping[str, Any] | None = None,
    variant: Mapping[str, Any] | None = None,
    redis_url: str | None = None,
    control_file: str | None = None,
    wait: bool = True,
) -> AsyncIterator[Bitgear]:
    """Run a worker for group `g`, whose variants are `urls` by precision; `wait` until every replica is ready."""
    specs = [
        RuntimeVariant(
            group="g",
            variant=precision,
            precision=precision,  # type: ignore[arg-type]
            urls=(url,) if isinstance(url, str) else tuple(url),
            **{"served_model": "g", **(variant or {})},
        )
        for precision, url in urls.items()
    ]
    settings = Config.model_validate(merged(FAST, config or {}))
    told = Runtime(config=settings, variants=tuple(specs), redis_url=redis_url, control_file=control_file)
    worker = Worker(told, logging.getLogger("bitgear"))
    api, url = _listen()
    admin, admin_url = _listen()
    task = asyncio.create_task(worker.serve(api, admin))
    try:
        if wait:
            await until(lambda: task.done() or all(r.ready for v in worker.fleet.variants() for r in v.replicas))
        yield Bitgear(url, admin_url.replace("//", f"//tester:{TOKEN}@"), worker)
    finally:
        worker.stop()
        worker.stop()
        _, late = await asyncio.wait([task], timeout=60)
        if late:
            # What it waits for is worth more than that it is late.
            waiting = "\n".join(f"{t.get_name()}: {t.get_stack()}" for t in asyncio.all_tasks())
            task.cancel()
            raise AssertionError(f"the worker did not end within 60 s:\n{waiting}")
        task.result()


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The interpreter that has vLLM: this one, or the one that BITGEAR_ENGINE_PYTHON names; without any, a skip."""
    given = os.environ.get("BITGEAR_ENGINE_PYTHON")
    if given is None and find_spec("vllm") is None:
        pytest.skip("no vLLM here; BITGEAR_ENGINE_PYTHON can name an interpreter that has it")
    return given or sys.executable


@pytest.fixture(scope="module")
def shared_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateValkey]:
    """A Valkey server for all tests of a module."""
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(shared_valkey: PrivateValkey) -> str:
    """Its URL; it is empty."""
    with Redis.from_url(shared_valkey.url) as client:
        client.flushall()
    return shared_valkey.url


@pytest.fixture
async def bitgear() -> AsyncIterator[Callable[..., Awaitable[Bitgear]]]:
    """A factory with `running`'s arguments; every worker ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(urls: Mapping[str, str | Sequence[str]], **options: Any) -> Bitgear:
            return await stack.enter_async_context(running(urls, **options))

        yield start

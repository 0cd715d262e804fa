"""One proxy process: `python -m router.worker --runtime FILE [--api-fd N --admin-fd N]`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

import classifier
from router.admin.app import build_admin_app
from router.cache.secret import CacheSetupError
from router.config.runtime import Runtime, RuntimeFileError
from router.proxy.app import ProxyApp
from router.proxy.caching import build_caching
from router.proxy.deciding import decider_of
from router.proxy.listener import Listener
from router.state import Fleet, Monitor
from router.store.events import EventSink
from router.telemetry import Metrics, Telemetry

_KEEP_ALIVE_S = 75
"""Longer than common load balancers' idle limit (60 s), so that it is they who close."""
_GAUGES_S = 5.0
_MAX_FILES = 65536


class _Server(uvicorn.Server):
    """Leaves signals to the worker, which runs two servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Worker:
    """Fleet, monitor, telemetry, and the two servers of one process."""

    def __init__(self, runtime: Runtime, log: logging.Logger) -> None:
        config = runtime.config
        self._runtime = runtime
        self._log = log
        scorer = classifier.load(config.classifier.model, config.classifier.artefact)
        self.fleet = Fleet(runtime, os.environ, scorer.thresholds)
        self._monitor = Monitor(self.fleet, config.health, log)
        directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._metrics = Metrics(Path(directory) if directory else None)
        password = os.environ.get(config.redis.password_env) if config.redis.password_env else None
        self._sink = EventSink(runtime.redis_url, config.events, timeout_s=config.redis.timeout_s, password=password)
        self._telemetry = Telemetry(self._metrics, self._sink, log)
        decider = decider_of(scorer, config)
        self.caching = build_caching(runtime, decider, os.environ, log)
        self.app = ProxyApp(self.fleet, decider, config, self._telemetry, self.caching)
        self.admin = build_admin_app(runtime, self.fleet, self._metrics, self._sink.stats, self.caching)
        drain_s = config.server.drain_s
        self._servers = [_server(self.app, drain_s), _server(self.admin, drain_s)]

    def stop(self) -> None:
        """Take no more requests and let the running ones finish; called again: end at once."""
        for server in self._servers:
            server.force_exit = server.should_exit
            server.should_exit = True

    async def serve(self, api: socket.socket, admin: socket.socket) -> None:
        """Serve both addresses until `stop`."""
        self._sink.start()
        self.caching.start()
        self._monitor.start()
        gauges = asyncio.create_task(self._refresh_gauges())
        self._log.info("worker serves: pid=%d", os.getpid())
        try:
            await asyncio.gather(self._servers[0].serve([api]), self._servers[1].serve([admin]))
        finally:
            gauges.cancel()
            await self._monitor.stop()
            self.fleet.close()
            await self.caching.stop()
            await self._sink.stop()

    async def _refresh_gauges(self) -> None:
        while True:
            self._metrics.update_gauges(self.fleet, self._sink.stats().dropped)
            self._metrics.update_cache(self.caching.stats())
            await asyncio.sleep(_GAUGES_S)


def _server(app: Any, drain_s: float) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            loop="none",
            http=Listener,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(drain_s)),
        )
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.listen(4096)
    return sock


def main(argv: list[str] | None = None) -> int:
    """Run one worker; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m router.worker")
    parser.add_argument("--runtime", type=Path, required=True, help="file written by bitgear up or bitgear serve")
    parser.add_argument("--api-fd", type=int, help="listening socket of the API; without it the worker opens its own")
    parser.add_argument("--admin-fd", type=int, help="listening socket of the admin API")
    arguments = parser.parse_args(argv)
    _raise_file_limit()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # uvicorn repeats per connection what the proxy has said once per request.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    log = logging.getLogger("bitgear")
    try:
        runtime = Runtime.read(arguments.runtime)
        worker = Worker(runtime, log)
    except (RuntimeFileError, classifier.ArtefactError, CacheSetupError) as error:
        log.error("cannot start: %s", error)
        return 2
    config = runtime.config
    api = _socket(arguments.api_fd, config.server.host, config.server.port)
    admin = _socket(arguments.admin_fd, config.admin.host, config.admin.port)
    for sock in (api, admin):
        sock.setblocking(False)
    uvloop.run(_run(worker, api, admin))
    return 0


async def _run(worker: Worker, api: socket.socket, admin: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    # What lives until the end need not be looked at by every collection.
    gc.collect()
    gc.freeze()
    await worker.serve(api, admin)


def _raise_file_limit() -> None:
    # A stream takes two descriptors: the usual soft limit of 1,024 would end at 500 of them.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _socket(fd: int | None, host: str, port: int) -> socket.socket:
    return _listen(host, port) if fd is None else socket.socket(fileno=fd)


if __name__ == "__main__":
    sys.exit(main())

"""One proxy process: `python -m router.worker --runtime FILE [--api-fd N --admin-fd N]`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import uvloop
from redis.exceptions import RedisError

import classifier
from router.admin.app import build_admin_app
from router.admin.auth import TokenSetupError, read_tokens
from router.admin.context import Admin
from router.admin.people import people_of
from router.cache.secret import CacheSetupError
from router.config.problems import masked
from router.config.runtime import Runtime, RuntimeFileError
from router.config.schema import Config
from router.config.telemetry import LoggingConfig
from router.control.artefacts import Artefacts
from router.control.document import ControlDocument, GroupTuning
from router.control.follow import Follower
from router.control.store import open_store
from router.feedback.service import Quality
from router.keys.pace import Pace
from router.keys.places import Claims
from router.keys.record import KeyRecord
from router.keys.shared import SharedLimits
from router.listening import keep_out
from router.proxy.app import ProxyApp
from router.proxy.caching import Caching
from router.proxy.serving import Builder, Serving
from router.replay import dry_run
from router.servers import listen, server_of
from router.state import Fleet, Monitor
from router.store.client import open_client
from router.store.events import EventSink
from router.telemetry import EventCounts, Metrics, Telemetry
from router.telemetry.drift import build_drift
from router.telemetry.logs import configure
from router.telemetry.tracing import TracingSetupError, build_tracing
from router.tuning.calibration import show
from router.tuning.inner_loop import InnerLoop, predicted_share
from router.tuning.jobs import Jobs
from router.tuning.scheduler import Scheduler, connect
from router.tuning.service import TuningService

_GAUGES_S = 1.0
_DRIFT_S = 15.0
_CALIBRATION_S = 15.0
_MAX_FILES = 65536
_USUAL_PROMPT = 256
"""Prompt tokens of the request that the inner loop imagines while nothing came for a minute."""
_YOUNG = 20_000
"""New objects that are not freed yet before they are searched for cycles."""
_LATELY_S = 10
"""How far back it looks for requests that were late."""


class Worker:
    """Fleet, monitor, telemetry, and the two servers of one process."""

    def __init__(self, runtime: Runtime, log: logging.Logger) -> None:
        config = runtime.config
        self._runtime = runtime
        self._own: list[socket.socket] = []
        self._log = log
        self._serves = False
        scorer = classifier.load(config.classifier.model, config.classifier.artefact)
        password = os.environ.get(config.redis.password_env) if config.redis.password_env else None
        claims = Claims(Pace(config.server.workers))
        timeout_s = config.redis.timeout_s
        self._limits = SharedLimits(
            open_client(runtime.redis_url, password=password, timeout_s=timeout_s) if runtime.redis_url else None,
            claims,
            log,
            timeout_s=timeout_s,
        )
        file = Path(runtime.control_file) if runtime.control_file else None
        self._artefacts = Artefacts(
            open_client(runtime.redis_url, password=password, timeout_s=timeout_s) if runtime.redis_url else None,
            file.parent / "classifiers" if file is not None else None,
        )
        self._builder = Builder(runtime, scorer, os.environ, log, claims, self._artefacts)
        serving = self._builder.first()
        self._monitor = Monitor(serving.fleet, config.health, log)
        directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        self._metrics = Metrics(Path(directory) if directory else None, config.cost.gpu_hour)
        self.quality = Quality(runtime, self._metrics.registry, os.environ, log)
        self._sink = EventSink(
            runtime.redis_url,
            config.events,
            timeout_s=config.redis.timeout_s,
            password=password,
            index=self.quality.index,
        )
        self.tracing = build_tracing(config.tracing, os.environ)
        self._telemetry = Telemetry(
            self._metrics,
            self._sink,
            log,
            config.events.max_per_s,
            tracing=self.tracing,
            access_log=config.logging.access,
            drift=build_drift(scorer, config.drift, time.monotonic),
        )
        self._scorer = scorer
        self.quality.shadow.classifier_of = lambda group: self.serving.classifiers.get(group, scorer)
        self.app = ProxyApp(serving, self._telemetry, self.quality)
        self._control = (
            open_store(runtime.redis_url, password=password, timeout_s=config.redis.timeout_s)
            if runtime.redis_url
            else None
        )
        self._follower = Follower(
            self._control, self.apply, log, file=file, timeout_s=config.redis.timeout_s, keys=self._rekey
        )
        self._jobs = (
            Jobs(connect(runtime, os.environ, config.redis.timeout_s)) if runtime.redis_url is not None else None
        )
        self._scheduler = Scheduler(runtime, lambda: self.serving.config, os.environ, log)
        self._inner_loop = InnerLoop(config.tuning.inner_loop, self._sense, self._move, log)
        own = Path(runtime.admin_token_file) if runtime.admin_token_file else None
        tokens = read_tokens(config.admin, os.environ, own)
        self.admin = build_admin_app(
            Admin(
                serving=lambda: self.serving,
                base=runtime,
                metrics=self._metrics,
                sink_stats=self._sink.stats,
                update_metrics=self.update_metrics,
                store=self._control,
                follow=self._follower.stats,
                look=self._follower.look,
                check=lambda document: self._builder.check(self.serving, document),
                artefacts=self._artefacts,
                tuning=(
                    TuningService(self._jobs, self._control, runtime.groups())
                    if self._jobs is not None and self._control is not None
                    else None
                ),
                effect=dry_run(runtime, scorer.thresholds, password, lambda: self.serving),
            ),
            tokens,
            people_of(config.admin, log),
        )
        self._servers = [server_of(self.app, config.server), server_of(self.admin, config.server)]

    @property
    def serving(self) -> Serving:
        """What requests are served with now."""
        return self.app.serving

    @property
    def fleet(self) -> Fleet:
        """The replicas that serve now."""
        return self.serving.fleet

    @property
    def caching(self) -> Caching:
        """The cache now."""
        return self.serving.caching

    async def apply(self, document: ControlDocument) -> None:
        """Serve new requests as `document` says. Raises BadDocument; then nothing is changed."""
        last = self.serving
        serving = await self._builder.next(last, document)
        # From here on nothing can fail, and no request comes between.
        stay = set(serving.fleet.settle())
        self.app.serving = serving
        self._monitor.follow(serving.fleet, serving.config.health)
        if self._serves:
            serving.caching.start()
        if serving.config is not last.config:
            self._follow(last.config, serving)
        self._inner_loop.set(serving.config.tuning.inner_loop)
        for name, group in serving.fleet.groups.items():
            bounds = {} if name in serving.missing else document.groups.get(name, GroupTuning()).bounds
            self._inner_loop.follow(name, group.thresholds, {str(p): b for p, b in bounds.items()})
        for name, why in serving.missing.items():
            if name not in last.missing:
                self._log.error("group %s: %s; the configured classifier serves until it is found", name, why)
        for variant in last.fleet.variants():
            for replica in variant.replicas:
                if replica not in stay:
                    # Requests that are on their way there end there.
                    replica.pool.close()

    def _rekey(self, keys: dict[str, KeyRecord]) -> None:
        self.app.serving = self._builder.rekeyed(self.serving, keys)

    def _follow(self, before: Config, serving: Serving) -> None:
        """Hand a changed configuration to what lives as long as the worker."""
        config = serving.config
        self.quality.follow(serving.runtime)
        self._sink.follow(config.events)
        self._telemetry.follow(config)
        if config.logging != before.logging:
            configure(config.logging)
        if config.drift != before.drift:
            # What was counted so far was another sample: the comparison begins anew.
            self._telemetry.drift = build_drift(self._scorer, config.drift, time.monotonic)

    def _sense(self, name: str) -> tuple[float | None, float]:
        """Return what the inner loop sees of a group: the share in time lately, and what full precision would do now."""
        group = self.fleet.groups.get(name)
        if group is None:
            return None, 1.0
        now = time.monotonic()
        lately, minute = self._metrics.recent(name, now, _LATELY_S), self._metrics.recent(name, now, 60)
        measured = lately.goodput_requests / lately.targeted_requests if lately.targeted_requests > 0.0 else None
        prompt = minute.prompt_tokens / minute.requests if minute.requests > 0.0 else _USUAL_PROMPT
        scenario = self.fleet.scenarios[group.scenario]
        predicted = predicted_share(group.states(now), scenario, round(prompt), round(group.expected_output_tokens))
        return measured, predicted

    def _move(self, name: str, thresholds: Mapping[str, float]) -> None:
        group = self.fleet.groups.get(name)
        if group is not None:
            group.thresholds = thresholds

    def stop(self) -> None:
        """Take no more requests and let the running ones finish; called again: end at once."""
        for sock in self._own:
            keep_out(sock)
        self._own = []
        for server in self._servers:
            server.end()

    async def serve(self, api: socket.socket, admin: socket.socket, *, shared: bool = False) -> None:
        """Serve both addresses until `stop`. Unless others accept on the sockets too, nobody is let in after that."""
        self._own = [] if shared else [api, admin]
        # What was changed before holds from the first request on.
        await self._follower.start()
        self._sink.start()
        self._serves = True
        self.caching.start()
        self.quality.start()
        await self._limits.start()
        self._monitor.start()
        self._scheduler.start()
        self._inner_loop.start()
        tasks = [asyncio.create_task(self._refresh_gauges()), asyncio.create_task(self._show_calibration())]
        self._log.info("worker serves: pid=%d", os.getpid())
        try:
            await asyncio.gather(self._servers[0].serve([api]), self._servers[1].serve([admin]))
        finally:
            for task in tasks:
                task.cancel()
            await self._inner_loop.stop()
            await self._scheduler.stop()
            if self._jobs is not None:
                await self._jobs.client.aclose(close_connection_pool=True)
            await self._follower.stop()
            await self._monitor.stop()
            self.fleet.close()
            self.app.settle()
            await self.quality.stop()
            await self._limits.stop()
            await self._artefacts.close()
            await self.caching.stop()
            await self._sink.stop()
            if self.tracing is not None:
                await self.tracing.close()
            self.update_metrics()

    def update_metrics(self) -> None:
        """Bring the metrics up to now."""
        self.app.settle()
        events = self._sink.stats()
        self._metrics.update_gauges(self.fleet)
        self._metrics.update_events(EventCounts(events.written, events.dropped, self._telemetry.events_left_out))
        self._metrics.update_cache(self.caching.stats())
        if self.tracing is not None:
            self._metrics.update_spans(*self.tracing.counts())
        self._metrics.flush()

    async def _refresh_gauges(self) -> None:
        looked = -math.inf
        while True:
            self.update_metrics()
            if time.monotonic() - looked >= _DRIFT_S:
                looked = time.monotonic()
                if self._telemetry.drift is not None:
                    self._metrics.update_drift(self._telemetry.drift)
                if self.serving.missing:
                    await self._follower.again()
            await asyncio.sleep(_GAUGES_S)

    async def _show_calibration(self) -> None:
        """Show in this worker's gauges what the tuning job, wherever it ran, found of the risks."""
        while self._jobs is not None:
            try:
                await show(self._jobs, list(self.fleet.groups), self._metrics.set_calibration)
            except (RedisError, OSError, TimeoutError) as error:
                self._log.debug("calibration: Redis is away (%s)", masked(str(error)))
            except (ValueError, KeyError, TypeError):
                self._log.exception("calibration: what the job wrote cannot be read")
            await asyncio.sleep(_CALIBRATION_S)


def main(argv: list[str] | None = None) -> int:
    """Run one worker; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m router.worker")
    parser.add_argument("--runtime", type=Path, required=True, help="file written by bitgear up or bitgear serve")
    parser.add_argument("--api-fd", type=int, help="listening socket of the API; without it the worker opens its own")
    parser.add_argument("--admin-fd", type=int, help="listening socket of the admin API")
    arguments = parser.parse_args(argv)
    _raise_file_limit()
    configure(LoggingConfig())
    log = logging.getLogger("bitgear")
    try:
        runtime = Runtime.read(arguments.runtime)
        configure(runtime.config.logging)
        worker = Worker(runtime, log)
    except (RuntimeFileError, classifier.ArtefactError, CacheSetupError, TokenSetupError, TracingSetupError) as error:
        log.error("cannot start: %s", error)
        return 2
    config = runtime.config
    api = _socket(arguments.api_fd, config.server.host, config.server.port)
    admin = _socket(arguments.admin_fd, config.admin.host, config.admin.port)
    for sock in (api, admin):
        sock.setblocking(False)
    uvloop.run(_run(worker, api, admin, shared=arguments.api_fd is not None))
    return 0


async def _run(worker: Worker, api: socket.socket, admin: socket.socket, *, shared: bool) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    # What lives until the end need not be looked at by every collection, and what ends with its request is freed
    # without one: a collection every few requests would find nothing.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 10, 10)
    await worker.serve(api, admin, shared=shared)


def _raise_file_limit() -> None:
    # A stream takes two descriptors: the usual soft limit of 1,024 would end at 500 of them.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _socket(fd: int | None, host: str, port: int) -> socket.socket:
    return listen(host, port) if fd is None else socket.socket(fileno=fd)


if __name__ == "__main__":
    sys.exit(main())

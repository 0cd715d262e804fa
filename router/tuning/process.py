"""The tuning process' work: ticks while its lease lives, on the configuration as the control document has it now."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from redis.asyncio import Redis
from redis.exceptions import RedisError

import classifier
from classifier.scoring import Trained
from router.config.runtime import Runtime
from router.control.apply import next_runtime
from router.control.artefacts import Artefacts
from router.control.follow import Refused
from router.control.store import Conflict, ControlStore, UnreadableDocument
from router.decision.types import Scenario
from router.state.fleet import Fleet
from router.tuning.dataset import read_records
from router.tuning.group import Group
from router.tuning.jobs import Jobs, Lease
from router.tuning.pairs import Pairs, read_pairs
from router.tuning.records import Record
from router.tuning.replay import Facts
from router.tuning.retrain import Retrainer
from router.tuning.scheduler import LEASE_S, connect
from router.tuning.tuner import Tuner

TICK_S = 5.0
_LOOK_S = 0.5
"""How soon a job is begun that somebody asks for, seconds."""


def configured(runtime: Runtime) -> dict[str, Trained]:
    """Return each group's classifier as the configuration says. Raises ArtefactError."""
    config = runtime.config
    shared = classifier.load(config.classifier.model, config.classifier.artefact)
    files = {name: group.classifier for name, group in config.groups.items() if group.classifier}
    return {name: classifier.load(artefact=files[name]) if name in files else shared for name in runtime.groups()}


def groups_of(
    runtime: Runtime, env: Mapping[str, str], own: Mapping[str, Mapping[str, float]] = MappingProxyType({})
) -> dict[str, Group]:
    """Return what tuning knows of each group; `own`: what the classifiers recommend that were put in for some."""
    config = runtime.config
    known = {name: found.thresholds for name, found in configured(runtime).items()}
    fleet = Fleet(runtime, env, {}, own={**known, **own})
    scenarios: Mapping[str, Scenario] = fleet.scenarios
    found = {}
    for name, group in fleet.groups.items():
        variants = list(group.variants.values())
        facts = Facts(
            group=name,
            variants=tuple(v.name for v in variants),
            precisions=tuple(v.spec.precision for v in variants),
            ranks=tuple(v.rank for v in variants),
            prices=tuple(v.spec.price for v in variants),
            scenarios=scenarios,
            last_resorts=frozenset(v.name for v in variants if v.spec.last_resort),
        )
        found[name] = Group(facts, config.tuning, dict(group.thresholds))
    fleet.close()
    return found


def report_folder(runtime: Runtime) -> Path | None:
    """Return where reports are written: as configured, else `tuning` beside the control document's copy; None: nowhere."""
    configured = runtime.config.tuning.report_folder
    if configured is not None:
        return Path(configured).expanduser() if configured else None
    return Path(runtime.control_file).parent / "tuning" if runtime.control_file else None


def tuner_of(
    runtime: Runtime, client: Redis, artefacts: Artefacts, env: Mapping[str, str], log: logging.Logger
) -> Tuner:
    """Return a tuner on the shared state."""
    config = runtime.config

    async def read(group: str, since: float, limit: int) -> Sequence[Record]:
        found = await read_records(
            client, group=group, since=since, limit=limit, events=config.events.stream, feedback=config.feedback.stream
        )
        return found.records

    async def pairs(group: str, version: str, since: float, limit: int) -> Pairs:
        stream = config.feedback.stream
        return await read_pairs(client, group=group, classifier=version, since=since, limit=limit, stream=stream)

    groups, folder, jobs, store = groups_of(runtime, env), report_folder(runtime), Jobs(client), ControlStore(client)
    retrainer = Retrainer(store, artefacts, pairs, log)
    retrainer.configured = configured(runtime)
    return Tuner(groups, jobs, store, read, log, folder=folder, retrainer=retrainer)


async def run(runtime: Runtime, token: str, env: Mapping[str, str], log: logging.Logger) -> None:
    """Tick until the lease is lost, nothing is left to do, or the task is cancelled. `token` is the lease's, taken by the parent."""
    client = connect(runtime, env)
    lease = Lease(client, LEASE_S, token)
    store, artefacts, version = ControlStore(client), Artefacts(client), 0
    tuner = tuner_of(runtime, client, artefacts, env, log)
    renewing = asyncio.create_task(_renew(lease))
    try:
        while not renewing.done():
            try:
                version = await _follow(runtime, store, artefacts, tuner, env, version, log)
                if not await tuner.tick():
                    return
            except Conflict as error:
                log.info("tuning: %s; the next tick starts from there", error)
            except (RedisError, OSError) as error:
                log.warning("tuning: Redis is away (%s)", error)
            await _rest(Jobs(client), list(tuner.groups), renewing)
    finally:
        renewing.cancel()
        with contextlib.suppress(RedisError, OSError):
            await lease.release()
        await client.aclose(close_connection_pool=True)


async def _follow(
    runtime: Runtime,
    store: ControlStore,
    artefacts: Artefacts,
    tuner: Tuner,
    env: Mapping[str, str],
    version: int,
    log: logging.Logger,
) -> int:
    """Take over what a newer document changed in the configuration; return the version that holds."""
    newest = await store.latest()
    if newest == version:
        return version
    try:
        document = await store.current()
        own = {}
        for name, tuning in document.groups.items():
            if not tuning.classifier:
                continue
            try:
                own[name] = (await artefacts.get(tuning.classifier)).thresholds
            except classifier.ArtefactError as error:
                # Served with the configured one until it is found, and so tuned.
                log.warning("tuning of %s goes on with the configured classifier: %s", name, error)
        made = next_runtime(runtime, document)
        tuner.groups = groups_of(made, env, own)
        if tuner.retrainer is not None:
            tuner.retrainer.configured = configured(made)
    except (Refused, UnreadableDocument, classifier.ArtefactError) as error:
        log.warning("tuning goes on with the older configuration: %s", error)
    return newest


async def _rest(jobs: Jobs, groups: Sequence[str], renewing: asyncio.Task[None]) -> None:
    """Return when the next tick is due: after TICK_S, sooner when a job is asked for or the lease is lost."""
    for _ in range(round(TICK_S / _LOOK_S)):
        done, _ = await asyncio.wait([renewing], timeout=_LOOK_S)
        # A Redis that is away is the next tick's to tell of.
        with contextlib.suppress(RedisError, OSError):
            if done or await jobs.wished(groups):
                return


async def _renew(lease: Lease) -> None:
    """Return when the lease is lost."""
    # At once too: part of it went by while this process started.
    while await lease.take():  # noqa: ASYNC110 - Redis tells of no such moment
        await asyncio.sleep(LEASE_S / 3)

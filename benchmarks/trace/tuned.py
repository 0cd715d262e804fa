"""Thresholds that tuning jobs find in the trace's first part, for the later parts to be served with."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from benchmarks.trace.workload import Workload
from benchmarks.world.hardware import VariantSpec
from benchmarks.world.labels import shadow
from benchmarks.world.truth import Truth
from benchmarks.world.world import GROUP, World
from router.config.loop import InnerLoopConfig, TuningConfig
from router.decision import Exploration
from router.decision.types import Scenario
from router.tuning.analysis import analyse
from router.tuning.inner_loop import InnerLoop, predicted_share
from router.tuning.records import Record
from router.tuning.replay import Facts

SETTINGS = TuningConfig(max_step=0.5)
JOBS = 2
"""Jobs, one after each part of the learning traffic, each on all that was recorded so far."""
EXPLORED = Exploration(0.1, 0.3)
REPLAYED = 1500
_USUAL_PROMPT = 256


class Tuned(NamedTuple):
    """What the jobs left behind."""

    thresholds: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]]
    """What the inner loop may move them between; empty where no job set any."""
    story: tuple[str, ...]
    """Each job's action and reason."""


def facts(specs: Sequence[VariantSpec], scenarios: Mapping[str, Scenario]) -> Facts:
    """Return what a job would be told of these variants."""
    made = [spec.runtime(GROUP) for spec in specs]
    ranks = {v.name: v.rank for v in World(specs, Truth()).group.variants.values()}
    return Facts(
        GROUP,
        tuple(m.variant for m in made),
        tuple(m.precision for m in made),
        tuple(ranks[m.variant] for m in made),
        tuple(m.price for m in made),
        scenarios,
    )


def tune(
    specs: Sequence[VariantSpec], load: Workload, rate: float, thresholds: Mapping[str, float], truth: Truth, seed: int
) -> Tuned:
    """Serve `load`, run a job after each half, and return the thresholds of the last one that changed any.

    Every answer of a lower precision is paired with full precision's. A job's choice is served at once: no trial.
    """
    records: list[Record] = []
    world = World(
        specs,
        truth,
        thresholds=thresholds,
        exploration=EXPLORED,
        labeller=shadow(1.0),
        record=records.append,
        seed=seed,
    )
    known = facts(specs, world.scenarios)
    arrivals = load.at_rate(rate)
    current, limits, story = dict(thresholds), {}, []
    size = -(-len(arrivals) // JOBS)
    for start in range(0, len(arrivals), size):
        # All are answered before the next half comes: its first requests find an idle fleet.
        world.run([a._replace(at=a.at + 120.0 * (start // size)) for a in arrivals[start : start + size]])
        seen = sorted(records, key=lambda r: r.at)
        verdict = analyse(seen, current, known, SETTINGS, points=3, replayed=REPLAYED)
        story.append(verdict.reason)
        if verdict.choice is not None:
            limits = dict(verdict.choice.bounds)
            if verdict.choice.action != "keep":
                current = dict(current) | dict(verdict.choice.chosen.thresholds)
                world.control = replace(world.control, thresholds=current)
    return Tuned(current, limits, tuple(story))


def attach(world: World, base: Mapping[str, float], bounds: Mapping[str, tuple[float, float]]) -> None:
    """Let the inner loop move the world's thresholds between these bounds, seeing what a worker sees."""
    settings = InnerLoopConfig()
    scenario = world.scenarios[world.group.scenario]

    def sense(_: str) -> tuple[float | None, float]:
        states = world.group.states(world.now)
        return None, predicted_share(states, scenario, _USUAL_PROMPT, round(world.group.expected_output_tokens))

    def move(_: str, thresholds: Mapping[str, float]) -> None:
        world.control = replace(world.control, thresholds=dict(thresholds))

    loop = InnerLoop(settings, sense, move, logging.getLogger("trace"))
    loop.follow(GROUP, base, bounds)
    world.every(settings.interval_s, lambda _: loop.tick(settings.interval_s))

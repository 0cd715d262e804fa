"""One replica of the world: its engine, and what each worker knows of it."""

from __future__ import annotations

from dataclasses import dataclass

from backends.wire import VllmMetrics
from benchmarks.world.engine import Engine, Job
from benchmarks.world.hardware import VariantSpec
from router.state import Replica

_PROBE_PROMPT, _PROBE_OUTPUT = 16, 8


@dataclass(slots=True)
class Seat:
    """`views`: the replica as each worker's fleet has it. `version` counts how often the engine's next end was set."""

    engine: Engine
    views: list[Replica]
    version: int = 0

    def metrics(self) -> VllmMetrics:
        """Return what the engine would show at `/metrics` now."""
        engine = self.engine
        return VllmMetrics(
            float(engine.running),
            float(len(engine.waiting)),
            engine.kv_usage,
            float(engine.prompted),
            float(engine.generated),
        )

    def prove(self, spec: VariantSpec) -> None:
        """Ready the replica as the monitor does: one short completion on the idle server."""
        trial = spec.engine()
        job = Job(None, _PROBE_PROMPT, _PROBE_OUTPUT)
        trial.add(job, 0.0)
        while trial.due is not None:
            trial.advance(trial.due)
        first, last = job.first_token or 0.0, job.ended or 0.0
        for view in self.views:
            view.estimator.observe_prefill(_PROBE_PROMPT, first)
            view.estimator.observe_decode(1.0, (last - first) / (_PROBE_OUTPUT - 1))
            view.mark_ready(0.0)


__all__ = ["Seat"]

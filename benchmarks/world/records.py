"""What tuning would read of a served request."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.world.served import Served
from router.decision import Scenario
from router.tuning.records import Label, Option, Record


def record_of(served: Served, group: str, scenario: Scenario, labels: Iterable[Label]) -> Record:
    """Return the record that the event of this request and its feedback would make."""
    decision = served.decision
    options = tuple(
        Option(c.variant, c.precision, c.rank, c.live, c.fits, c.risk, c.threshold, c.ttft_s, c.e2e_s, propensity)
        for c, propensity in zip(decision.candidates, decision.propensities, strict=True)
    )
    return Record(
        id=str(served.index),
        at=served.ended,
        group=group,
        scenario=served.arrival.scenario,
        version=decision.version,
        arm=decision.arm,
        explored=decision.explored,
        variant=served.variant,
        options=options,
        risks=served.arrival.risks,
        prompt_tokens=served.arrival.prompt_tokens,
        completion_tokens=served.arrival.output_tokens,
        ttft_s=served.ttft_s,
        e2e_s=served.e2e_s,
        ok=True,
        labels=tuple(labels),
        ttft_target_s=scenario.ttft_s,
        e2e_target_s=scenario.e2e_s,
    )


__all__ = ["record_of"]

"""What came of a run: goodput, latency, violations, quality."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.world.served import Served
from router.decision.types import Scenario

_Z95 = 1.959964


@dataclass(frozen=True)
class Measures:
    """One run's figures. Times in seconds; rates per second of `span_s`."""

    requests: int
    span_s: float
    """From the first arrival to the last."""
    goodput_rps: float
    """Requests/s answered within their scenario's targets."""
    goodput_tps: float
    """Their generated tokens/s."""
    tps: float
    """Generated tokens/s of all that were answered."""
    violations: float
    """Share of requests that missed a target or were not answered."""
    ttft_p50: float
    """Latencies are of the requests that got that far."""
    ttft_p95: float
    itl_p50: float
    e2e_p50: float
    e2e_p95: float
    quality: float
    """Mean over answered requests."""
    quality_se: float
    quality_expected: float
    """Mean of the planted expectations: no sampling noise of right and wrong."""
    relative: float
    """Quality over full precision's on the same requests."""
    relative_low: float
    """95% interval of `relative`, paired, by the delta method."""
    relative_high: float
    relative_expected: float
    shares: Mapping[str, float]
    """Share of requests by precision."""
    reasons: Mapping[str, int]
    """Decisions by reason."""


def met(served: Served, scenarios: Mapping[str, Scenario]) -> bool:
    """Return whether a request was answered within its scenario's targets."""
    scenario = scenarios[served.arrival.scenario]
    return (
        served.done
        and (scenario.ttft_s is None or served.ttft_s <= scenario.ttft_s)
        and (scenario.e2e_s is None or served.e2e_s <= scenario.e2e_s)
    )


def measure(served: Iterable[Served], scenarios: Mapping[str, Scenario], horizon: float | None = None) -> Measures:
    """Return the figures of these requests.

    A request without targets counts into goodput when it ended before `horizon` (default: it was answered).
    """
    rows = list(served)
    done = [s for s in rows if s.done]
    good = [s for s in done if met(s, scenarios) and (horizon is None or s.ended <= horizon)]
    first = min((s.arrival.at for s in rows), default=0.0)
    last = max((s.arrival.at for s in rows), default=0.0)
    span = max(1e-9, last - first)
    ttft = sorted(s.ttft_s for s in rows if s.ttft_s < math.inf)
    e2e = sorted(s.e2e_s for s in done)
    itl = sorted(s.itl_s for s in done if s.itl_s is not None)
    got, full = [s.worth.got for s in done], [s.worth.full for s in done]
    relative, half = _ratio(got, full)
    expected, expected_full = _mean([s.worth.expected for s in done]), _mean([s.worth.full_expected for s in done])
    counts = Counter(s.precision for s in done)
    return Measures(
        requests=len(rows),
        span_s=span,
        goodput_rps=len(good) / span,
        goodput_tps=sum(s.arrival.output_tokens for s in good) / span,
        tps=sum(s.arrival.output_tokens for s in done) / span,
        violations=1.0 - len(good) / len(rows) if rows else 0.0,
        ttft_p50=percentile(ttft, 0.5),
        ttft_p95=percentile(ttft, 0.95),
        itl_p50=percentile(itl, 0.5),
        e2e_p50=percentile(e2e, 0.5),
        e2e_p95=percentile(e2e, 0.95),
        quality=_mean(got),
        quality_se=_deviation(got) / math.sqrt(max(1, len(got))),
        quality_expected=expected,
        relative=relative,
        relative_low=relative - half,
        relative_high=relative + half,
        relative_expected=expected / expected_full if expected_full else math.nan,
        shares={precision: count / max(1, len(done)) for precision, count in sorted(counts.items())},
        reasons=dict(Counter(s.decision.reason for s in rows)),
    )


def percentile(values: Sequence[float], q: float) -> float:
    """Return the q-th quantile of sorted values (nearest rank); NaN without any."""
    return values[min(len(values) - 1, max(0, math.ceil(q * len(values)) - 1))] if values else math.nan


def _ratio(got: Sequence[float], full: Sequence[float]) -> tuple[float, float]:
    base = _mean(full)
    if not base:
        return math.nan, math.nan
    ratio = _mean(got) / base
    residuals = [(g - ratio * f) / base for g, f in zip(got, full, strict=True)]
    return ratio, _Z95 * _deviation(residuals) / math.sqrt(max(1, len(residuals)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = _mean(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))

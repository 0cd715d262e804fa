"""Which candidate, and why: the objective, the quality bound, the step, hysteresis, and the inner loop's bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from router.config.loop import TuningConfig
from router.tuning.estimators import DECIDES, Estimate

Action = Literal["keep", "change", "tighten"]


class Candidate(NamedTuple):
    """One vector of thresholds and what is expected of it."""

    thresholds: Mapping[str, float]
    shares: tuple[float, ...]
    """Share of traffic within each lower precision's threshold."""
    traffic: Mapping[str, float]
    """Share of requests by variant, as the replay sent them."""
    quality: Mapping[str, Estimate]
    """Difference from full precision, by estimator."""
    goodput: float
    """Tokens/s of requests in time."""
    gain: tuple[float, float, float]
    """Relative gain in goodput over the present thresholds: mean, lower, upper."""
    attainment: float
    """Share of requests within their latency targets."""
    quiet_attainment: float
    """The same in the quieter half of the time."""
    ttft_p95_s: float
    cost: float
    """Mean price times seconds of a request."""
    moved: float
    """Share of traffic that changes sides."""


class Choice(NamedTuple):
    """What to do."""

    action: Action
    chosen: Candidate
    reason: str
    bounds: Mapping[str, tuple[float, float]]
    """For the inner loop: lowest and highest threshold by precision."""


def choose(
    candidates: Sequence[Candidate], level: float, settings: TuningConfig, *, estimator: str = DECIDES
) -> Choice:
    """Choose among candidates; the first is the present one. `level` is full precision's mean quality."""
    current = candidates[0]
    bound = -settings.margin * level

    def safe(c: Candidate) -> bool:
        return _safe(c, bound, estimator)

    near = [c for c in candidates if c.moved <= settings.max_step + 1e-9]
    allowed = _allowed(candidates, level, settings, estimator)
    if not safe(current):
        return _repair(candidates, near, current, bound, safe, settings, estimator)
    if settings.objective == "quality":
        action, chosen, reason = _best_quality(allowed, current, settings, estimator)
    else:
        action, chosen, reason = _best_goodput(allowed, current, settings)
    return Choice(action, chosen, reason, bounds(candidates, chosen, safe, settings))


def leading(candidates: Sequence[Candidate], level: float, settings: TuningConfig) -> Candidate:
    """Return the candidate that the search goes on around: the best within one step, whether or not it is worth a change."""
    choice = choose(candidates, level, settings)
    if choice.action != "keep" or settings.objective == "quality":
        return choice.chosen
    return max(_allowed(candidates, level, settings, DECIDES), key=_promise, default=choice.chosen)


def _allowed(candidates: Sequence[Candidate], level: float, settings: TuningConfig, estimator: str) -> list[Candidate]:
    bound = -settings.margin * level
    near = (c for c in candidates if c.moved <= settings.max_step + 1e-9)
    return [c for c in near if _safe(c, bound, estimator)]


def _safe(candidate: Candidate, bound: float, estimator: str) -> bool:
    return not any(candidate.shares) or candidate.quality[estimator].lower >= bound


def _promise(candidate: Candidate) -> tuple[float, float]:
    return round(candidate.gain[0], 4), -sum(candidate.shares)


def _best_goodput(
    allowed: Sequence[Candidate], current: Candidate, settings: TuningConfig
) -> tuple[Action, Candidate, str]:
    best = max(allowed, key=_promise)
    mean, lower, _ = best.gain
    # A small gain that is certain is one as well.
    worth = (mean >= settings.min_gain and lower > 0.0) or lower > settings.min_gain / 2
    if best is current or not worth:
        told = f"the best alternative promises {mean:+.1%}" if best is not current else "no alternative promises more"
        if best is not current:
            told += f" (lower bound {lower:+.1%})"
        return (
            "keep",
            current,
            f"{told}; a change must promise at least {settings.min_gain:.0%}, or half of that at its lower bound",
        )
    return (
        "change",
        best,
        f"most goodput ({mean:+.1%}) of the {len(allowed)} candidates within one step whose quality bound holds",
    )


def _best_quality(
    allowed: Sequence[Candidate], current: Candidate, settings: TuningConfig, estimator: str
) -> tuple[Action, Candidate, str]:
    target = settings.inner_loop.target
    in_time = [c for c in allowed if c.attainment >= target]
    if not in_time:
        best = max(allowed, key=lambda c: c.attainment)
        if best.attainment - current.attainment < settings.min_gain:
            return "keep", current, f"nothing within one step reaches {target:.0%} in time, nor comes much nearer"
        return (
            "change",
            best,
            f"nothing within one step reaches {target:.0%} in time; this comes nearest ({best.attainment:.1%})",
        )
    best = max(in_time, key=lambda c: (c.quality[estimator].mean, c.attainment))
    better = best.quality[estimator].mean - current.quality[estimator].mean
    if current in in_time and better < settings.min_gain * settings.margin:
        return "keep", current, f"in time, and the best alternative's quality is only {better:+.4f} better"
    return "change", best, f"the most quality of the {len(in_time)} candidates with {target:.0%} in time"


def _repair(
    candidates: Sequence[Candidate],
    near: Sequence[Candidate],
    current: Candidate,
    bound: float,
    safe: Callable[[Candidate], bool],
    settings: TuningConfig,
    estimator: str,
) -> Choice:
    """The present thresholds do not meet the bound: go down, at once as far as needed when it is certainly broken."""
    quality = current.quality[estimator]
    broken = quality.upper < bound
    tighter = [c for c in (candidates if broken else near) if _within(c.thresholds, current.thresholds)]
    good = [c for c in tighter if safe(c)]
    told = (
        f"quality is {quality.mean:+.4f} [{quality.lower:+.4f}, {quality.upper:+.4f}] against full precision's; "
        f"the bound is {bound:+.4f}: "
    )
    if good:
        chosen = max(good, key=lambda c: (c.gain[0], sum(c.shares)))
        told += "broken, so all the way down to what holds" if broken else "not certain, so down to what holds"
    else:
        chosen = max(tighter, key=lambda c: (c.quality[estimator].lower, -sum(c.shares)))
        told += "nothing within one step holds; one step down"
    action: Action = "keep" if chosen.thresholds == current.thresholds else "tighten"
    return Choice(action, chosen, told, bounds(candidates, chosen, safe, settings))


def bounds(
    candidates: Sequence[Candidate], chosen: Candidate, safe: Callable[[Candidate], bool], settings: TuningConfig
) -> dict[str, tuple[float, float]]:
    """Return the inner loop's range around the chosen thresholds.

    Upwards: the candidate with most traffic below full precision, at most one step away, whose quality bound holds:
    even if the load never eased, quality would. Downwards: the least that still meets the latency target in the
    quieter half of the time.
    """
    step = settings.max_step
    far = [
        c
        for c in candidates
        if safe(c)
        and _within(chosen.thresholds, c.thresholds)
        and all(b - a <= step + 1e-9 for a, b in zip(chosen.shares, c.shares, strict=True))
    ]
    high = max(far, key=lambda c: sum(c.shares), default=chosen)
    calm = [
        c
        for c in candidates
        if _within(c.thresholds, chosen.thresholds) and c.quiet_attainment >= settings.inner_loop.target
    ]
    low = min(calm, key=lambda c: sum(c.shares), default=chosen)
    return {p: (low.thresholds[p], high.thresholds[p]) for p in chosen.thresholds}


def _within(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(value <= other.get(p, 0.0) + 1e-12 for p, value in one.items())

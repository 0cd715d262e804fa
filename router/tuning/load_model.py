"""How each variant's speed hangs on its load, from records; and a queue replay that says what other choices would do.

A variant is a processor-sharing server: every running request gets tokens at one per `itl_base + itl_per_running *
running` seconds, at most `slots` run, the rest wait in line. First token: `ttft_base + ttft_per_token * prompt +
ttft_per_running * running` after the wait. The replay sends recorded arrivals through these servers in virtual time
(a token clock per variant makes processor sharing exact in O(log n) per request), so when traffic moves from one
variant to another, both get the speed of their new load: the fixed point of Little's law, with its bursts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean, median
from typing import NamedTuple

from router.tuning.records import Record

ENOUGH = 20
"""Answers that a curve takes."""
_SATURATED = 2.0
"""Beyond its slots a variant's first tokens take at least this many times as long as the line says."""


class Curve(NamedTuple):
    """One variant's speed; times in seconds."""

    ttft_base: float
    ttft_per_token: float
    ttft_per_running: float
    itl_base: float
    itl_per_running: float
    slots: float = math.inf
    most_seen: float = 0.0
    """Highest load in the data; above it the curve is a guess."""
    records: int = 0


def fit_curves(records: Sequence[Record], variants: Sequence[str]) -> dict[str, Curve]:
    """Return a curve per variant that has at least 20 streamed or 20 whole answers under a load that is known."""
    found = {}
    thinned = Thinned(records)
    for variant in variants:
        mine = [r for r in records if r.variant == variant and r.e2e_s > 0.0]
        curve = _fit(mine, thinned)
        if curve is not None:
            found[variant] = curve
    return found


class Thinned:
    """The times of which only some requests were recorded: how many ran beside a request is not known then."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted((r.at - r.e2e_s, r.at) for r in records if r.weight > 1.0):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def touches(self, record: Record) -> bool:
        """Return whether a request ran during such a time."""
        i = bisect_right(self._starts, record.at)
        return i > 0 and self._ends[i - 1] >= record.at - record.e2e_s


class Load:
    """How many requests were in a variant, at any time of the records."""

    def __init__(self, records: Sequence[Record]) -> None:
        events = sorted([(r.at - r.e2e_s, 1) for r in records] + [(r.at, -1) for r in records])
        self._times = [t for t, _ in events]
        self._counts = list(accumulate(c for _, c in events))
        widths = [b - a for a, b in zip(self._times, self._times[1:], strict=False)]
        self._areas = [0.0, *accumulate(w * c for w, c in zip(widths, self._counts, strict=False))]

    def at(self, time: float) -> int:
        """Return how many are in at `time`, an arrival of that moment included."""
        i = bisect_right(self._times, time) - 1
        return self._counts[i] if i >= 0 else 0

    def mean(self, start: float, end: float) -> float:
        """Return the mean number between two times."""
        return (self._area(end) - self._area(start)) / (end - start) if end > start else float(self.at(start))

    def _area(self, time: float) -> float:
        i = bisect_right(self._times, time) - 1
        return self._areas[i] + (time - self._times[i]) * self._counts[i] if i >= 0 else 0.0


def _fit(mine: Sequence[Record], thinned: Thinned) -> Curve | None:
    load = Load(mine)
    decode: list[tuple[float, float]] = []
    first: list[tuple[float, float, float]] = []
    whole: list[tuple[float, float, float]] = []
    for record in mine:
        if not record.ok or thinned.touches(record):
            continue
        start = record.at - record.e2e_s
        running = load.mean(start, record.at)
        if record.ttft_s is not None:
            first.append((float(record.prompt_tokens), float(load.at(start)), record.ttft_s))
            if record.completion_tokens > 1:
                decode.append((running, max(0.0, record.e2e_s - record.ttft_s) / (record.completion_tokens - 1)))
        elif record.completion_tokens > 1:
            whole.append((running, float(record.completion_tokens), record.e2e_s))
    if len(decode) < ENOUGH:
        if len(decode) + len(whole) < ENOUGH:
            return None
        # Whole answers hide their first token: their time per token stands in for it.
        decode += [(n, e2e / tokens) for n, tokens, e2e in whole]
    most = max(n for n, _ in decode)
    slots = _slots(decode, first)
    c, d = _line([(min(n, slots), y) for n, y in decode])
    base, per_token, per_running = _plane([(p, min(n, slots), t) for p, n, t in first if n <= slots]) or (0.0, 0.0, 0.0)
    return Curve(base, per_token, per_running, c, d, slots, most, len(decode))


def _slots(decode: Sequence[tuple[float, float]], first: Sequence[tuple[float, float, float]]) -> float:
    """Return where time between tokens stops to grow while first tokens begin to wait; inf where nothing shows it."""
    loads = sorted(n for n, _ in decode)
    if loads[-1] < 4.0 or len(first) < 2 * ENOUGH:
        return math.inf
    free = _error(decode, math.inf)
    best, error = math.inf, free * 0.85
    for share in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        limit = max(1.0, float(round(loads[int(share * (len(loads) - 1))])))
        found = _error(decode, limit)
        late = [t for _, n, t in first if n > limit + 1.0]
        early = [t for _, n, t in first if n <= limit]
        if found < error and len(late) >= 5 and len(early) >= 5 and median(late) > _SATURATED * median(early):
            best, error = limit, found
    return best


def _error(points: Sequence[tuple[float, float]], limit: float) -> float:
    a, b = _line([(min(n, limit), y) for n, y in points])
    return math.fsum((y - a - b * min(n, limit)) ** 2 for n, y in points)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return (a, b) >= 0 of y = a + b x by least squares; the worst twentieth by residual is left out of a second fit."""
    a, b = _least(points)
    if len(points) < 2 * ENOUGH:
        return a, b
    kept = sorted(points, key=lambda p: abs(p[1] - a - b * p[0]))[: max(ENOUGH, len(points) * 19 // 20)]
    return _least(kept)


def _least(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    n = len(points)
    mx, my = math.fsum(p[0] for p in points) / n, math.fsum(p[1] for p in points) / n
    spread = math.fsum((x - mx) ** 2 for x, _ in points)
    joint = math.fsum((x - mx) * (y - my) for x, y in points)
    b = max(0.0, joint / spread) if spread > 1e-12 else 0.0
    if mx > 0.0:
        b = min(b, my / mx)
    return max(0.0, my - b * mx), b


def _plane(points: Sequence[tuple[float, float, float]]) -> tuple[float, float, float] | None:
    """Return (a, b, c) >= 0 of t = a + b prompt + c running; by turns, each on what the other leaves."""
    if not points:
        return None
    a, b, c = 0.0, 0.0, 0.0
    for _ in range(6):
        _, c = _least([(n, t - b * p) for p, n, t in points])
        a, b = _least([(p, t - c * n) for p, n, t in points])
    a = max(0.0, fmean(t - b * p - c * n for p, n, t in points))
    return a, b, c


def unknown_speeds(records: Sequence[Record], variants: Sequence[str], curves: Mapping[str, Curve]) -> list[str]:
    """Return the variants that answered enough for a curve, but nearly all while only some requests were recorded."""
    thinned = Thinned(records)
    found = []
    for variant in variants:
        mine = [r for r in records if r.variant == variant and r.ok]
        if variant not in curves and len(mine) >= ENOUGH and any(thinned.touches(r) for r in mine):
            found.append(variant)
    return found


def held_out_error(
    records: Sequence[Record], variants: Sequence[str], share: float = 0.7
) -> Mapping[str, float] | None:
    """Fit on the first `share` of the time and predict the rest; return relative errors of mean times, or None.

    `ttft` and `e2e`: |predicted / measured - 1| of the means over the held-out requests, at the loads they met.
    """
    ordered = sorted(records, key=lambda r: r.at)
    cut = int(len(ordered) * share)
    curves = fit_curves(ordered[:cut], variants)
    loads = {v: Load([r for r in ordered if r.variant == v]) for v in curves}
    thinned = Thinned(ordered)
    ttft: list[tuple[float, float]] = []
    e2e: list[tuple[float, float]] = []
    for record in ordered[cut:]:
        curve = curves.get(record.variant)
        if curve is None or not record.ok or record.completion_tokens < 2 or thinned.touches(record):
            continue
        start = record.at - record.e2e_s
        running = loads[record.variant].mean(start, record.at)
        arrived = float(loads[record.variant].at(start))
        itl = curve.itl_base + curve.itl_per_running * min(running, curve.slots)
        first = curve.ttft_base + curve.ttft_per_token * record.prompt_tokens
        first += curve.ttft_per_running * min(arrived, curve.slots)
        if arrived > curve.slots:
            first += (arrived - curve.slots) / curve.slots * itl * record.completion_tokens
        if record.ttft_s is not None:
            ttft.append((first, record.ttft_s))
        e2e.append((first + itl * (record.completion_tokens - 1), record.e2e_s))
    if len(e2e) < ENOUGH:
        return None
    return {name: _relative(pairs) for name, pairs in (("ttft", ttft), ("e2e", e2e)) if pairs}


def _relative(pairs: Sequence[tuple[float, float]]) -> float:
    measured = math.fsum(m for _, m in pairs)
    return abs(math.fsum(p for p, _ in pairs) / measured - 1.0) if measured else 0.0

"""Recorded arrivals through the load model under candidate thresholds: the adaptive policy, in virtual time.

The choice is `router.decision.policies.adaptive`'s, written out for speed (tens of thousands of requests times dozens of
candidates); a property test holds the two together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from router.decision.types import Scenario
from router.tuning.load_model import Curve
from router.tuning.records import Record

BLOCKS = 12
"""Parts of the time that intervals of speeds come from."""


class Facts(NamedTuple):
    """What a job knows of a group beside its records."""

    group: str
    variants: tuple[str, ...]
    precisions: tuple[str, ...]
    ranks: tuple[float, ...]
    prices: tuple[float, ...]
    scenarios: Mapping[str, Scenario]
    last_resorts: frozenset[str] = frozenset()

    @property
    def top(self) -> float:
        """Rank of full precision."""
        return max(
            (r for v, r in zip(self.variants, self.ranks, strict=True) if v not in self.last_resorts), default=0.0
        )

    @property
    def reference(self) -> frozenset[str]:
        """Names of the full-precision variants."""
        return frozenset(v for v, r in zip(self.variants, self.ranks, strict=True) if r >= self.top)

    @property
    def lower(self) -> tuple[str, ...]:
        """Precisions below full precision, the higher first."""
        pairs = {
            (r, p)
            for v, p, r in zip(self.variants, self.precisions, self.ranks, strict=True)
            if r < self.top and v not in self.last_resorts
        }
        return tuple(p for _, p in sorted(pairs, reverse=True))


class Arrival(NamedTuple):
    """One recorded request, made ready."""

    at: float
    prompt: int
    tokens: int
    ttft_s: float
    """Targets; inf where there is none."""
    e2e_s: float
    quality_gives_way: bool
    lowest_first: bool
    usable: tuple[int, ...]
    """Variants that were live and fitting."""
    risks: tuple[float, ...]
    """By variant; 0 for full precision."""
    targeted: bool


class Outcome(NamedTuple):
    """What a replay says."""

    choices: list[int]
    ttft_s: list[float]
    e2e_s: list[float]
    in_time: list[bool]
    end: float


def arrivals(records: Sequence[Record], facts: Facts) -> list[Arrival]:
    """Return the records as arrivals, in order of their beginning (`order` gives the same order)."""
    return [_arrival(records[i], facts) for i in order(records)]


def order(records: Sequence[Record]) -> list[int]:
    """Return the records' indices in order of their beginning."""
    return sorted(range(len(records)), key=lambda i: records[i].at - records[i].e2e_s)


def thickened(requests: Sequence[Arrival], weights: Sequence[float], most: int) -> tuple[list[Arrival], list[int]]:
    """Return the newest arrivals, at most `most`, with those that were not recorded, and where each recorded one stands.

    A request that stands for others is followed by as many like it, spread up to the next recorded one. The places are
    those of the newest recorded requests, in their order.
    """
    left, first = float(most), len(requests)
    while first > 0 and weights[first - 1] <= left:
        first -= 1
        left -= weights[first]
    first = min(first, max(0, len(requests) - 1))
    found: list[Arrival] = []
    places = []
    owed = 0.0
    for i in range(first, len(requests)):
        request = requests[i]
        owed += weights[i]
        copies = max(1, int(owed + 1e-9))
        owed -= copies
        gap = requests[i + 1].at - request.at if i + 1 < len(requests) else 0.0
        places.append(len(found))
        found.append(request)
        found.extend(request._replace(at=request.at + gap * k / copies) for k in range(1, copies))
    return found, places


def _arrival(record: Record, facts: Facts) -> Arrival:
    options = {o.variant: o for o in record.options}
    usable = tuple(
        k
        for k, v in enumerate(facts.variants)
        if v not in facts.last_resorts and (o := options.get(v)) is not None and o.live and o.fits
    )
    top = facts.top
    risks = tuple(
        0.0 if rank >= top else (options[v].risk if v in options else record.risks.get(p, 1.0))
        for v, p, rank in zip(facts.variants, facts.precisions, facts.ranks, strict=True)
    )
    scenario = facts.scenarios.get(record.scenario) or Scenario(record.scenario)
    ttft, e2e = record.ttft_target_s, record.e2e_target_s
    return Arrival(
        record.at - record.e2e_s,
        max(1, record.prompt_tokens),
        max(1, record.completion_tokens),
        math.inf if ttft is None else ttft,
        math.inf if e2e is None else e2e,
        scenario.gives_way == "quality",
        scenario.prefer == "lowest_precision",
        usable,
        risks,
        ttft is not None or e2e is not None,
    )


def limits(thresholds: Mapping[str, float], facts: Facts) -> tuple[float, ...]:
    """Return the thresholds by variant: 1 for full precision, 0 where none is named, below all risks for a last resort."""
    top = facts.top
    return tuple(
        -1.0 if v in facts.last_resorts else (1.0 if rank >= top else thresholds.get(p, 0.0))
        for v, p, rank in zip(facts.variants, facts.precisions, facts.ranks, strict=True)
    )


def pick(
    usable: Sequence[int],
    allowed: Sequence[bool],
    predicted: Sequence[tuple[float, float, float]],
    ranks: Sequence[float],
    arrival: Arrival,
) -> int:
    """Return the variant that the adaptive policy takes; `predicted` is (TTFT, whole answer, cost) by variant."""
    best, key = -1, (math.inf, math.inf)
    for k in usable:
        ttft, e2e, cost = predicted[k]
        if allowed[k] and ttft <= arrival.ttft_s and e2e <= arrival.e2e_s:
            found = (ranks[k], cost) if arrival.lowest_first else (cost, ranks[k])
            if found < key:
                best, key = k, found
    if best >= 0:
        return best
    if arrival.quality_gives_way:
        for k in usable:
            ttft, e2e, cost = predicted[k]
            if ttft <= arrival.ttft_s and e2e <= arrival.e2e_s and (found := (-ranks[k], cost)) < key:
                best, key = k, found
        if best >= 0:
            return best
        return min(usable, key=lambda k: (predicted[k][1], predicted[k][0], -ranks[k]))
    within = [k for k in usable if allowed[k]]
    if within:
        return min(within, key=lambda k: (predicted[k][2], ranks[k]))
    return min(usable, key=lambda k: (-ranks[k], predicted[k][2]))


class _Server:
    """One variant in virtual time. Its arithmetic is most of a job's: attributes instead of the curve's fields."""

    __slots__ = ("base", "clock", "done", "first", "heap", "last", "line", "per_running", "per_token", "slope", "slots")

    def __init__(self, curve: Curve) -> None:
        # A token takes some time, however fast: nothing divides by zero.
        self.base, self.slope, self.slots = max(1e-9, curve.itl_base), curve.itl_per_running, curve.slots
        self.first, self.per_token, self.per_running = curve.ttft_base, curve.ttft_per_token, curve.ttft_per_running
        self.clock = 0.0
        """Tokens that a request running since the beginning would have got."""
        self.last = 0.0
        self.heap: list[tuple[float, int]] = []
        self.line: deque[tuple[int, int, int, float]] = deque()
        self.done: list[tuple[int, float]] = []

    def advance(self, now: float, ttft: list[float]) -> None:
        """Let everything happen that ends before `now`."""
        heap, last, clock = self.heap, self.last, self.clock
        while heap:
            itl = self.base + self.slope * len(heap)
            ends = last + (heap[0][0] - clock) * itl
            if ends > now:
                clock += (now - last) / itl
                break
            self.clock = clock = heap[0][0]
            self.last = last = ends
            self.done.append((heappop(heap)[1], ends))
            if self.line:
                self._begin(*self.line.popleft(), ends, ttft)
        self.clock = clock
        if last < now < math.inf:
            last = now
        self.last = last

    def add(self, request: int, prompt: int, tokens: int, now: float, ttft: list[float]) -> None:
        """Take in a request."""
        if len(self.heap) >= self.slots:
            self.line.append((request, prompt, tokens, now))
        else:
            self._begin(request, prompt, tokens, now, now, ttft)

    def _begin(self, request: int, prompt: int, tokens: int, came: float, now: float, ttft: list[float]) -> None:
        running = len(self.heap) + 1
        first = self.first + self.per_token * prompt + self.per_running * running
        ttft[request] = now - came + first
        itl = self.base + self.slope * running
        heappush(self.heap, (self.clock + first / itl + tokens - 1, request))

    def predict(self, prompt: int, expected: float) -> tuple[float, float]:
        """Return what the proxy would predict for one more request: (TTFT, whole answer)."""
        running = len(self.heap) + 1.0
        if running > self.slots:
            running = self.slots
        first = self.first + self.per_token * prompt + self.per_running * running
        itl = self.base + self.slope * running
        if self.line:
            first += len(self.line) * (first + itl * expected) / max(1.0, running)
        return first, first + itl * max(0.0, expected - 1.0)


def replay(
    requests: Sequence[Arrival],
    curves: Sequence[Curve],
    facts: Facts,
    thresholds: Mapping[str, float],
    forced: Sequence[int] | None = None,
) -> Outcome:
    """Send all requests through; `forced` gives the variants instead of the policy."""
    n = len(requests)
    bounds = limits(thresholds, facts)
    ttft, e2e, choices = [0.0] * n, [0.0] * n, [0] * n
    servers = [_Server(c) for c in curves]
    count = len(servers)
    expected = math.fsum(r.tokens for r in requests) / max(1, n)
    ranks, prices = facts.ranks, facts.prices
    predicted = [(0.0, 0.0, 0.0)] * count
    allowed = [True] * count
    top = facts.top
    every = tuple(range(count))
    further = max(0.0, expected - 1.0)
    for i, request in enumerate(requests):
        now, prompt = request.at, request.prompt
        for server in servers:
            heap = server.heap
            if heap:
                # `advance` where nothing ends before `now`, as mostly: without the call.
                itl = server.base + server.slope * len(heap)
                if server.last + (heap[0][0] - server.clock) * itl > now:
                    server.clock += (now - server.last) / itl
                    if server.last < now:
                        server.last = now
                    continue
            server.advance(now, ttft)
        usable = request.usable or every
        if forced is not None:
            choice = forced[i]
        elif len(usable) == 1:
            choice = usable[0]
        else:
            risks = request.risks
            lowest = top
            for k in range(count):
                if risks[k] <= bounds[k] and ranks[k] < lowest:
                    lowest = ranks[k]
            for k in usable:
                server = servers[k]
                if server.line or len(server.heap) >= server.slots:
                    first, whole = server.predict(prompt, expected)
                else:
                    # `predict` where nobody waits, as mostly: without the call.
                    before = len(server.heap)
                    first = server.first + server.per_token * prompt + server.per_running * (before + 1.0)
                    whole = first + (server.base + server.slope * (before + 1.0)) * further
                predicted[k] = (first, whole, whole * prices[k])
                allowed[k] = ranks[k] > lowest or risks[k] <= bounds[k]
            choice = pick(usable, allowed, predicted, ranks, request)
        choices[i] = choice
        servers[choice].add(i, prompt, request.tokens, now, ttft)
    for server in servers:
        server.advance(math.inf, ttft)
        for request_index, at in server.done:
            e2e[request_index] = at - requests[request_index].at
    in_time = [t <= r.ttft_s and e <= r.e2e_s for t, e, r in zip(ttft, e2e, requests, strict=True)]
    return Outcome(
        choices, ttft, e2e, in_time, max((r.at + e for r, e in zip(requests, e2e, strict=True)), default=0.0)
    )

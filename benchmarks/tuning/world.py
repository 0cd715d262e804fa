"""A planted truth: known risks, qualities and speeds; traffic whose records a tuning job reads.

Virtual time. Requests arrive by a Poisson process whose rate swings; risks are drawn; the quality of an answer falls
with the risk as `loss` says, with noise; times come from processor-sharing servers (`router.tuning.replay`), measured
with noise. The logging policy is the adaptive one with exploration; propensities are exact.

This is not `benchmarks/world`, which runs the proxy's own state, balancer and speed estimation on engines with continuous
batching. Here a variant is just what the load model takes it for, so that what is measured is the statistics alone: how far
estimates, intervals and choices are from a truth that is known without error of another model. And thresholds must be
valued on tens of thousands of requests, hundreds of times: this world serves 20,000 in under a second.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from router.decision.types import Scenario
from router.tuning.load_model import Curve
from router.tuning.records import Label, Option, Record
from router.tuning.replay import Arrival, Facts, Outcome, _Server, limits, pick, replay

FACTS = Facts(
    group="g",
    variants=("fp16", "int8", "int4"),
    precisions=("fp16", "int8", "int4"),
    ranks=(16.25, 8.0, 4.0),
    prices=(1.0, 1.0, 1.0),
    scenarios={"realtime": Scenario("realtime", 1.0, 8.0, "speed")},
)
CURVES = {
    "fp16": Curve(0.05, 2e-4, 2e-3, 0.012, 0.0008),
    "int8": Curve(0.05, 2e-4, 2e-3, 0.008, 0.0005),
    "int4": Curve(0.05, 2e-4, 2e-3, 0.005, 0.0004),
}


@dataclass(frozen=True)
class World:
    """The truth."""

    rate: float = 9.0
    """Requests/s on average."""
    swing: float = 0.3
    """Relative swing of the rate."""
    curves: Mapping[str, Curve] = field(default_factory=lambda: dict(CURVES))
    loss: Mapping[str, float] = field(default_factory=lambda: {"int8": 0.03, "int4": 0.10})
    """Loss of quality at risk 1; at risk x the mean loss is this times x."""
    noise: float = 0.05
    """Standard deviation of one paired difference."""
    hard: float = 2.0
    """Shape of the risks: beta(hard, 3), lower is easier."""
    explore: float = 0.05
    shadow: float = 0.2
    """Share of requests judged against full precision."""
    trial: float | None = None
    """The same for explored requests and a canary's; None: as the others."""
    whole: bool = False
    """Whether a judge says only same or not: an answer is lost whole, with the probability of its loss."""
    lower_share: float = 0.25
    """Of these, where full precision answered: share that a lower one is asked as well."""
    feedback: float = 0.0
    """Share of requests with a score from one of `keys`."""
    keys: int = 10
    level: float = 0.8
    """Quality of full precision."""
    poison: float | None = None
    """What key0 always says; None: it is honest."""
    poisoned_share: float = 0.5
    """Share of the feedback that key0 gives when it is not honest."""

    def mean_loss(self, precision: str, risk: float) -> float:
        """Return the true mean loss of an answer."""
        return self.loss.get(precision, 0.0) * risk

    def but(self, **changes: object) -> World:
        """Return this world with something else."""
        return replace(self, **changes)  # type: ignore[arg-type]


def traffic(world: World, count: int, rng: random.Random, start: float = 0.0) -> list[Arrival]:
    """Return `count` arrivals."""
    scenario = FACTS.scenarios["realtime"]
    found, now = [], start
    for _ in range(count):
        rate = world.rate * (1.0 + world.swing * math.sin(2 * math.pi * (now - start) / 120.0))
        now += rng.expovariate(rate)
        hardness = rng.betavariate(world.hard, 3.0)
        risks = (0.0, min(1.0, max(0.0, 0.5 * hardness + rng.gauss(0, 0.03))), min(1.0, max(0.0, hardness)))
        found.append(
            Arrival(
                now,
                max(8, int(rng.lognormvariate(5.5, 0.7))),
                max(4, int(rng.lognormvariate(5.0, 0.6))),
                scenario.ttft_s or math.inf,
                scenario.e2e_s or math.inf,
                False,
                False,
                (0, 1, 2),
                risks,
                True,
            )
        )
    return found


def serve(
    world: World, requests: list[Arrival], arms: list[Mapping[str, float]], rng: random.Random, *, explore: bool = True
) -> tuple[Outcome, list[tuple[float, ...]], list[bool]]:
    """Send requests through the true servers; `arms[i]` are request i's thresholds. Return outcomes, propensities, explored."""
    curves = [world.curves[v] for v in FACTS.variants]
    n = len(requests)
    ttft, e2e, choices = [0.0] * n, [0.0] * n, [0] * n
    servers = [_Server(c) for c in curves]
    expected = math.fsum(r.tokens for r in requests) / max(1, n)
    propensities, explored = [], []
    share = world.explore if explore else 0.0
    for i, request in enumerate(requests):
        bounds = limits(arms[i], FACTS)
        for server in servers:
            server.advance(request.at, ttft)
        lowest = min((FACTS.ranks[k] for k in (1, 2) if request.risks[k] <= bounds[k]), default=FACTS.top)
        predicted, allowed = [], []
        for k, server in enumerate(servers):
            first, whole = server.predict(request.prompt, expected)
            predicted.append((first, whole, whole * FACTS.prices[k]))
            allowed.append(FACTS.ranks[k] > lowest or request.risks[k] <= bounds[k])
        greedy = pick(request.usable, allowed, predicted, FACTS.ranks, request)
        other = rng.random() < share
        choice = rng.randrange(3) if other else greedy
        propensities.append(tuple((1 - share if k == greedy else 0.0) + share / 3 for k in range(3)))
        explored.append(choice != greedy)
        choices[i] = choice
        servers[choice].add(i, request.prompt, request.tokens, request.at, ttft)
    for server in servers:
        server.advance(math.inf, ttft)
        for i, at in server.done:
            e2e[i] = at - requests[i].at
    in_time = [t <= r.ttft_s and e <= r.e2e_s for t, e, r in zip(ttft, e2e, requests, strict=True)]
    return Outcome(choices, ttft, e2e, in_time, 0.0), propensities, explored


def record(
    world: World,
    requests: list[Arrival],
    thresholds: Mapping[str, float],
    rng: random.Random,
    *,
    canary: tuple[float, Mapping[str, float]] | None = None,
    version: str = "1",
    prefix: str = "r",
) -> list[Record]:
    """Return the records that the world makes of these requests under `thresholds` (and a canary's share)."""
    arms = [canary[1] if canary is not None and rng.random() < canary[0] else thresholds for _ in requests]
    outcome, propensities, explored = serve(world, requests, arms, rng)
    found = []
    for i, request in enumerate(requests):
        on_trial = canary is not None and arms[i] is canary[1]
        choice = outcome.choices[i]
        precision = FACTS.precisions[choice]
        noisy = 1.0 + rng.gauss(0, 0.05)
        shadow = world.trial if world.trial is not None and (on_trial or explored[i]) else world.shadow
        options = tuple(
            Option(v, p, r, True, True, request.risks[k], arms[i].get(p, 0.0), 0.1, 1.0, propensities[i][k])
            for k, (v, p, r) in enumerate(zip(FACTS.variants, FACTS.precisions, FACTS.ranks, strict=True))
        )
        end = request.at + outcome.e2e_s[i]
        found.append(
            Record(
                id=f"{prefix}{i}",
                at=end,
                group="g",
                scenario="realtime",
                version=version + ("-canary" if on_trial else ""),
                arm="canary" if on_trial else "stable",
                explored=explored[i],
                variant=FACTS.variants[choice],
                options=options,
                risks={p: request.risks[k] for k, p in enumerate(FACTS.precisions) if k},
                prompt_tokens=request.prompt,
                completion_tokens=request.tokens,
                ttft_s=outcome.ttft_s[i] * max(0.5, noisy),
                e2e_s=outcome.e2e_s[i],
                ok=True,
                labels=tuple(_labels(world, precision, request.risks[choice], end, rng, shadow)),
                others=tuple(_others(world, request, end, rng, shadow)) if precision == "fp16" else (),
                ttft_target_s=request.ttft_s,
                e2e_target_s=request.e2e_s,
            )
        )
    return found


def _paired(world: World, loss: float, rng: random.Random) -> float:
    if world.whole:
        return world.level * (rng.random() >= loss / world.level)
    # Uniform, so that nothing has to be cut off at 1, which would move the mean.
    return world.level - loss + world.noise * rng.uniform(-1.7, 1.7)


def _others(world: World, request: Arrival, at: float, rng: random.Random, shadow: float) -> list[Label]:
    """Return what the shadow of full precision's answer says of a lower one."""
    share = shadow * world.lower_share
    if rng.random() >= share:
        return []
    k = rng.choice((1, 2))
    value = _paired(world, world.mean_loss(FACTS.precisions[k], request.risks[k]), rng)
    return [Label("shadow:match", value, world.level, "", at, FACTS.variants[k], share / 2)]


def _labels(world: World, precision: str, risk: float, at: float, rng: random.Random, shadow: float) -> list[Label]:
    labels = []
    loss = world.mean_loss(precision, risk)
    if rng.random() < shadow and precision != "fp16":
        value = _paired(world, loss, rng)
        labels.append(Label("shadow:match", value, world.level, "", at, "", shadow))
    if rng.random() < world.feedback:
        key = f"key{rng.randrange(world.keys)}"
        if world.poison is not None and rng.random() < world.poisoned_share:
            key = "key0"
        good = rng.random() < world.level - loss
        value = float(good) if world.poison is None or key != "key0" else world.poison
        labels.append(Label("thumbs", value, None, key, at))
    return labels


@dataclass(frozen=True)
class Truth:
    """What thresholds really do."""

    goodput: float
    """Tokens/s in time."""
    quality: float
    """Mean difference from full precision."""
    attainment: float


def truth(world: World, thresholds: Mapping[str, float], *, seed: int = 7, count: int = 12_000) -> Truth:
    """Return the true figures of thresholds, on fresh traffic without exploration."""
    rng = random.Random(seed)
    requests = traffic(world, count, rng)
    outcome = replay(requests, [world.curves[v] for v in FACTS.variants], FACTS, thresholds)
    good = math.fsum(r.tokens for r, ok in zip(requests, outcome.in_time, strict=True) if ok)
    lost = math.fsum(
        world.mean_loss(FACTS.precisions[k], r.risks[k]) for r, k in zip(requests, outcome.choices, strict=True)
    )
    span = requests[-1].at - requests[0].at
    return Truth(good / span, -lost / count, sum(outcome.in_time) / count)


__all__ = ["CURVES", "FACTS", "Truth", "World", "record", "serve", "traffic", "truth"]

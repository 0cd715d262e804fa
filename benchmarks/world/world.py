"""The world: arrivals, the router's real decisions, engines in virtual time, planted quality.

    specs = [VariantSpec("fp16", 2), VariantSpec("int8", 2), VariantSpec("int4", 2)]
    world = World(specs, Truth(seed=1), thresholds={"int8": 0.1, "int4": 0.05}, exploration=Exploration(0.02, 0.3), seed=1)
    world.every(1.0, inner_loop)                      # called with the world each virtual second
    world.at(600.0, lambda w: w.slow_down("int8", 2)) # a shift
    world.run(arrivals)
    print(measure(world.served, world.scenarios))

What is real: policy, exploration, canary arms, fleet state, balancer, speed estimation and its fading, and what a finished
request teaches (`router.decision`, `router.state`, `router.proxy.learn`). Each proxy worker has a state of its own, reads
every replica's queue once a second as from `/metrics`, and knows its own requests in flight. What is simulated: the
replicas (`engine.py`), the classifier (arrivals carry their risks), the network (takes no time). Nothing fails.

Time is virtual and every draw follows from `seed`: the same arguments give the same run.
"""

from __future__ import annotations

import gc
import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.world.engine import Engine, Job
from benchmarks.world.hardware import VariantSpec
from benchmarks.world.labels import Answer, Labeller
from benchmarks.world.records import record_of
from benchmarks.world.seat import Seat
from benchmarks.world.served import Served
from benchmarks.world.traffic import Arrival
from benchmarks.world.truth import Truth, Worth
from router.config.runtime import Runtime
from router.config.schema import Config
from router.decision import (
    POLICIES,
    CanaryArm,
    Decision,
    Exploration,
    Inputs,
    Policy,
    RequestFacts,
    Scenario,
    choose_arm,
    explore,
)
from router.decision.exploration import OFF
from router.proxy.learn import learn
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT
from router.proxy.usage import Usage
from router.state import Fleet, Group, Replica, Variant
from router.tuning.records import Label, Record

GROUP = "world"
_STALE_S = 10.0


@dataclass(frozen=True)
class Control:
    """What decides from now on; assign a changed one to `World.control` at any time."""

    thresholds: Mapping[str, float]
    """Highest risk by precision."""
    version: str = "v1"
    canary: CanaryArm | None = None


class _Ticket(NamedTuple):
    """What a job carries."""

    index: int
    arrival: Arrival
    outcome: Outcome
    decision: Decision
    variant: Variant
    replica: Replica


class World:
    """One group of variants under one stream of arrivals.

    `thresholds`: highest risk by precision, a missing one is 0. `policy`: a name in `router.decision.POLICIES` or a
    function. `config`: for scenarios, balancer, intervals. `labeller`: what is said of answers. `record`: takes each
    request's `Record` with its labels; without it none is made, which is faster. `workers`: proxy processes, each with
    a view of its own; each arrival goes to one at random. `keep`: keep each request in `served`.
    """

    def __init__(
        self,
        specs: Sequence[VariantSpec],
        truth: Truth,
        *,
        thresholds: Mapping[str, float] | None = None,
        policy: str | Policy = "adaptive",
        exploration: Exploration = OFF,
        config: Config | None = None,
        labeller: Labeller | None = None,
        record: Callable[[Record], None] | None = None,
        workers: int = 1,
        keep: bool = True,
        seed: int = 0,
    ) -> None:
        self.specs = tuple(specs)
        self.truth = truth
        self.exploration = exploration
        self.control = Control(dict(thresholds or {}))
        self.now = 0.0
        self.served: list[Served] = []
        self.recent: Callable[[Served], None] | None = None
        """Called with each request as it ends, for hooks that watch."""
        self._policy = POLICIES[policy] if isinstance(policy, str) else policy
        self._labeller = labeller
        self._record = record
        self._keep = keep
        self._random = random.Random(seed)
        self._said = random.Random(seed + 1)
        chosen = config or Config()
        self._metrics_s, self._stale_s = chosen.health.metrics_interval_s, chosen.health.stale_s
        runtime = Runtime(config=chosen, variants=tuple(spec.runtime(GROUP) for spec in specs))
        self.fleets = [Fleet(runtime, {}, {}) for _ in range(workers)]
        self.scenarios: Mapping[str, Scenario] = self.fleets[0].scenarios
        self._seats: dict[tuple[str, int], Seat] = {}
        for spec in specs:
            for i in range(spec.replicas):
                views = [fleet.groups[GROUP].variants[spec.variant].replicas[i] for fleet in self.fleets]
                seat = self._seats[spec.variant, i] = Seat(spec.engine(), views)
                seat.prove(spec)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._pushed = 0
        self._open = 0
        """Requests inside."""
        self._coming = True

    @property
    def group(self) -> Group:
        """The first worker's view of the group: `thresholds` there are not read, `control` is."""
        return self.fleets[0].groups[GROUP]

    @property
    def engines(self) -> Mapping[tuple[str, int], Engine]:
        """Engines by (variant, replica)."""
        return {key: seat.engine for key, seat in self._seats.items()}

    def at(self, when: float, what: Callable[[World], None]) -> None:
        """Call `what` with this world at a virtual time: for shifts, new thresholds, canaries."""
        self._push(when, what, (self,))

    def every(self, seconds: float, what: Callable[[World], None], start: float | None = None) -> None:
        """Call `what` with this world every so many virtual seconds while requests come or are inside."""
        self._push(seconds if start is None else start, self._again, (seconds, what))

    def slow_down(self, variant: str, factor: float) -> None:
        """Make every step of a variant take `factor` times as long as at the start."""
        for (name, _), seat in self._seats.items():
            if name == variant:
                seat.engine.slow_down(factor, self.now)
                self._rearm(seat)

    def worsen(self, precision: str, by: float) -> None:
        """Make a precision lose `by` more of its answers: a bad checkpoint."""
        self.truth = self.truth.worse(precision, by)

    def run(self, arrivals: Iterable[Arrival], until: float | None = None) -> list[Served]:
        """Let the arrivals, in the order of time, come and be served; gives back `served`.

        Ends when all were answered, or at virtual time `until`: what is still inside then counts as not served. May be
        called again with later arrivals.
        """
        stream = enumerate(arrivals, len(self.served) if self._keep else 0)
        self._coming = True
        for seat in self._seats.values():
            for view in seat.views:
                self._push(self.now + self._metrics_s * self._random.random(), self._read_metrics, (seat, view))
        self._next(stream)
        collecting = gc.isenabled()
        gc.disable()  # kept requests hold no cycles, and looking through them again and again costs half of the time
        try:
            self._work(until)
        finally:
            if collecting:
                gc.enable()
        if until is not None:
            self.now = until
            self._abandon()
        self._events = []
        return self.served

    def _work(self, until: float | None) -> None:
        events = self._events
        while events:
            at, _, what, arguments = heapq.heappop(events)
            if until is not None and at > until:
                break
            self.now = at
            what(*arguments)

    def _next(self, stream: Any) -> None:
        index, arrival = next(stream, (0, None))
        if arrival is None:
            self._coming = False
            return
        self._push(arrival.at, self._arrive, (stream, index, arrival))

    def _arrive(self, stream: Any, index: int, arrival: Arrival) -> None:
        self._next(stream)
        self._open += 1
        now = self.now
        fleet = self._random.choice(self.fleets) if len(self.fleets) > 1 else self.fleets[0]
        group = fleet.groups[GROUP]
        decision = self._decide(fleet, group, arrival, now)
        variant = group.variants[decision.variant] if decision.variant is not None else None
        replica = variant.pick(now) if variant is not None else None
        if variant is None or replica is None:
            self._refuse(index, arrival, decision)
            return
        running, waiting = replica.load(now, _STALE_S)
        outcome = Outcome(
            str(index),
            CHAT,
            now,
            group=group,
            decision=decision,
            risks=arrival.risks,
            units=float(arrival.prompt_tokens),
            stream=True,
            variant=variant,
            replica=replica,
            attempts=1,
            sent_up=now,
            running=running + 1.0,
            queued=waiting > 0.0,
        )
        outcome.ahead, outcome.mark = replica.send(now, float(arrival.prompt_tokens))
        replica.requests += 1
        seat = self._seats[variant.name, replica.index]
        ticket = _Ticket(index, arrival, outcome, decision, variant, replica)
        seat.engine.add(Job(ticket, arrival.prompt_tokens, arrival.output_tokens), now)
        self._rearm(seat)

    def _decide(self, fleet: Fleet, group: Group, arrival: Arrival, now: float) -> Decision:
        control = self.control
        arm = choose_arm(self._random.random(), control.thresholds, control.version, control.canary)
        facts = RequestFacts(
            group.prompt_tokens(arrival.prompt_tokens),
            max(1, round(group.expected_output_tokens)),
            least_prompt_tokens=arrival.prompt_tokens,
            long_output_tokens=round(group.long_output_tokens),
        )
        scenario = fleet.scenarios[arrival.scenario]
        inputs = Inputs(facts, arrival.risks, arm.thresholds, group.states(now), scenario, arm.version)
        decision = self._policy(inputs)._replace(arm=arm.name, thresholds=arm.thresholds)
        return explore(decision, self.exploration, self._random.random())

    def _refuse(self, index: int, arrival: Arrival, decision: Decision) -> None:
        never = float("inf")
        self._end(Served(index, arrival, "", "", -1, decision, never, None, never, self.now, Worth(0.0, 0.0, 0.0, 0.0)))

    def _due(self, seat: Seat, version: int) -> None:
        if version != seat.version:
            return
        ended = seat.engine.advance(self.now)
        self._rearm(seat)
        for job in ended:
            self._finish(job)

    def _rearm(self, seat: Seat) -> None:
        due = seat.engine.due
        seat.version += 1
        if due is not None:
            self._push(due, self._due, (seat, seat.version))

    def _finish(self, job: Job) -> None:
        index, arrival, outcome, decision, variant, replica = job.owner
        now = self.now
        outcome.first_token_at, outcome.last_token_at, outcome.ended = job.first_token, now, now
        outcome.usage = Usage(arrival.prompt_tokens, arrival.output_tokens)
        outcome.status = 200
        replica.end(now, float(arrival.prompt_tokens), outcome.sent_up, outcome.mark, computed=True)
        replica.success()
        replica.last_byte_at = now
        learn(outcome, now)
        precision = variant.spec.precision
        worth = self.truth.worth(precision, arrival, index)
        served = Served(
            index,
            arrival,
            variant.name,
            precision,
            replica.index,
            decision,
            outcome.ttft_s or 0.0,
            outcome.itl_s,
            now - arrival.at,
            now,
            worth,
        )
        self._end(served)

    def _end(self, served: Served) -> None:
        self._open -= 1
        if self._keep:
            self.served.append(served)
        if self.recent is not None:
            self.recent(served)
        if self._record is not None and served.done:
            self._record(self.record_of(served))

    def record_of(self, served: Served) -> Record:
        """Return the record that the event of this request and its feedback would make."""
        labels: Sequence[Label] = ()
        if self._labeller is not None:
            answer = Answer(served.ended, served.arrival.key, served.variant, served.precision, served.worth)
            labels = self._labeller(self._said, answer)
        return record_of(served, GROUP, self.scenarios[served.arrival.scenario], labels)

    def _read_metrics(self, seat: Seat, view: Replica) -> None:
        view.read(self.now, seat.metrics())
        if self._coming or self._open:
            self._push(self.now + self._metrics_s, self._read_metrics, (seat, view))

    def _again(self, seconds: float, what: Callable[[World], None]) -> None:
        what(self)
        if self._coming or self._open:
            self._push(self.now + seconds, self._again, (seconds, what))

    def _push(self, at: float, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (at, self._pushed, what, arguments))

    def _abandon(self) -> None:
        """Count what is still inside as not served."""
        for (_, i), seat in self._seats.items():
            for job in seat.engine.drop():
                ticket = job.owner
                ticket.replica.inflight -= 1
                precision = ticket.variant.spec.precision
                never = float("inf")
                ttft = never if job.first_token is None else job.first_token - ticket.arrival.at
                worth = self.truth.worth(precision, ticket.arrival, ticket.index)
                self._open -= 1
                if self._keep:
                    self.served.append(
                        Served(
                            ticket.index,
                            ticket.arrival,
                            "",
                            precision,
                            i,
                            ticket.decision,
                            ttft,
                            None,
                            never,
                            self.now,
                            worth,
                        )
                    )
            seat.version += 1
        self._coming = False


__all__ = ["GROUP", "Control", "World"]

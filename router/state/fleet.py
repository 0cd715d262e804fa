"""Groups, their variants and replicas, as one worker sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from backends.settings import PRECISION_BITS
from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import BreakerConfig, Config
from router.control.document import ControlDocument, GroupTuning
from router.decision.arms import CanaryArm
from router.decision.types import Scenario, VariantState
from router.state.balancers import BALANCERS, Balancer
from router.state.replica import Replica
from router.state.windows import Window

_DEFAULT_OUTPUT_TOKENS = 200.0
_LONG = 0.9
"""Quantile of the answers' lengths that has to be in time."""


@dataclass(slots=True)
class Traffic:
    """What a variant did lately, for people and for the tuning to come."""

    tokens_10s: Window = field(default_factory=lambda: Window(10.0))
    tokens_60s: Window = field(default_factory=lambda: Window(60.0))
    ttft_60s: Window = field(default_factory=lambda: Window(60.0))
    itl_60s: Window = field(default_factory=lambda: Window(60.0))
    requests_60s: Window = field(default_factory=lambda: Window(60.0))


@dataclass(slots=True)
class Lengths:
    """What was learnt of a group's requests."""

    output_tokens: float = _DEFAULT_OUTPUT_TOKENS
    """Mean length of an answer."""
    long_output_tokens: float = 2 * _DEFAULT_OUTPUT_TOKENS
    """Length that one in ten answers exceeds."""
    tokens_per_unit: float = 1.0
    """Tokens of a prompt for each unit of text."""


class Variant:
    """A group at one precision."""

    def __init__(self, spec: RuntimeVariant, replicas: list[Replica], balancer: Balancer, stale_s: float) -> None:
        self.spec = spec
        self.name = spec.variant
        self.rank = PRECISION_BITS[spec.precision]
        # Read per request: a pydantic model's fields cost more than own ones.
        self._precision, self._price, self._last_resort = spec.precision, spec.price, spec.last_resort
        self.replicas = replicas
        self.traffic = Traffic()
        self._balancer = balancer
        self._stale_s = stale_s
        self._turn = 0

    @property
    def max_model_len(self) -> int | None:
        """Context length: the configured one, else the longest that a replica says."""
        if self.spec.max_model_len is not None:
            return self.spec.max_model_len
        if len(self.replicas) == 1:
            return self.replicas[0].max_model_len
        return max((r.max_model_len for r in self.replicas if r.max_model_len is not None), default=None)

    def succeeds(self, old: Variant) -> Variant:
        """Return `old` where nothing differs, otherwise this one with the other's traffic."""
        alike = self.spec == old.spec and self._balancer is old._balancer and self._stale_s == old._stale_s
        if alike and self.replicas == old.replicas:
            return old
        self.traffic, self._turn = old.traffic, old._turn
        return self

    def usable(self, now: float, excluded: Collection[Replica] = ()) -> list[Replica]:
        """Return the replicas that would take a request now."""
        return [r for r in self.replicas if r.available(now) and r not in excluded]

    def pick(self, now: float, excluded: Collection[Replica] = ()) -> Replica | None:
        """Return the balancer's choice among the usable replicas, or None."""
        usable = self.usable(now, excluded)
        if not usable:
            return None
        self._turn += 1
        if len(usable) == 1:
            return usable[0]
        return usable[self._balancer([sum(r.load(now, self._stale_s)) for r in usable], self._turn)]

    def state(self, now: float, excluded: Collection[Replica] = ()) -> VariantState:
        """Return the snapshot that a decision sees: the least loaded usable replica's speed."""
        best = self._least_loaded(now, excluded)
        speed = best.speed(now, self._stale_s) if best is not None else None
        return VariantState(
            self.name,
            self._precision,
            self.rank,
            best is not None,
            speed,
            self._price,
            self._last_resort,
            self.max_model_len,
        )

    def _least_loaded(self, now: float, excluded: Collection[Replica]) -> Replica | None:
        if len(self.replicas) == 1:
            only = self.replicas[0]
            return only if only.available(now) and only not in excluded else None
        usable = self.usable(now, excluded)
        return min(usable, key=lambda r: sum(r.load(now, self._stale_s))) if usable else None


class Group:
    """One logical model."""

    def __init__(self, name: str, variants: dict[str, Variant], thresholds: Mapping[str, float], scenario: str) -> None:
        self.name = name
        self.variants = variants
        self.thresholds = thresholds
        self.version = ""
        """Version of these thresholds; empty: the configuration's `policy_version`."""
        self.canary: CanaryArm | None = None
        """Other thresholds on trial."""
        self.scenario = scenario
        self.lengths = Lengths()

    @property
    def expected_output_tokens(self) -> float:
        """Mean length of the group's answers so far, tokens."""
        return self.lengths.output_tokens

    @property
    def long_output_tokens(self) -> float:
        """Length that one in ten of the group's answers exceeds, tokens; never below the mean."""
        return max(self.lengths.output_tokens, self.lengths.long_output_tokens)

    def prompt_tokens(self, units: float) -> int:
        """Return the estimate of a prompt's tokens from its size in units of text (`text_units`)."""
        return max(1, round(units * self.lengths.tokens_per_unit))

    def learn_lengths(self, units: float, prompt_tokens: int, output_tokens: int) -> None:
        """Take in the true lengths of one answered request."""
        lengths = self.lengths
        lengths.output_tokens += 0.05 * (output_tokens - lengths.output_tokens)
        # A quantile by stochastic approximation (Robbins and Monro, 1951): up by 0.9 of a step, down by 0.1.
        step = (_LONG if output_tokens > lengths.long_output_tokens else _LONG - 1.0) * 0.05 * lengths.output_tokens
        lengths.long_output_tokens = max(1.0, lengths.long_output_tokens + step)
        if units >= 1.0 and prompt_tokens > 0:
            ratio = min(8.0, max(0.125, prompt_tokens / units))
            lengths.tokens_per_unit += 0.05 * (ratio - lengths.tokens_per_unit)

    def states(self, now: float, excluded: Collection[Replica] = ()) -> tuple[VariantState, ...]:
        """Return every variant's snapshot."""
        return tuple(v.state(now, excluded) for v in self.variants.values())

    def retry_after_s(self, now: float, variants: Collection[Variant]) -> float:
        """Return when the first of these variants' replicas may take a request again, seconds from now."""
        waits = [_wait(replica, now) for variant in variants for replica in variant.replicas if not replica.draining]
        return min(waits, default=5.0)


def _wait(replica: Replica, now: float) -> float:
    if replica.ready:
        return max(0.0, replica.cool_until - now)
    # A replica that isn't up yet: nobody knows; one that is out is probed again at a known time.
    return max(1.0, replica.breaker.retry_at - now) if replica.ever_ready else 5.0


class Fleet:
    """All groups, as the runtime file and the control document want them.

    `recommended` are thresholds where neither says any, and `own` those of groups with a classifier of their own. With a `previous` fleet, replicas that stay keep their
    connections, speeds and breakers, and what stays the same is the same object. Nothing of the previous one is
    changed before `settle`.
    """

    def __init__(
        self,
        runtime: Runtime,
        env: Mapping[str, str],
        recommended: Mapping[str, float],
        document: ControlDocument | None = None,
        previous: Fleet | None = None,
        own: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    ) -> None:
        config = runtime.config
        self._document = document or ControlDocument()
        self._breaker = config.breaker
        self.groups: dict[str, Group] = {}
        for name, specs in runtime.groups().items():
            old = previous.groups.get(name) if previous is not None else None
            variants = {
                s.variant: _variant(s, config, env, old.variants.get(s.variant) if old else None) for s in specs
            }
            self.groups[name] = self._group(name, variants, config, own.get(name, recommended), old)
        self.scenarios = {
            name: Scenario(
                name,
                s.ttft_ms / 1000 if s.ttft_ms is not None else None,
                s.e2e_ms / 1000 if s.e2e_ms is not None else None,
                s.gives_way,
                s.prefer,
                s.overload == "refuse",
            )
            for name, s in (
                ("realtime", config.scenarios.realtime),
                ("batch", config.scenarios.batch),
                ("edge", config.scenarios.edge),
            )
        }

    def _group(
        self,
        name: str,
        variants: dict[str, Variant],
        config: Config,
        recommended: Mapping[str, float],
        old: Group | None,
    ) -> Group:
        settings, tuning = config.groups.get(name), self._document.groups.get(name, GroupTuning())
        thresholds: dict[str, float] = dict(recommended)
        thresholds.update(config.thresholds.items())
        thresholds.update(settings.thresholds.items() if settings else ())
        thresholds.update(tuning.thresholds.items())
        group = Group(name, variants, thresholds, settings.scenario if settings else "realtime")
        if self._document.version:
            group.version = str(self._document.version)
        if tuning.canary is not None:
            tried = dict(thresholds)
            tried.update(tuning.canary.thresholds.items())
            group.canary = CanaryArm(tuning.canary.share, tried, f"{self._document.version}-canary")
        if old is not None:
            group.lengths = old.lengths
        return group

    def settle(self) -> list[Replica]:
        """Make the replicas follow this fleet's document and configuration; they come back."""
        for variant in self.variants():
            drained = self._document.drained.get(variant.spec.pinned, ())
            for replica in variant.replicas:
                replica.draining = replica.pool.base_url in drained
                breaker: BreakerConfig = self._breaker
                replica.breaker.retune(breaker.failures, breaker.open_s, breaker.open_max_s)
        return [r for v in self.variants() for r in v.replicas]

    def variants(self) -> list[Variant]:
        """Return every variant of every group."""
        return [v for g in self.groups.values() for v in g.variants.values()]

    def close(self) -> None:
        """Close the kept connections."""
        for variant in self.variants():
            for replica in variant.replicas:
                replica.pool.close()


def _variant(spec: RuntimeVariant, config: Config, env: Mapping[str, str], old: Variant | None) -> Variant:
    key = spec.api_key(env)
    headers = [(b"authorization", b"Bearer " + key.encode())] if key else []
    kept = list(old.replicas) if old is not None and old.spec.served_model == spec.served_model else []
    numbers = {r.index for r in kept if r.pool.base_url in {u.rstrip("/") for u in spec.urls}}
    replicas = []
    for url in spec.urls:
        replica = next((r for r in kept if r.pool.base_url == url.rstrip("/") and r.headers == headers), None)
        if replica is None:
            # A number names one server in metrics and events for as long as it stays.
            index = next(n for n in range(len(numbers) + 1) if n not in numbers)
            replica = Replica(index, url, headers, config.breaker)
        else:
            kept.remove(replica)
        numbers.add(replica.index)
        replicas.append(replica)
    made = Variant(spec, replicas, BALANCERS[config.balancer], config.health.stale_s)
    return made.succeeds(old) if old is not None else made

"""What other rules would have done to recorded traffic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from router.config.schema import Config
from router.control.document import ControlDocument
from router.decision.types import Decision
from router.replay.recorded import NotReplayableError, Recorded, recorded
from router.replay.rules import rules_of

_LONGEST_LIST = 1000
_GROUPS_TOLD = 20
_STRANGE = "its group would have another classifier: that one's risks were not recorded"


@dataclass(frozen=True)
class Totals:
    """Means over the requests that the replayed ones stand for, predicted as of their moment; infinite or unknown times are
    left out."""

    ttft_s: float
    e2e_s: float
    tokens_per_s: float
    """Of one answer: expected tokens over predicted seconds, mean."""
    cost: float
    """Price times seconds, as a decision compares them."""
    risk: float
    """Probability that the answer is worse than full precision's."""


@dataclass(frozen=True)
class Move:
    """One request that is decided differently."""

    id: str
    group: str
    scenario: str
    before: str | None
    after: str | None
    reason_before: str
    reason_after: str
    risk_before: float
    risk_after: float


@dataclass(frozen=True)
class Effect:
    """What would change. The state of the variants is the recorded one: that moved traffic changes it is not foretold."""

    requests: int
    """Decided anew."""
    skipped: Mapping[str, int]
    """Events that could not be, by reason."""
    moved: int
    """Requests whose variant would be another."""
    moves: Mapping[str, int]
    """By `FROM -> TO`."""
    shares_before: Mapping[str, float]
    """Share of requests by variant; one whose event was kept with a probability counts for its inverse."""
    shares_after: Mapping[str, float]
    before: Totals
    after: Totals
    listed: tuple[Move, ...]
    """The first that moved, at most as many as asked for."""
    other_groups: tuple[str, ...] = ()
    """Groups of events that were not asked for: the first 20."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not finite as null."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def effect(
    events: Iterable[Mapping[str, Any]],
    config: Config,
    recommended: Mapping[str, float],
    document: ControlDocument | None = None,
    *,
    group: str | None = None,
    limit: int = _LONGEST_LIST,
    own: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    strange: Collection[str] = (),
) -> Effect:
    """Return what `config` (and a control document's tuning) would have decided on these events.

    `recommended`: the classifier's own thresholds; `own`: those of groups with a classifier of their own. `group`: only
    this one's events. `limit`: how many moves are listed. `strange`: groups that would have another classifier, whose
    risks nobody recorded.
    Pure, one pass, memory does not grow with the events.
    """
    rules = rules_of(config, recommended, document, own)
    skipped: Counter[str] = Counter()
    moves: Counter[str] = Counter()
    shares: tuple[dict[str, float], dict[str, float]] = {}, {}
    sums = _Sums(), _Sums()
    listed: list[Move] = []
    others: set[str] = set()
    requests = 0
    for event in events:
        of = event.get("group")
        # An event that names no group is damaged, and counted below.
        if group is not None and of != group and isinstance(of, str):
            if len(others) < _GROUPS_TOLD:
                others.add(of)
            continue
        if isinstance(of, str) and of in strange:
            skipped[_STRANGE] += 1
            continue
        try:
            one = recorded(event)
        except NotReplayableError as why:
            skipped[str(why)] += 1
            continue
        requests += 1
        decision = rules.decide(one)
        for count, total, variant in zip(shares, sums, (one.variant, decision.variant), strict=True):
            count[variant or "none"] = count.get(variant or "none", 0.0) + one.weight
            total.add(one, decision, variant)
        if decision.variant == one.variant:
            continue
        moves[f"{one.variant or 'none'} -> {decision.variant or 'none'}"] += 1
        if len(listed) < limit:
            listed.append(_move(one, decision))
    return Effect(
        requests=requests,
        skipped=dict(skipped),
        moved=moves.total(),
        moves=dict(moves.most_common()),
        shares_before=_shares(shares[0]),
        shares_after=_shares(shares[1]),
        before=sums[0].means(),
        after=sums[1].means(),
        listed=tuple(listed),
        other_groups=tuple(sorted(others)),
    )


class _Sums:
    def __init__(self) -> None:
        self._names = ("ttft_s", "e2e_s", "tokens_per_s", "cost", "risk")
        self._values = dict.fromkeys(self._names, 0.0)
        self._weights = dict.fromkeys(self._names, 0.0)

    def add(self, one: Recorded, decision: Decision, variant: str | None) -> None:
        found = next((c for c in decision.candidates if c.variant == variant), None)
        if found is None:
            return
        speed = one.facts.output_tokens / found.e2e_s if found.e2e_s > 0 else math.inf
        figures = (found.ttft_s, found.e2e_s, speed, found.cost, found.risk)
        for name, value in zip(self._names, figures, strict=True):
            if math.isfinite(value):
                self._values[name] += one.weight * value
                self._weights[name] += one.weight

    def means(self) -> Totals:
        weights = self._weights
        return Totals(**{n: self._values[n] / weights[n] if weights[n] else math.nan for n in self._names})


def _move(one: Recorded, decision: Decision) -> Move:
    risks = {c.variant: c.risk for c in decision.candidates}
    return Move(
        one.id,
        one.group,
        one.scenario,
        one.variant,
        decision.variant,
        one.reason,
        decision.reason,
        risks.get(one.variant or "", 0.0),
        risks.get(decision.variant or "", 0.0),
    )


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in sorted(counts.items())}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Exploration: a small, known share of requests takes a variant at random, so that its outcome becomes known.

With probability `share` the variant is drawn uniformly from the explorable ones, K of them, the policy's own choice
among these: epsilon-greedy. So the policy's choice has propensity 1 - share + share/K, each other one share/K, which is
what inverse propensity estimators need. Pure: one number in [0, 1) is the whole chance.
"""

from __future__ import annotations

from typing import NamedTuple

from router.decision.types import Candidate, Decision

EXPLORABLE = frozenset(
    {"within_limits", "quality_gave_way", "speed_gave_way", "latency_missed", "only_lower_precision_live"}
)
"""Reasons of a free choice. Pins, last resorts, requests too long for all and the policy of full precision are none."""


class Exploration(NamedTuple):
    """How much is explored."""

    share: float = 0.0
    max_risk: float = 0.0
    """No variant whose risk for the request is above this."""


OFF = Exploration()


def explore(decision: Decision, exploration: Exploration, dice: float, bound: float | None = None) -> Decision:
    """Return the policy's decision or another variant's, with every candidate's propensity.

    `dice` in [0, 1) explores where it is below the share, and its place within the share picks the variant. `bound` is
    the client's own on risk. Where nothing may be explored the choice has propensity 1.
    """
    share = exploration.share
    if share <= 0.0 or decision.variant is None or decision.reason not in EXPLORABLE:
        chosen = decision.variant
        return decision._replace(propensities=tuple([float(c.variant == chosen) for c in decision.candidates]))
    limit = exploration.max_risk if bound is None else min(bound, exploration.max_risk)
    pool = [c for c in decision.candidates if c.variant == decision.variant or _explorable(c, limit)]
    each = share / len(pool)
    greedy = 1.0 - share + each
    propensities = tuple(
        greedy if c.variant == decision.variant else each if _explorable(c, limit) else 0.0 for c in decision.candidates
    )
    if dice >= share:
        return decision._replace(propensity=greedy, propensities=propensities)
    drawn = pool[min(len(pool) - 1, int(dice / share * len(pool)))]
    if drawn.variant == decision.variant:
        return decision._replace(propensity=greedy, propensities=propensities, explored=True)
    return decision._replace(
        variant=drawn.variant,
        reason="explored",
        risk=drawn.risk,
        threshold=drawn.threshold,
        propensity=each,
        propensities=propensities,
        explored=True,
    )


def _explorable(candidate: Candidate, limit: float) -> bool:
    return candidate.live and candidate.fits and not candidate.last_resort and candidate.risk <= limit

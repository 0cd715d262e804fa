"""What stands in the feedback stream: one statement about one answer, as JSON in the field `feedback`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.proxy.outcome import Outcome

FIELD = "feedback"
KEPT = ("id", "t", "tenant", "group", "variant", "policy", "arm", "propensity")
"""What feedback keeps of a request, and by which it finds its event."""


def facts_of(outcome: Outcome) -> dict[str, Any]:
    """Return these of an ended request, as its event tells them."""
    decision = outcome.decision
    return {
        "id": outcome.request_id,
        "t": outcome.at,
        "tenant": outcome.tenant,
        "group": outcome.group.name if outcome.group is not None else None,
        "variant": outcome.variant.name if outcome.variant is not None else None,
        "policy": decision.version if decision is not None else None,
        "arm": decision.arm if decision is not None else None,
        # An answer of the cache was no choice.
        "propensity": decision.propensity if decision is not None and decision.reason != "cached" else None,
    }


def label_entry(
    facts: Mapping[str, Any],
    source: str,
    value: float,
    at: float,
    *,
    key: str = "",
    reference: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return one label, to be written as JSON.

    `facts` is the request's event, its index entry or `facts_of`. `source` as in `router.tuning.records.Label`;
    `value` and `reference` are qualities in [0, 1]; `at` is Unix time; `key` is the digest of who gave it. `more` is
    kept beside.
    """
    found: dict[str, Any] = {name: facts.get(name) for name in KEPT}
    found.update(source=source, value=value, at=round(at, 3), key=key)
    if reference is not None:
        found["reference"] = reference
    found.update({name: it for name, it in more.items() if it is not None})
    return found

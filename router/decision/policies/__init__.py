"""Policies by name: a new one is a file with `decide` and a line here."""

from __future__ import annotations

from collections.abc import Callable

from router.decision.policies import adaptive, full_precision
from router.decision.types import Decision, Inputs

Policy = Callable[[Inputs], Decision]

POLICIES: dict[str, Policy] = {
    "adaptive": adaptive.decide,
    "full_precision": full_precision.decide,
}

"""What goes into a decision and what comes out: plain immutable values, so that a decision can be replayed offline.

Named tuples, not frozen dataclasses: a dozen are made per request, and these are made several times faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from router.decision.arms import ArmName

Reason = Literal[
    "within_limits",
    "quality_gave_way",
    "speed_gave_way",
    "latency_missed",
    "only_lower_precision_live",
    "last_resort",
    "too_long_for_all",
    "full_precision",
    "pinned",
    "pinned_unavailable",
    "max_risk_unavailable",
    "none_live",
    "overloaded",
    "cached",
    "explored",
]

FULL_PRECISIONS = frozenset({"fp32", "fp16", "bf16"})
"""Precisions that carry no risk unless a classifier says otherwise."""


class Speed(NamedTuple):
    """How fast the best replica of a variant would serve one more request now."""

    queue_s: float = 0.0
    """Wait before the prefill begins, seconds."""
    prefill_base_s: float = 0.0
    prefill_per_token_s: float = 0.0
    itl_s: float = 0.0
    """Time between tokens with this request among the running ones, seconds."""


class Predicted(NamedTuple):
    """What was predicted for one request on one variant, when it is known already: of a recorded decision."""

    ttft_s: float
    e2e_s: float
    cost: float


class VariantState(NamedTuple):
    """One variant at the moment of the decision."""

    name: str
    precision: str
    rank: float
    """Orders precisions: the higher, the more precise."""
    live: bool
    """Whether a replica would take the request now."""
    speed: Speed | None = None
    """None while nothing was measured: then it counts as fast, so that it gets measured."""
    price: float = 1.0
    last_resort: bool = False
    max_model_len: int | None = None
    predicted: Predicted | None = None
    """Where it is given, speed and price are not looked at."""


class RequestFacts(NamedTuple):
    """What the policy has to know of a request; lengths are in tokens."""

    prompt_tokens: int
    """Estimate, for predicting latency."""
    output_tokens: int
    """Expected length of the answer, for predicting latency."""
    least_prompt_tokens: int = 0
    """Lower bound: above a variant's context length it certainly does not fit."""
    max_tokens: int | None = None
    pin: str | None = None
    """Name of the variant that the client demands."""
    max_risk: float | None = None
    """Hard bound on risk that the client demands."""
    long_output_tokens: int = 0
    """Length that few answers exceed: its latency has to meet the target; 0 where it is not known."""


class Scenario(NamedTuple):
    """Latency targets in seconds, and what gives way when nothing meets all."""

    name: str
    ttft_s: float | None = None
    e2e_s: float | None = None
    gives_way: Literal["speed", "quality"] = "speed"
    prefer: Literal["cheapest", "lowest_precision"] = "cheapest"
    refuses: bool = False
    """Whether a request that no variant would answer in time is refused."""


class Inputs(NamedTuple):
    """Everything a policy sees."""

    request: RequestFacts
    risks: Mapping[str, float]
    """Risk by precision; a full precision is absent or 0, any other that is absent counts as 1."""
    thresholds: Mapping[str, float]
    """Highest risk by precision."""
    variants: tuple[VariantState, ...]
    scenario: Scenario
    version: str = "v1"
    arm: ArmName = "stable"


class Candidate(NamedTuple):
    """How one variant stood in a decision."""

    variant: str
    precision: str
    live: bool
    risk: float
    threshold: float
    allowed: bool
    """Its precision may take this request."""
    in_time: bool
    """Its predicted latency meets the scenario."""
    fits: bool
    """The request fits its context length, as far as is known."""
    ttft_s: float
    e2e_s: float
    cost: float
    """Price times predicted seconds."""
    rank: float = 0.0
    """Orders precisions: the higher, the more precise."""
    last_resort: bool = False


class Decision(NamedTuple):
    """One choice and why; `variant` is None when nothing can serve the request."""

    variant: str | None
    reason: Reason
    risk: float
    threshold: float
    scenario: str
    version: str
    candidates: tuple[Candidate, ...]
    propensity: float = 1.0
    """Probability with which this choice is taken, given its arm; 1 where nothing is explored."""
    propensities: tuple[float, ...] = ()
    """That of each candidate, in their order; they sum to 1."""
    explored: bool = False
    """Whether the choice was drawn at random; the draw may have fallen on the policy's own choice."""
    arm: ArmName = "stable"
    thresholds: Mapping[str, float] = MappingProxyType({})
    """Highest risk by precision, as in force for this decision."""

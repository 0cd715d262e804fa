"""A decision as JSON, for people and for the record."""

from __future__ import annotations

from typing import Any

from router.decision import Candidate, Decision
from router.proxy.deciding import Question


def explain(decision: Decision, question: Question) -> dict[str, Any]:
    """Return the whole decision: the choice, and how every variant stood; times in milliseconds."""
    return {
        "variant": decision.variant,
        "reason": decision.reason,
        "risk": round(decision.risk, 6),
        "threshold": decision.threshold,
        "scenario": decision.scenario,
        "policy_version": decision.version,
        "arm": decision.arm,
        "propensity": decision.propensity,
        "explored": decision.explored,
        "risks": {k: round(v, 6) for k, v in question.risks.items()},
        "prompt_tokens_estimate": question.facts.prompt_tokens,
        "output_tokens_estimate": question.facts.output_tokens,
        "pinned": question.facts.pin,
        "max_risk": question.facts.max_risk,
        "candidates": [
            {**candidate_json(c), "propensity": p}
            for c, p in zip(decision.candidates, decision.propensities, strict=True)
        ],
    }


def candidate_json(c: Candidate) -> dict[str, Any]:
    """Return how one variant stood."""
    return {
        "variant": c.variant,
        "precision": c.precision,
        "live": c.live,
        "risk": round(c.risk, 6),
        "threshold": c.threshold,
        "allowed": c.allowed,
        "in_time": c.in_time,
        "fits": c.fits,
        "ttft_ms": round(c.ttft_s * 1000, 3),
        "e2e_ms": round(c.e2e_s * 1000, 3),
        "cost": round(c.cost, 6),
    }

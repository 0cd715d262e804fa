"""The decision: a pure function from risks, thresholds and live state to a variant."""

from router.decision.policies import POLICIES, Policy
from router.decision.types import Candidate, Decision, Inputs, RequestFacts, Scenario, Speed, VariantState

__all__ = ["POLICIES", "Candidate", "Decision", "Inputs", "Policy", "RequestFacts", "Scenario", "Speed", "VariantState"]

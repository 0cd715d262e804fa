"""The decision: a pure function from risks, thresholds and live state to a variant."""

from router.decision.arms import Arm, CanaryArm, choose_arm
from router.decision.exploration import Exploration, explore
from router.decision.policies import POLICIES, Policy
from router.decision.types import Candidate, Decision, Inputs, RequestFacts, Scenario, Speed, VariantState

__all__ = [
    "POLICIES",
    "Arm",
    "CanaryArm",
    "Candidate",
    "Decision",
    "Exploration",
    "Inputs",
    "Policy",
    "RequestFacts",
    "Scenario",
    "Speed",
    "VariantState",
    "choose_arm",
    "explore",
]

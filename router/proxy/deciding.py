"""From a parsed request to a decision: lengths, risks, live state, policy."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from classifier import Classifier
from router.config.schema import Config
from router.decision import (
    POLICIES,
    Decision,
    Exploration,
    Inputs,
    Policy,
    RequestFacts,
    choose_arm,
    explore,
)
from router.decision.exploration import OFF
from router.proxy.resolve import Directives, Target
from router.proxy.surface import Endpoint
from router.proxy.validation import output_limit, text_units
from router.state import Replica

_RISK_DIGITS = 6


class Question(NamedTuple):
    """One request, ready to be decided (again, after a failure)."""

    target: Target
    facts: RequestFacts
    risks: Mapping[str, float]
    """Rounded as they are recorded, so that a recorded decision can be made again."""
    units: float
    policy: Policy
    draw: float = 1.0
    """In [0, 1), drawn once: which arm of a canary decides."""
    dice: float = 1.0
    """In [0, 1), drawn once: whether and which variant is explored; 1 explores nothing."""
    exploration: Exploration = OFF


class Decider:
    """Holds what all decisions share. `own`: classifiers of groups that have one.

    `exploration` is for the adaptive policy: the cautious one never explores.
    """

    def __init__(
        self,
        classifier: Classifier,
        policy: str,
        version: str,
        exploration: Exploration = OFF,
        own: Mapping[str, Classifier] = MappingProxyType({}),
    ) -> None:
        self._classifier = classifier
        self._own = own
        self._policy = POLICIES[policy]
        self._version = version
        self._exploration = exploration
        self._random = random.Random()

    def question(self, body: Mapping[str, Any], endpoint: Endpoint, target: Target, directives: Directives) -> Question:
        """Estimate lengths and risks of one request, and draw its chances.

        Whatever is not generated is decided as full precision; embeddings never take another unless the client pins it.
        """
        units, least = text_units(body)
        limit = output_limit(body)
        expected, long = target.group.expected_output_tokens, target.group.long_output_tokens
        facts = RequestFacts(
            prompt_tokens=target.group.prompt_tokens(units),
            output_tokens=max(1, round(expected if limit is None else min(limit, expected)))
            if endpoint.generates
            else 1,
            least_prompt_tokens=least,
            max_tokens=limit,
            pin=target.pin,
            max_risk=0.0 if endpoint.one_precision and target.pin is None else directives.max_risk,
            long_output_tokens=(round(long) if limit is None else min(limit, round(long))) if endpoint.generates else 0,
        )
        draw = self._random.random()
        if not endpoint.generates:
            return Question(target, facts, {}, units, POLICIES["full_precision"], draw)
        classifier = self._own.get(target.group.name, self._classifier)
        risks = {name: round(risk, _RISK_DIGITS) for name, risk in classifier.risk(body).by_precision.items()}
        return Question(target, facts, risks, units, self._policy, draw, self._random.random(), self._exploration)

    def decide(self, question: Question, now: float, excluded: Collection[Replica] = ()) -> Decision:
        """Return the decision on the state of this moment, without the replicas that already failed this request.

        After a failure nothing is explored: the request has had its trouble.
        """
        group = question.target.group
        arm = choose_arm(question.draw, group.thresholds, group.version or self._version, group.canary)
        decision = question.policy(
            Inputs(
                question.facts,
                question.risks,
                arm.thresholds,
                group.states(now, excluded),
                question.target.scenario,
                arm.version,
                arm.name,
            )
        )
        return explore(decision, OFF if excluded else question.exploration, question.dice, question.facts.max_risk)


def decider_of(classifier: Classifier, config: Config, own: Mapping[str, Classifier] = MappingProxyType({})) -> Decider:
    """Return the decider that the configuration describes; `own`: classifiers of groups that have one."""
    exploration = Exploration(config.exploration.effective_share(config.tuning.mode), config.exploration.max_risk)
    return Decider(classifier, config.policy, config.policy_version, exploration, own)

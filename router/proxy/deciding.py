"""From a parsed request to a decision: lengths, risks, live state, policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from classifier import Classifier
from router.decision import POLICIES, Decision, Inputs, Policy, RequestFacts
from router.proxy.resolve import Directives, Target
from router.proxy.surface import Endpoint
from router.proxy.validation import output_limit, text_units
from router.state import Replica


class Question(NamedTuple):
    """One request, ready to be decided (again, after a failure)."""

    target: Target
    facts: RequestFacts
    risks: Mapping[str, float]
    units: float
    policy: Policy


class Decider:
    """Holds what all decisions share."""

    def __init__(self, classifier: Classifier, policy: str, version: str) -> None:
        self._classifier = classifier
        self._policy = POLICIES[policy]
        self._version = version

    def question(self, body: Mapping[str, Any], endpoint: Endpoint, target: Target, directives: Directives) -> Question:
        """Estimate lengths and risks of one request.

        Whatever is not generated is decided as full precision; embeddings never take another unless the client pins it.
        """
        units, least = text_units(body)
        limit = output_limit(body)
        expected = target.group.expected_output_tokens
        facts = RequestFacts(
            prompt_tokens=target.group.prompt_tokens(units),
            output_tokens=max(1, round(expected if limit is None else min(limit, expected)))
            if endpoint.generates
            else 1,
            least_prompt_tokens=least,
            max_tokens=limit,
            pin=target.pin,
            max_risk=0.0 if endpoint.one_precision and target.pin is None else directives.max_risk,
        )
        if not endpoint.generates:
            return Question(target, facts, {}, units, POLICIES["full_precision"])
        return Question(target, facts, self._classifier.risk(body).by_precision, units, self._policy)

    def decide(self, question: Question, now: float, excluded: Collection[Replica] = ()) -> Decision:
        """Return the decision on the state of this moment, without the replicas that already failed this request."""
        group = question.target.group
        return question.policy(
            Inputs(
                request=question.facts,
                risks=question.risks,
                thresholds=group.thresholds,
                variants=group.states(now, excluded),
                scenario=question.target.scenario,
                version=self._version,
            )
        )

"""Metrics of feedback: labels come from the configuration and from fixed lists."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class FeedbackMetrics:
    """The worker's counts, in the registry of all its metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.feedback = Counter(
            "bitgear_feedback", "Statements taken about answers.", ["group", "kind"], registry=registry
        )
        self.pairs = Counter(
            "bitgear_shadow_pairs",
            "Answers compared with another precision's, by judge; verdict: better, equal, worse than full precision, "
            "or unclear where no judge could tell.",
            ["group", "judge", "verdict"],
            registry=registry,
        )
        self.let_go = Counter(
            "bitgear_shadow_let_go",
            "Sampled requests that were not compared: busy, no_room, no_answer (too long, cut, or failed).",
            ["group", "reason"],
            registry=registry,
        )

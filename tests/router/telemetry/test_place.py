"""Goodput, prediction error, queue: what one outcome adds, read back from the exposed text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.config.runtime import Runtime, RuntimeVariant
from router.decision import POLICIES, Candidate, Decision, RequestFacts, Scenario
from router.proxy.deciding import Question
from router.proxy.outcome import Outcome
from router.proxy.resolve import Target
from router.proxy.surface import CHAT
from router.proxy.usage import Usage
from router.state import Fleet, Group
from router.telemetry import EventCounts, Metrics

TARGETS = Scenario("realtime", ttft_s=0.5, e2e_s=2.0)


def asked(scenario: Scenario, group: Group | None = None) -> Question:
    target = Target(group, "g", None, scenario)  # type: ignore[arg-type]
    return Question(target, RequestFacts(90, 16), {}, 90.0, POLICIES["adaptive"])


@pytest.fixture
def outcome() -> Outcome:
    """TTFT 0.4 s after arrival, whole answer 1.9 s; sent after 0.1 s."""
    spec = RuntimeVariant(group="g", variant="int8", precision="int8", urls=("http://127.0.0.1:9",), served_model="m")
    group = Fleet(Runtime(variants=(spec,)), {}, {}).groups["g"]
    variant = group.variants["int8"]
    candidate = Candidate("int8", "int8", True, 0.02, 0.5, True, True, True, 0.1, 1.0, 0.2)
    decision = Decision("int8", "within_limits", 0.02, 0.5, "realtime", "v1", (candidate,))
    return Outcome(
        "id",
        CHAT,
        began=10.0,
        group=group,
        question=asked(TARGETS, group),
        decision=decision,
        stream=True,
        variant=variant,
        replica=variant.replicas[0],
        attempts=1,
        sent_up=10.1,
        running=1.0,
        first_token_at=10.4,
        last_token_at=11.9,
        ended=11.9,
        usage=Usage(90, 16),
        status=200,
    )


def told(metrics: Metrics) -> dict[str, float]:
    """Every sample's value, summed over its labels; buckets by their bound."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics.expose().decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("bitgear_") + (f" {sample.labels['le']}" if "le" in sample.labels else "")
            found[name] = found.get(name, 0.0) + sample.value
    return found


def after(*outcomes: Outcome) -> dict[str, float]:
    metrics = Metrics(None)
    for one in outcomes:
        metrics.finished(one)
    return told(metrics)


def test_every_time_of_one_request(outcome: Outcome) -> None:
    found = after(outcome)
    assert found["time_to_first_token_seconds_sum"] == pytest.approx(0.4)
    assert found["hold_time_seconds_sum"] == pytest.approx(0.1)
    assert found["inter_token_latency_seconds_sum"] == pytest.approx(0.1)
    assert found["e2e_request_latency_seconds_sum"] == pytest.approx(1.9)
    assert found["request_completion_tokens_per_second_sum"] == pytest.approx(16 / 1.8)
    assert found["request_prompt_tokens_per_second_sum"] == pytest.approx(300)
    assert found["ttft_prediction_ratio_sum"] == pytest.approx(3.0)
    assert found["e2e_prediction_ratio_sum"] == pytest.approx(1.8)
    assert found["taken_risk_sum"] == pytest.approx(0.02)
    assert found["queue_time_seconds_count"] == 1.0
    assert found["queue_time_seconds_sum"] == 0.0
    # Buckets add up as Prometheus has them: each holds all below it.
    assert [found[f"time_to_first_token_seconds_bucket {le}"] for le in ("0.25", "0.5", "300.0", "+Inf")] == [
        0,
        1,
        1,
        1,
    ]
    assert [found[f"e2e_prediction_ratio_bucket {le}"] for le in ("1.5", "2.0")] == [0, 1]


def test_the_wait_in_a_queue_is_what_the_prefill_does_not_explain(outcome: Outcome) -> None:
    assert outcome.replica is not None
    outcome.replica.estimator.observe_prefill(90, 0.05)
    assert after(replace(outcome, queued=True))["queue_time_seconds_sum"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("change", "targeted", "good"),
    [
        ({}, 1, 1),
        ({"first_token_at": 10.51}, 1, 0),
        ({"ended": 12.1}, 1, 0),
        ({"first_token_at": None, "last_token_at": None, "stream": False}, 1, 1),
        ({"question": None}, 1, 1),
        ({"question": asked(Scenario("batch")), "ended": 99.0}, 1, 1),
        ({"status": 502, "error": "upstream_error"}, 1, 0),
        ({"status": 429, "error": "overloaded"}, 1, 0),
        ({"error": "closed"}, 1, 0),
        ({"status": 400, "error": "http_400"}, 0, 0),
        ({"status": 499, "error": "client_left"}, 0, 0),
        ({"cache": "hit"}, 0, 0),
    ],
)
def test_goodput_is_what_met_its_targets_of_what_could(
    outcome: Outcome, change: dict[str, object], targeted: int, good: int
) -> None:
    found = after(replace(outcome, **change))  # type: ignore[arg-type]
    assert found.get("targeted_requests_total", 0) == targeted
    assert found.get("goodput_requests_total", 0) == good
    assert found.get("goodput_tokens_total", 0) == 16 * good


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (499, "client_left", "client_left"),
        (503, "overloaded", "overloaded"),
        (429, "x", "overloaded"),
        (504, "x", "timeout"),
        (404, "x", "client"),
        (502, "x", "server"),
        (200, "closed", "broken_stream"),
    ],
)
def test_errors_have_a_kind(outcome: Outcome, status: int, error: str, kind: str) -> None:
    metrics = Metrics(None)
    metrics.finished(replace(outcome, status=status, error=error))
    text = metrics.expose().decode()
    assert f'bitgear_errors_total{{group="g",kind="{kind}",scenario="realtime",variant="int8"}} 1.0' in text


def test_flushing_twice_counts_once_and_goes_on(outcome: Outcome) -> None:
    metrics = Metrics(None)
    for expected in (1, 2):
        metrics.finished(replace(outcome, attempts=2))
        for _ in range(2):
            found = told(metrics)
            assert found["e2e_request_latency_seconds_count"] == found["retries_total"] == expected
            assert found["requests_total"] == found["decisions_total"] == found["cache_requests_total"] == expected


def test_counts_that_begin_anew_never_fall() -> None:
    metrics = Metrics(None)
    for written in (5, 2, 3):
        metrics.update_events(EventCounts(written, 0, 0))
    assert 'bitgear_events_total{result="written"} 8.0' in metrics.expose().decode()


def test_a_replica_that_was_taken_away_is_no_longer_told_of() -> None:
    def fleet(*urls: str) -> Fleet:
        spec = RuntimeVariant(group="g", variant="int8", precision="int8", urls=urls, served_model="m")
        return Fleet(Runtime(variants=(spec,)), {}, {})

    metrics = Metrics(None)
    for urls in (("http://127.0.0.1:8", "http://127.0.0.1:9"), ("http://127.0.0.1:8",)):
        metrics.update_gauges(fleet(*urls))
    text = metrics.expose().decode()
    assert 'bitgear_replica_ready{group="g",replica="0",variant="int8"} 0.0' in text
    assert 'bitgear_replica_ready{group="g",replica="1"' not in text


def test_counts_of_events_grow_by_what_came(outcome: Outcome) -> None:
    metrics = Metrics(None)
    for written in (3, 3, 5):
        metrics.update_events(EventCounts(written, 1, 2))
    text = metrics.expose().decode()
    assert [
        f'bitgear_events_total{{result="{k}"}} {v}' in text
        for k, v in (("written", 5.0), ("dropped", 1.0), ("sampled_out", 2.0))
    ] == [True] * 3

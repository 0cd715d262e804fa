"""What a finished request teaches, and what it must not."""

from __future__ import annotations

from typing import Any

import pytest

from router.config.runtime import Runtime, RuntimeVariant
from router.proxy.learn import learn
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT, ENDPOINTS
from router.proxy.usage import Usage
from router.state import Fleet
from router.state.estimator import SpeedEstimator
from router.state.prompts import Mark


@pytest.fixture
def outcome() -> Outcome:
    spec = RuntimeVariant(group="g", variant="int8", precision="int8", urls=("http://127.0.0.1:9",), served_model="m")
    group = Fleet(Runtime(variants=(spec,)), {}, {}).groups["g"]
    variant = group.variants["int8"]
    return Outcome(
        "id",
        CHAT,
        began=9.9,
        group=group,
        variant=variant,
        replica=variant.replicas[0],
        units=100.0,
        stream=True,
        sent_up=10.0,
        running=1.0,
        first_token_at=10.5,
        last_token_at=12.4,
        ended=12.5,
        usage=Usage(100, 20),
        status=200,
    )


def speed(outcome: Outcome) -> Any:
    assert outcome.replica is not None
    return outcome.replica.estimator.speed(0.0, 0.0)


def seen(outcome: Outcome) -> int:
    assert outcome.variant is not None
    return outcome.variant.traffic.requests_60s.count(12.5)


async def test_a_stream_teaches_first_token_and_time_between_tokens(outcome: Outcome) -> None:
    assert outcome.ttft_s == pytest.approx(0.6)
    assert outcome.itl_s == pytest.approx(0.1)
    learn(outcome, 12.5)
    told = speed(outcome)
    assert told.prefill_base_s + told.prefill_per_token_s * 100 == pytest.approx(0.5)
    assert told.itl_s == pytest.approx(0.1)
    assert outcome.variant is not None
    traffic = outcome.variant.traffic
    assert traffic.tokens_10s.total(12.5) == 20
    assert traffic.ttft_60s.mean(12.5) == pytest.approx(0.5)
    assert traffic.itl_60s.mean(12.5) == pytest.approx(0.1)
    assert seen(outcome) == 1


async def test_prompts_ahead_and_meanwhile_are_not_taken_for_the_servers_own_slowness(outcome: Outcome) -> None:
    replica = outcome.replica
    assert replica is not None
    replica.estimator.observe_prefill(100, 0.1)
    replica.estimator.observe_prefill(10_100, 1.1)
    per_token = replica.estimator.per_token_s
    assert per_token == pytest.approx(0.0001, rel=0.02)
    outcome.ahead, outcome.mark = replica.send(10.0, 100.0)
    replica.send(11.0, 9_500.0)  # half of the answer's 1.9 s went into this prompt
    replica.inflight = 0
    outcome.first_token_at, outcome.last_token_at = 10.1, 12.0
    learn(outcome, 12.0)
    told = replica.estimator.speed(0.0, 0.0)
    assert told is not None
    assert told.itl_s == pytest.approx(0.05, rel=0.1)


async def test_a_replica_learns_how_many_ran_together_over_the_whole_answer(outcome: Outcome) -> None:
    replica = outcome.replica
    assert replica is not None
    seen: list[float] = []

    class Watched(SpeedEstimator):
        def observe_decode(self, running: float, itl_s: float, prompts: float = 0.0) -> None:
            seen.append(running)

    replica.estimator = Watched()
    replica.inflight = 8
    learn(outcome, 12.5)
    assert seen == [5.0]


async def test_a_first_token_after_a_queue_says_nothing_of_the_prefill(outcome: Outcome) -> None:
    outcome.queued = True
    learn(outcome, 12.5)
    assert speed(outcome).prefill_base_s == 0.0
    assert speed(outcome).itl_s > 0


async def test_a_whole_answer_teaches_the_time_between_tokens_less_the_predicted_first(outcome: Outcome) -> None:
    learn(outcome, 12.5)
    outcome.first_token_at = outcome.last_token_at = None
    outcome.ended = 10.0 + 0.5 + 19 * 0.1
    learn(outcome, outcome.ended)
    assert speed(outcome).itl_s == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    "change",
    [
        {"error": "closed"},
        {"status": 499},
        {"status": 500},
        {"status": 0},
        {"variant": None},
        {"replica": None},
        {"endpoint": ENDPOINTS[b"/v1/embeddings"]},
    ],
)
async def test_failures_and_what_is_not_generated_teach_nothing(outcome: Outcome, change: dict[str, Any]) -> None:
    replica, variant = outcome.replica, outcome.variant
    for name, value in change.items():
        setattr(outcome, name, value)
    learn(outcome, 12.5)
    assert replica is not None
    assert not replica.estimator.measured
    assert variant is not None
    assert variant.traffic.requests_60s.count(12.5) == 0


async def test_an_answer_without_usage_only_counts(outcome: Outcome) -> None:
    outcome.usage = None
    learn(outcome, 12.5)
    assert seen(outcome) == 1
    assert speed(outcome) is None


@pytest.mark.parametrize("tokens", [0, 1])
async def test_an_answer_of_one_token_has_no_time_between_tokens(outcome: Outcome, tokens: int) -> None:
    outcome.usage = Usage(100, tokens)
    learn(outcome, 12.5)
    assert speed(outcome).itl_s == 0.0
    outcome.first_token_at = None
    learn(outcome, 12.5)
    assert speed(outcome).itl_s == 0.0


async def test_the_groups_lengths_move_towards_what_was_seen(outcome: Outcome) -> None:
    assert outcome.group is not None
    before = outcome.group.expected_output_tokens
    learn(outcome, 12.5)
    assert 20 < outcome.group.expected_output_tokens < before


async def test_whole_answers_mend_what_a_short_probe_said_of_long_prompts(outcome: Outcome) -> None:
    replica = outcome.replica
    assert replica is not None
    # Of 12 tokens one cannot tell what each takes; taken at its word a prompt of 1,000 would take 0.8 s.
    replica.estimator.observe_prefill(12, 0.03)
    outcome.first_token_at = outcome.last_token_at = None
    outcome.usage = Usage(1000, 20)
    running: list[tuple[float, float, Mark]] = []
    for step in range(200):
        now = 10.0 + step * 0.2
        while running and running[0][0] + 0.5 <= now:
            sent, outcome.ahead, outcome.mark = running.pop(0)
            outcome.sent_up, outcome.ended = sent, sent + 0.5
            replica.end(outcome.ended, 1000, sent, outcome.mark, computed=True)
            learn(outcome, outcome.ended)
        running.append((now, *replica.send(now, 1000)))
    told = replica.speed(50.0, 10.0)
    assert told is not None
    whole = told.queue_s + told.prefill_base_s + told.prefill_per_token_s * 1000 + told.itl_s * 19
    assert 0.3 < whole < 0.9

"""The headers that tell a key's limits."""

from __future__ import annotations

import pytest

from router.keys.allowance import Allowance, duration
from router.keys.pace import Pace
from router.keys.record import KeyRecord, digest


def allowance(**limits: float) -> Allowance:
    return Allowance("a", KeyRecord.model_validate({"sha256": digest(b"k"), **limits}))


def told(key: Allowance, now: float, pace: Pace | None = None) -> dict[str, str]:
    found = key.headers(pace or Pace(), now)
    return {name.decode().removeprefix("x-ratelimit-"): value.decode() for name, value in found}


def test_only_limits_that_there_are_are_told() -> None:
    assert told(allowance(max_concurrent=3), 0.0) == {}
    assert told(allowance(requests_per_minute=60), 0.0) == {
        "limit-requests": "60",
        "remaining-requests": "10",
        "reset-requests": "0ms",
    }
    assert told(allowance(tokens_per_minute=1_500_000), 0.0) == {
        "limit-tokens": "1500000",
        "remaining-tokens": "250000",
        "reset-tokens": "0ms",
    }
    assert told(allowance(requests_per_minute=0.5), 0.0)["limit-requests"] == "0.5"


def test_what_is_left_and_when_it_is_full_again() -> None:
    key, pace = allowance(requests_per_minute=60, tokens_per_minute=6_000), Pace()
    assert [key.take_request(pace, 5.0) for _ in range(3)] == [0.0] * 3
    key.spend_tokens(7_300, pace, 5.0)
    assert told(key, 5.0) == {
        "limit-requests": "60",
        "remaining-requests": "7",
        "reset-requests": "3s",
        "limit-tokens": "6000",
        "remaining-tokens": "0",
        "reset-tokens": "1m13s",
    }
    # As time goes by both come back.
    assert (told(key, 7.5)["remaining-requests"], told(key, 7.5)["reset-requests"]) == ("9", "500ms")
    assert told(key, 70.5)["remaining-tokens"] == "250"


def test_a_worker_that_keeps_its_share_tells_its_share() -> None:
    key = allowance(tokens_per_minute=6_000)
    assert told(key, 0.0, Pace(4)) == {"limit-tokens": "6000", "remaining-tokens": "250", "reset-tokens": "0ms"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0ms"),
        (0.0001, "1ms"),
        (0.35, "350ms"),
        (0.9999, "1s"),
        (2.5, "2.5s"),
        (60.0, "1m0s"),
        (86.4, "1m26.4s"),
        (360.0, "6m0s"),
        (3_630.25, "1h0m30.25s"),
        (86_400.0, "24h0m0s"),
    ],
)
def test_times_as_openai_writes_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_nobody_is_told_a_time_beyond_a_day() -> None:
    key, pace = allowance(tokens_per_minute=1), Pace()
    key.spend_tokens(1e15, pace, 0.0)
    assert told(key, 0.0)["reset-tokens"] == "24h0m0s"
    assert key.debt_s(pace, 0.0) == 86_400.0

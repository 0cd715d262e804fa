"""Tests that hold at any time: level kept under the null at every look, and power."""

from __future__ import annotations

import random

from router.tuning.sequential import Bet, Detector, confidence_sequence


def ever_wins(rng: random.Random, mean: float, *, above: bool, n: int = 500, alpha: float = 0.05) -> bool:
    bet = Bet(0.0, -1.0, 1.0, above=above)
    for _ in range(n):
        bet.add(1.0 if rng.random() < (1 + mean) / 2 else -1.0)
    return bet.won(alpha)


def test_looking_after_every_observation_keeps_the_level() -> None:
    rng = random.Random(1)
    for above in (True, False):
        assert sum(ever_wins(rng, 0.0, above=above) for _ in range(300)) <= 0.05 * 300 + 9


def test_it_sees_what_is_there() -> None:
    rng = random.Random(2)
    assert sum(ever_wins(rng, 0.3, above=True) for _ in range(50)) >= 48
    assert sum(ever_wins(rng, -0.3, above=False) for _ in range(50)) >= 48
    assert sum(ever_wins(rng, -0.3, above=True) for _ in range(50)) <= 3


def test_the_wealth_survives_the_worst_observations() -> None:
    bet = Bet(-0.5, -1.0, 1.0)
    for value in [1.0] * 200 + [-1.0] * 5 + [1.0] * 50:
        bet.add(value)
    assert bet.won(1e-6)


def test_equal_answers_prove_a_margin_of_one_percent_in_some_hundred() -> None:
    bet = Bet(-0.01, -1.0, 1.0)
    n = 0
    while n < 1000:
        n += 1
        bet.add(0.0)
        if bet.won(0.05):
            break
    # The rule of three: 3 / n.
    assert 250 < n < 450


def test_the_detector_finds_a_change_after_a_long_good_time_and_is_quiet_before() -> None:
    rng = random.Random(4)
    delays = []
    for _ in range(20):
        detector = Detector.below(-0.02, -1.0, 1.0)
        for _ in range(1000):
            detector.add(rng.uniform(-0.1, 0.1))
        assert not detector.alarmed(1e-5)
        before = detector.n
        while not detector.alarmed(1e-5) and detector.n < before + 500:
            detector.add(-0.15 + rng.uniform(-0.1, 0.1))
        delays.append(detector.n - before)
    assert max(delays) < 200


def test_the_confidence_sequence_holds_the_mean() -> None:
    rng = random.Random(5)
    low, high = confidence_sequence([0.2 + rng.uniform(-0.1, 0.1) for _ in range(200)], -1.0, 1.0, 0.05, 40)
    assert low - 1e-9 <= 0.2 <= high + 1e-9
    assert high - low < 0.6

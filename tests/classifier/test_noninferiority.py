from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")

from classifier.noninferiority import exact_bounds, holm, mcnemar, paired, verdicts


def _binary(both: int, lost: int, won: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    full = np.array([1.0] * both + [1.0] * lost + [0.0] * won + [0.0] * neither)
    own = np.array([1.0] * both + [0.0] * lost + [1.0] * won + [0.0] * neither)
    return full, own


def test_mcnemar_is_the_binomial_of_the_discordant_pairs() -> None:
    # 2 * (C(9,0) + C(9,1)) / 2**9
    assert mcnemar(8, 1) == pytest.approx(2 * 10 / 512)
    assert mcnemar(0, 0) == 1
    assert mcnemar(5, 5) == 1


def test_bounds_hold_what_they_promise() -> None:
    # No loss among n at level a: the upper bound of P(lost) solves (1 - p)**n = a / 2.
    _, high = exact_bounds(0, 0, 100, 0.05)
    assert high == pytest.approx(1 - 0.025 ** (1 / 100))


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 300))
def test_exact_bounds_hold_the_estimate_and_shrink_with_the_level(lost: int, won: int, rest: int) -> None:
    size = lost + won + rest
    if not size:
        return
    low, high = exact_bounds(lost, won, size, 0.025)
    narrow = exact_bounds(lost, won, size, 0.25)
    assert -1 <= low <= narrow[0] <= (lost - won) / size + 1e-9
    assert (lost - won) / size - 1e-9 <= narrow[1] <= high <= 1


def test_coverage_of_the_exact_interval() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        lost, won, _ = generator.multinomial(150, [0.08, 0.05, 0.87])
        low, high = exact_bounds(int(lost), int(won), 150, 0.025)
        covered += low <= 0.03 <= high
    assert covered >= 0.95 * 400


def test_many_equal_pairs_prove_non_inferiority_and_few_do_not() -> None:
    many = paired(*_binary(3000, 0, 0, 0), 0.01)
    few = paired(*_binary(100, 0, 0, 0), 0.01)
    assert many.p_non_inferior < 0.001
    assert few.p_non_inferior > 0.05
    assert many.p_inferior == 1
    # Bisected p-values agree with the bound they were made from.
    assert exact_bounds(0, 0, 3000, many.p_non_inferior * 1.001)[1] < 0.01 * many.full_quality


def test_heavy_losses_prove_inferiority() -> None:
    row = paired(*_binary(300, 150, 2, 50), 0.01)
    assert (row.lost, row.won) == (150, 2)
    assert row.p_inferior < 1e-6
    assert verdicts({"a": row, "b": paired(*_binary(10, 10, 0, 0), 0.01)}) == {"a": "inferior", "b": "inferior"}
    assert verdicts({"b": paired(*_binary(9, 10, 0, 0), 0.01)}) == {"b": "undecided"}


def test_other_qualities_are_tested_by_t() -> None:
    generator = np.random.default_rng(0)
    own = 1 - np.abs(generator.normal(0.002, 0.001, 200))
    row = paired(np.ones(200), own, 0.01)
    assert row.mcnemar is None
    assert row.lost is None
    assert row.low < 0.0022 < row.high + 0.001
    assert verdicts({"a": row}) == {"a": "non_inferior"}
    assert verdicts({"a": paired(np.ones(200), own - 0.1, 0.01)}) == {"a": "inferior"}


def test_nothing_proves_nothing() -> None:
    row = paired(np.array([]), np.array([]), 0.01)
    assert (row.prompts, row.p_non_inferior, row.p_inferior) == (0, 1.0, 1.0)


def test_one_pair_says_nothing_and_stays_finite() -> None:
    row = paired(np.array([1.0]), np.array([0.9]), 0.01)
    assert (row.low, row.high) == (-1, 1)
    assert verdicts({"a": row}) == {"a": "undecided"}


def test_holm_steps_down() -> None:
    assert holm([0.001, 0.02, 0.04, 0.9], 0.05) == [True, False, False, False]
    assert holm([0.04, 0.01, 0.015], 0.05) == [True, True, True]
    assert holm([]) == []


def test_more_segments_make_proof_harder() -> None:
    borderline = paired(*_binary(520, 0, 0, 0), 0.01)
    assert verdicts({"a": borderline}) == {"a": "non_inferior"}
    assert set(
        verdicts({str(i): borderline if not i else paired(*_binary(50, 1, 1, 9), 0.01) for i in range(40)}).values()
    ) == {"undecided"}

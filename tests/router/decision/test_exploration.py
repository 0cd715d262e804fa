"""Exploration takes another variant at the stated rate and says so: its propensities are the true ones."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from router.decision import POLICIES, Candidate, Decision, Exploration, explore
from router.decision.exploration import EXPLORABLE
from tests.router.decision.draws import draw_inputs

HALF = Exploration(0.2, 0.3)


def candidate(name: str, risk: float = 0.1, **more: bool) -> Candidate:
    found = Candidate(name, name, True, risk, 0.5, True, True, True, 0.1, 0.2, 0.2)
    return found._replace(**more)


def decision(*candidates: Candidate, chosen: str = "a", reason: str = "within_limits") -> Decision:
    return Decision(chosen, reason, 0.1, 0.5, "s", "v", candidates)  # type: ignore[arg-type]


THREE = decision(candidate("a", 0.0), candidate("b"), candidate("c", 0.3))


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 10**9), st.floats(0, 0.999999), st.sampled_from((0.0, 0.02, 0.2)), st.sampled_from((0.0, 0.3, 1.0))
)
def test_propensities_sum_to_one_over_what_may_be_taken(seed: int, dice: float, share: float, most: float) -> None:
    inputs = draw_inputs(random.Random(seed))
    plain = POLICIES["adaptive"](inputs)
    bound = inputs.request.max_risk
    found = explore(plain, Exploration(share, most), dice, bound)
    assert len(found.propensities) == len(found.candidates)
    if plain.variant is None:
        assert (found.variant, sum(found.propensities), found.explored) == (None, 0.0, False)
        return
    by_name = dict(zip([c.variant for c in found.candidates], found.propensities, strict=True))
    assert abs(sum(found.propensities) - 1.0) < 1e-9
    assert found.propensity == by_name[found.variant or ""] > 0.0
    assert by_name[plain.variant] >= 1.0 - share
    for c in found.candidates:
        if by_name[c.variant] > 0.0 and c.variant != plain.variant:
            assert c.live
            assert c.fits
            assert not c.last_resort
            assert c.risk <= most
            assert bound is None or c.risk <= bound
    if found.variant != plain.variant:
        assert found.reason == "explored"
        assert found.explored
        assert dice < share
        assert plain.reason in EXPLORABLE
    elif not found.explored:
        assert found.reason == plain.reason


def test_the_frequency_is_the_stated_propensity() -> None:
    rng, n = random.Random(7), 60_000
    seen = Counter(explore(THREE, HALF, rng.random()).variant for _ in range(n))
    stated = explore(THREE, HALF, 0.99).propensities
    assert [round(p, 6) for p in stated] == [0.866667, 0.066667, 0.066667]
    for name, p in zip("abc", stated, strict=True):
        assert abs(seen[name] / n - p) < 4 * (p * (1 - p) / n) ** 0.5


def test_one_number_decides_whether_and_which() -> None:
    found = [explore(THREE, HALF, dice) for dice in (0.0, 0.07, 0.14, 0.19999999, 0.2)]
    assert [f.variant for f in found] == ["a", "b", "c", "c", "a"]
    assert [f.explored for f in found] == [True, True, True, True, False]
    assert [f.reason for f in found] == ["within_limits", "explored", "explored", "explored", "within_limits"]
    assert (found[2].risk, found[1].risk) == (0.3, 0.1)


def test_what_may_not_be_taken_never_is() -> None:
    others = decision(
        candidate("a"),
        candidate("dead", live=False),
        candidate("last", last_resort=True),
        candidate("short", fits=False),
        candidate("risky", 0.30001),
    )
    for dice in (0.0, 0.1, 0.19):
        found = explore(others, HALF, dice)
        assert (found.variant, found.propensity, found.propensities) == ("a", 1.0, (1.0, 0.0, 0.0, 0.0, 0.0))
    assert explore(THREE, HALF, 0.07, bound=0.05).variant == "a"
    # The policy's own choice stays possible whatever its risk: it was not exploration that took it.
    risky = decision(candidate("a", 0.9), candidate("b"))
    assert explore(risky, HALF, 0.0).variant == "a"


def test_a_choice_that_was_not_free_explores_nothing() -> None:
    for reason in ("pinned", "last_resort", "too_long_for_all", "full_precision", "cached"):
        fixed = THREE._replace(reason=reason)  # type: ignore[arg-type]
        found = explore(fixed, HALF, 0.07)
        assert (found.variant, found.propensities, found.explored) == ("a", (1.0, 0.0, 0.0), False)

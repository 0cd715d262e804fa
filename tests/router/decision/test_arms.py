"""A draw below the canary's share tries its thresholds; every other request keeps the stable ones."""

from __future__ import annotations

from router.decision import CanaryArm, choose_arm

STABLE, TRIAL = {"int8": 0.2}, {"int8": 0.3}


def test_the_draw_chooses_the_arm() -> None:
    canary = CanaryArm(0.1, TRIAL, "7-canary")
    for draw, name in ((0.0, "canary"), (0.0999, "canary"), (0.1, "stable"), (0.999, "stable")):
        arm = choose_arm(draw, STABLE, "6", canary)
        assert arm == ((name, TRIAL, "7-canary") if name == "canary" else (name, STABLE, "6"))


def test_without_a_canary_all_is_stable() -> None:
    assert choose_arm(0.0, STABLE, "6", None) == ("stable", STABLE, "6")

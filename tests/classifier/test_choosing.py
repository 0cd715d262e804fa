from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from classifier.choosing import FALLBACK, MEMBERS, blended, candidates, choose, lift
from classifier.conversation import view
from classifier.features import extract
from classifier.fit import FITTERS, Examples

LEAF: dict[str, object] = {"start": 0.0, "roots": [0], "feature": [-1], "value": [0.0], "right": [0]}
NOTHING: dict[str, object] = {"intercept": 0.0, "smoothing": 1.0, "weights": {}}

# Boosting is slow; what is chosen between does not depend on it here.
LIGHT = {**FITTERS, "growing": lambda part, seed: LEAF, "trees": lambda part, seed: LEAF}


def examples(rows: int = 240) -> Examples:
    generator = np.random.default_rng(1)
    texts, target = [], []
    for _ in range(rows):
        hard = bool(generator.random() < 0.5)
        filler = " ".join(generator.choice(["sea", "wide", "old", "blue", "tree"], 12))
        texts.append(f"{'velvet' if hard else 'marble'} {filler}")
        target.append(float(hard))
    return Examples(
        [extract(view({"prompt": text})) for text in texts],
        np.array(target),
        [str(number % 30) for number in range(rows)],
    )


def test_growing_is_always_a_member_and_a_single_score_never_decides() -> None:
    for members, kept in candidates():
        assert members[0] == "growing"
        assert set(members) <= set(MEMBERS)
        assert 2 <= kept <= len(members)
    assert len(set(candidates())) == len(candidates())


def test_lift_is_nought_by_chance_and_highest_in_the_right_order() -> None:
    generator = np.random.default_rng(0)
    target = generator.random(4000)
    assert abs(lift(generator.random(4000), target)) < 0.02
    assert lift(target, target) > lift(target + generator.normal(0, 0.5, 4000), target) > 0.1
    assert lift(-target, target) == pytest.approx(-lift(target, target), abs=1e-3)
    assert lift(target, np.ones(4000)) == 0.0


def test_blended_is_the_mean_of_the_highest_clipped_scores() -> None:
    scores = np.array([[0.0, 1.0, 9.0], [-9.0, -1.0, 0.5]])
    assert blended(scores, 2).tolist() == [2.0, -0.25]
    assert blended(scores, 3).tolist() == pytest.approx([4 / 3, -3.5 / 3])


def test_what_orders_held_out_rows_is_chosen() -> None:
    choice = choose(examples(), LIGHT)
    assert "words" in choice.members
    assert choice.lift > 0.15


def test_a_member_that_only_remembers_is_left_out() -> None:
    """What fits its own rows and no others must not win: candidates are judged on rows their members did not see."""
    rows = examples()

    def remember(part: Examples, seed: int) -> dict[str, object]:
        weights = {
            word.decode(): 5.0 * value
            for item, value in zip(part.features, part.target - part.target.mean(), strict=True)
            for word in item.words
            if word.startswith(b"id")
        }
        return {**NOTHING, "weights": weights}

    named = replace(
        rows,
        features=[
            extract(view({"prompt": item.conversation.text + f" id{number}"}))
            for number, item in enumerate(rows.features)
        ],
    )
    fitters: dict[str, Callable[[Examples, int], dict[str, object]]] = {**LIGHT, "words": remember}
    assert choose(named, fitters).lift < 0.1


def test_benchmarks_left_out_are_judged_too() -> None:
    seen: list[int] = []

    def watched(part: Examples, seed: int) -> dict[str, object]:
        seen.append(len(set(part.sources)))
        return FITTERS["linear"](part, seed)

    rows = examples()
    sources = ["one" if number < 120 else "other" for number in range(240)]
    choose(replace(rows, sources=sources), {**LIGHT, "linear": watched})
    assert seen == [2, 2, 2, 1, 1]


def test_too_few_rows_to_hold_any_out() -> None:
    few = examples(20)
    assert choose(few, LIGHT).members == FALLBACK


def test_the_choice_is_the_same_each_time() -> None:
    assert choose(examples(), LIGHT, 3) == choose(examples(), LIGHT, 3)

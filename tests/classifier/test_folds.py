from __future__ import annotations

from classifier.folds import group_folds


def test_groups_are_never_split() -> None:
    groups = [f"g{number % 37}" for number in range(500)]
    fold = group_folds(groups, 5, 0)
    for group in set(groups):
        assert len({fold[i] for i, name in enumerate(groups) if name == group}) == 1
    sizes = [int((fold == number).sum()) for number in range(5)]
    assert max(sizes) - min(sizes) <= 20

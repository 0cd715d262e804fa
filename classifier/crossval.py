"""Cross-validated and transferred figures of every registered model on RouteLLM's outcomes.

Protocols: `in domain` (folds by prompt, near-copies together), `unseen subjects` (MMLU, folds by subject), `from X` (trained
on another benchmark only) and `all others` (trained on everything but the tested benchmark). Nothing is chosen on a test
fold: the models' settings are constants in `fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from classifier import data
from classifier.evaluate import Array, figures, random_figures
from classifier.features import Features
from classifier.fit import FITTERS
from classifier.models import build
from classifier.train import examples, features_of, group_folds, scores_of

TRAINED = ("linear", "trees", "words", "blend")
"""The models that learn."""


@dataclass(frozen=True, slots=True)
class Table:
    """The outcomes of one benchmark with their features."""

    outcomes: Sequence[data.Outcome]
    features: Sequence[Features]

    def weak(self) -> Array:
        """Return the weak model's scores."""
        return np.array([outcome.weak for outcome in self.outcomes], dtype=np.float64)

    def strong(self) -> Array:
        """Return the strong model's scores."""
        return np.array([outcome.strong for outcome in self.outcomes], dtype=np.float64)


def tables(folder: Path) -> dict[str, Table]:
    """Return `mmlu`, `gsm8k`, `mt_bench` and `llmrouter`."""
    found = {name: data.routellm(folder, name) for name in ("mmlu", "gsm8k", "mt_bench")}
    found["llmrouter"] = data.llmrouter(folder)
    return {name: Table(rows, features_of([row.request for row in rows])) for name, rows in found.items()}


def run(
    found: dict[str, Table],
    kinds: Sequence[str] = TRAINED,
    *,
    seed: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Yield one row of figures per benchmark, model and protocol, baselines first."""
    for test in ("mmlu", "gsm8k", "mt_bench"):
        table = found[test]
        weak, strong = table.weak(), table.strong()
        yield _row(test, "random", "-", random_figures(weak, strong, seed=seed))
        yield _row(test, "oracle", "-", figures(strong - weak, weak, strong, seed=seed))
        length = scores_of(build("length", {}), table.features)
        yield _row(test, "length", "-", figures(length, weak, strong, seed=seed))
        for kind in kinds:
            for protocol, scores in _protocols(found, test, kind, seed):
                report(f"{test} {kind} {protocol}")
                yield _row(test, kind, protocol, figures(scores, weak, strong, seed=seed))


def held_out(table: Table, kind: str, groups: Sequence[str], folds: int, seed: int) -> Array:
    """Return each row's score from a model that saw none of its fold."""
    fold = group_folds(groups, folds, seed)
    scores = np.zeros(len(table.outcomes))
    for number in range(folds):
        test = np.flatnonzero(fold == number).tolist()
        kept = np.flatnonzero(fold != number).tolist()
        fitted = _fit(kind, [table.outcomes[i] for i in kept], [table.features[i] for i in kept], seed)
        scores[test] = scores_of(build(kind, fitted), [table.features[i] for i in test])
    return scores


def _protocols(found: dict[str, Table], test: str, kind: str, seed: int) -> Iterator[tuple[str, Array]]:
    table = found[test]
    if test != "mt_bench":
        yield "in domain, 5 folds", held_out(table, kind, [data.key(_text(row)) for row in table.outcomes], 5, seed)
    if test == "mmlu":
        yield "unseen subjects, 8 folds", held_out(table, kind, [row.group for row in table.outcomes], 8, seed)
    others = {"mmlu": ("gsm8k",), "gsm8k": ("mmlu",), "mt_bench": ("mmlu", "gsm8k")}[test]
    yield f"from {'+'.join(others)}", _transfer(found, others, test, kind, seed)
    yield "all others", _transfer(found, (*others, "llmrouter"), test, kind, seed)


def _transfer(found: dict[str, Table], sources: Sequence[str], test: str, kind: str, seed: int) -> Array:
    tested = {data.key(_text(row)) for row in found[test].outcomes}
    outcomes: list[data.Outcome] = []
    features: list[Features] = []
    for source in sources:
        for outcome, item in zip(found[source].outcomes, found[source].features, strict=True):
            if data.key(_text(outcome)) not in tested:
                outcomes.append(outcome)
                features.append(item)
    return scores_of(build(kind, _fit(kind, outcomes, features, seed)), found[test].features)


def _fit(kind: str, outcomes: Sequence[data.Outcome], features: Sequence[Features], seed: int) -> dict[str, object]:
    return FITTERS[kind](examples(outcomes, features), seed)


def _text(outcome: data.Outcome) -> str:
    messages = outcome.request["messages"]
    assert isinstance(messages, list)
    return str(messages[0]["content"])


def _row(test: str, model: str, protocol: str, found: Any) -> dict[str, Any]:
    return {"benchmark": test, "model": model, "protocol": protocol, **asdict(found)}

"""Cross-validated and transferred figures of every registered model on RouteLLM's outcomes.

Protocols: `in domain` (folds by prompt, near-copies together), `unseen subjects` (MMLU, folds by subject), `from X` (trained
on another benchmark only) and `all others` (trained on everything but the tested benchmark). Nothing is chosen on a test
fold: the models' settings are constants in `fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from classifier import data
from classifier.encoders import Known
from classifier.evaluate import Array, figures, random_figures
from classifier.features import Features
from classifier.fit import FITTERS, MEMBERS, Examples, blend_of, guarded_of
from classifier.folds import group_folds
from classifier.models import build
from classifier.train import examples, features_of, scores_of

TESTS = ("mmlu", "gsm8k", "mt_bench")
"""The tested benchmarks."""
PROTOCOLS = ("domain", "unseen", "from", "others")
"""Short names of the protocols."""
TRAINED = ("blend", "guarded", "linear", "trees", "words", "growing", "neighbours")
"""The models that learn, the default first."""
ENCODED = ("head", "embedding")
"""Those that need vectors of the prompts (the head: also PyTorch)."""


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
    tests: Sequence[str] = TESTS,
    protocols: Sequence[str] = PROTOCOLS,
    seed: int = 0,
    known: Known | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Yield one row of figures per benchmark, model and protocol, baselines first.

    `known` holds the prompts' vectors, for the kinds in `ENCODED`.
    """
    for test in tests:
        table = found[test]
        weak, strong = table.weak(), table.strong()
        yield _row(test, "random", "-", random_figures(weak, strong, seed=seed))
        yield _row(test, "oracle", "-", figures(strong - weak, weak, strong, seed=seed))
        length = scores_of(build("length", {}), table.features)
        yield _row(test, "length", "-", figures(length, weak, strong, seed=seed))
        for protocol, scores in _protocols(found, test, kinds, protocols, seed, known):
            report(f"{test}, {protocol}")
            for kind in kinds:
                yield _row(test, kind, protocol, figures(scores[kind], weak, strong, seed=seed))


Scores = dict[str, Array]
"""Each row's score by kind, from models that saw none of its fold."""


def held_out(
    table: Table, kinds: Sequence[str], groups: Sequence[str], folds: int, seed: int, known: Known | None = None
) -> Scores:
    """Return scores by folds of these groups: see `Scores`."""
    fold = group_folds(groups, folds, seed)
    made = {kind: np.zeros(len(table.outcomes)) for kind in kinds}
    for number in range(folds):
        test = np.flatnonzero(fold == number).tolist()
        kept = np.flatnonzero(fold != number).tolist()
        rows = examples([table.outcomes[i] for i in kept], [table.features[i] for i in kept])
        rows = replace(rows, groups=[groups[i] for i in kept], known=known)
        fitted = _fit(kinds, rows, seed)
        for kind in kinds:
            made[kind][test] = scores_of(rows.built(kind, fitted[kind]), [table.features[i] for i in test])
    return made


def _protocols(
    found: dict[str, Table], test: str, kinds: Sequence[str], wanted: Sequence[str], seed: int, known: Known | None
) -> Iterator[tuple[str, Scores]]:
    table = found[test]
    if test != "mt_bench" and "domain" in wanted:
        yield (
            "in domain, 5 folds",
            held_out(table, kinds, [data.key(_text(row)) for row in table.outcomes], 5, seed, known),
        )
    if test == "mmlu" and "unseen" in wanted:
        yield "unseen subjects, 8 folds", held_out(table, kinds, [row.group for row in table.outcomes], 8, seed, known)
    others = {"mmlu": ("gsm8k",), "gsm8k": ("mmlu",), "mt_bench": ("mmlu", "gsm8k")}[test]
    if "from" in wanted:
        yield f"from {'+'.join(others)}", _transfer(found, others, test, kinds, seed, known)
    if "others" in wanted:
        yield "all others", _transfer(found, (*others, "llmrouter"), test, kinds, seed, known)


def _transfer(
    found: dict[str, Table], sources: Sequence[str], test: str, kinds: Sequence[str], seed: int, known: Known | None
) -> Scores:
    tested = {data.key(_text(row)) for row in found[test].outcomes}
    outcomes: list[data.Outcome] = []
    features: list[Features] = []
    for source in sources:
        for outcome, item in zip(found[source].outcomes, found[source].features, strict=True):
            if data.key(_text(outcome)) not in tested:
                outcomes.append(outcome)
                features.append(item)
    rows = replace(examples(outcomes, features), known=known)
    fitted = _fit(kinds, rows, seed)
    return {kind: scores_of(rows.built(kind, fitted[kind]), found[test].features) for kind in kinds}


def _fit(kinds: Sequence[str], rows: Examples, seed: int) -> dict[str, dict[str, object]]:
    """Fit each kind once; a blend takes its members from those already fitted."""
    made_of_others = {"blend", "guarded"} & set(kinds)
    wanted = [*kinds, *(MEMBERS if made_of_others else ())]
    fitted = {kind: FITTERS[kind](rows, seed) for kind in dict.fromkeys(wanted) if kind not in made_of_others}
    if made_of_others:
        fitted["blend"] = blend_of(rows, fitted)
        fitted["guarded"] = guarded_of(fitted["blend"])
    return fitted


def _text(outcome: data.Outcome) -> str:
    messages = outcome.request["messages"]
    assert isinstance(messages, list)
    return str(messages[0]["content"])


def _row(test: str, model: str, protocol: str, found: Any) -> dict[str, Any]:
    return {"benchmark": test, "model": model, "protocol": protocol, **asdict(found)}

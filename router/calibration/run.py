"""From the journal to an artefact: label each prompt, learn, write."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classifier.artefact import Artefact, save
from classifier.card import card
from classifier.conversation import view
from classifier.data import key
from classifier.features import extract
from classifier.labels import LABELS, Comparison, Loss
from classifier.own import Row, content
from router.calibration.collect import full_key, variant_key
from router.calibration.journal import Journal
from router.calibration.prompts import Prompt
from router.calibration.sending import Target
from router.calibration.told import Told


@dataclass(frozen=True, slots=True)
class Options:
    """What the artefact shall be."""

    name: str
    label: str
    margin: float
    kind: str
    seed: int
    max_tokens: int
    date: str = ""
    """Written into the artefact; today when empty."""


def calibrated(
    prompts: Sequence[Prompt],
    full: Target,
    others: Sequence[Target],
    journal: Journal,
    out: Path,
    options: Options,
    *,
    judged: Told | None = None,
    feedback: Told | None = None,
) -> Artefact:
    """Write the artefact and its card (`.md` beside it). Raises `ValueError` when there is too little to learn from."""
    rows = list(labelled(prompts, full, others, journal, options.max_tokens, judged or {}, feedback or {}))
    made = content(rows, label=options.label, margin=options.margin, kind=options.kind, seed=options.seed)
    made |= {
        "name": options.name,
        "date": options.date or datetime.date.today().isoformat(),
        "data": {
            "prompts": len(prompts),
            "max_tokens": options.max_tokens,
            "variants": [
                {"variant": t.variant, "precision": t.precision, "model": t.model, "revision": t.revision}
                for t in (full, *others)
            ],
        },
    }
    artefact = save(out, made)
    out.with_suffix(".md").write_text(card(artefact), encoding="utf-8")
    return artefact


def labelled(
    prompts: Sequence[Prompt],
    full: Target,
    others: Sequence[Target],
    journal: Journal,
    max_tokens: int,
    judged: Told,
    feedback: Told,
) -> Iterator[Row]:
    """Yield a row for each prompt that full precision and at least one variant answered."""
    for prompt in prompts:
        answer = journal.get(full_key(full, prompt, max_tokens))
        if answer is None or "error" in answer:
            continue
        losses: dict[str, dict[str, Loss]] = {}
        for target in others:
            found = journal.get(variant_key(target, answer["key"]))
            if found is None or "error" in found:
                continue
            at = (prompt.key, target.variant)
            pair = compare(prompt, answer, found, judged.get(at), feedback.get(at))
            told = {name: loss for name, label in LABELS.items() if (loss := label(pair)) is not None}
            losses[target.precision] = told
        if losses:
            features = extract(view(prompt.request()))
            yield Row(features, key(features.conversation.text), prompt.task, losses)


def compare(
    prompt: Prompt,
    full: Mapping[str, Any],
    own: Mapping[str, Any],
    judged: float | None = None,
    feedback: float | None = None,
) -> Comparison:
    """Return two journal records as a comparison."""
    return Comparison(
        full_text=full["text"],
        # A variant that ranks each token first was not asked again: its answer is the same.
        text=own.get("text", full["text"] if own["same"] else None),
        task=prompt.task,
        accepted=prompt.accepted,
        schema=prompt.schema,
        full_logprobs=full["logprobs"],
        logprobs=own.get("logprobs"),
        ranks=own.get("ranks"),
        judged=judged,
        feedback=feedback,
    )

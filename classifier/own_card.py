"""The card of an artefact made by `bitgear calibrate`, and the tables that the command prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classifier.artefact import Artefact


def own_card(artefact: Artefact) -> str:
    """Return the card, Markdown."""
    content = artefact.content
    figures, data = content["figures"], content.get("data", {})
    lines = [
        f"# Classifier artefact `{artefact.name}`",
        "",
        f"Version `{artefact.version}`, model `{artefact.kind}`, feature version {content['feature_version']}, "
        f"labels: {content['labels']}, seed {content['seed']}, date {content['date']}.",
        "",
        "Made from the group's own variants: "
        + "; ".join(
            f"`{v['variant']}` ({v['precision']}, {v['model']}{_revision(v)})" for v in data.get("variants", ())
        )
        + f". {figures['labelled']} of {figures['prompts']} prompts carry the label"
        + (f"; answers of at most {data['max_tokens']} tokens, greedy." if "max_tokens" in data else "."),
        "",
        "The risk is the probability that " + _EVENTS.get(content["label"], "the answer is worse") + ".",
        "",
        *tables(content),
    ]
    return "\n".join(lines)


_EVENTS = {
    "divergence": "full precision's answer is, per token, over a tenth less likely under this precision "
    "(mean log-ratio above 0.1)",
    "agreement": "the greedy answer differs from full precision's",
    "task": "full precision answers rightly and this precision doesn't",
    "judge": "a judge finds full precision's answer better",
    "feedback": "users say that quality was lost",
}


def tables(content: Mapping[str, Any]) -> list[str]:
    """Return the lines of all tables, Markdown: worth, labels, shares, segments."""
    figures = content["figures"]
    return [
        "## What the per-prompt risk is worth",
        "",
        *_worth(figures),
        "",
        "## Labels, on held-out prompts",
        "",
        "| label | precision | prompts | worse | full quality | quality | AUC (95%) | AUC of length |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {label} | {name} | {row['prompts']} | {row['worse']:.1%} | {row['full_quality']:.3f} "
            f"| {row['quality']:.3f} | {_area(row['auc'])} | {_area(row['auc_length'])} |"
            for label, by_name in figures["labels"].items()
            for name, row in by_name.items()
        ),
        "",
        "## Share of traffic that may go down, on held-out prompts",
        "",
        "| label | precision | quality kept | classifier (95%) | length | random | oracle |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {label} | {name} | {float(level):.0%} | {_share(row)} | {row['length']:.1%} | {row['random']:.1%} "
            f"| {row['oracle']:.1%} |"
            for label, by_name in figures["shares"].items()
            for name, levels in by_name.items()
            for level, row in levels.items()
        ),
        "",
        f"## Segments, margin {content['margin']:.1%} of full precision's quality",
        "",
        f"Verdicts at a family-wise level of 5% (Holm). Requests are routed by those under `{content['label']}` of the "
        "segments written `language/kind/length/form`.",
        "",
        "| label | precision, segment | prompts | mean loss (95%) | lost, won | McNemar p | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {label} | {name} | {row['prompts']} | {row['mean_loss']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f}) "
            f"| {_discordant(row)} | {_p(row['mcnemar'])} | {row['verdict']} |"
            for label, rows in figures["segments"].items()
            for name, row in rows.items()
            if row["prompts"] >= 20
        ),
        "",
        "Segments of fewer than 20 prompts are undecided and not listed.",
        "",
    ]


def _worth(figures: Mapping[str, Any]) -> list[str]:
    worth, lowest = figures["worth"], figures["tested"][-1]
    low, high = worth["gain_interval"]
    chance = figures["calibration_error_by_chance"]
    errors = ", ".join(
        f"{name} {value:.3f} (perfect risks would show {chance[name]:.3f} by chance)"
        for name, value in figures["calibration_error"].items()
    )
    if worth["per_prompt"]:
        said = "The per-prompt risk is worth more than the segment's mean: it routes."
    elif not worth["above_chance"]:
        said = "**On held-out prompts the per-prompt risk can't be told from chance: requests are routed by their segment's mean.**"
    else:
        said = (
            "**The per-prompt risk orders prompts better than chance, but is not shown to beat the segment's mean alone: "
            "requests are routed by their segment's mean.**"
        )
    return [
        f"At {lowest}: area under the ROC curve {_area(worth['auc'])}; log loss {worth['log_loss']:.4f}, against "
        f"{worth['log_loss_segment_mean']:.4f} of the segment's mean alone (gain {worth['gain']:+.4f}, 95% interval {low:+.4f} "
        f"to {high:+.4f}). Calibration error of the risk that routes: {errors}.",
        "",
        said,
    ]


def _revision(variant: Mapping[str, Any]) -> str:
    return f", revision {variant['revision']}" if variant.get("revision") else ""


def _area(found: Mapping[str, float] | None) -> str:
    return f"{found['value']:.3f} ({found['low']:.3f} to {found['high']:.3f})" if found else "-"


def _share(row: Mapping[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['classifier']:.1%} ({low:.1%} to {high:.1%})"


def _discordant(row: Mapping[str, Any]) -> str:
    return "-" if row["lost"] is None else f"{row['lost']}, {row['won']}"


def _p(value: float | None) -> str:
    return "-" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"

"""An artefact's card: what it was made from, what its figures are, and what it does not know."""

from __future__ import annotations

from typing import Any

from classifier.artefact import Artefact
from classifier.own_card import own_card
from classifier.risks import PRECISIONS

_DATA = """| data | used for | source and licence |
| --- | --- | --- |
| MMLU and GSM8K, right or wrong for Mixtral-8x7B and GPT-4-1106 | order of difficulty | lm-sys/RouteLLM, Apache-2.0 |
| eleven tasks, scores of nine models | order of difficulty | ulab-uiuc/LLMRouter, MIT |
| Llama-3.1-8B at FP16, Q8_0, Q4_K_M on MMLU and entity extraction | base rates and slope | kristenmartino/llm-quantization-study, MIT |
| BELLE prompts, Koala and Vicuna prompts, MT-bench questions | thresholds, Chinese shift (no outcomes) | BELLE, ODC-By; Koala, Vicuna and \
RouteLLM, Apache-2.0 |

None of these texts is part of the artefact, except single words where the model is lexical.
"""


def card(artefact: Artefact) -> str:
    """Return the card, Markdown."""
    if artefact.segments is not None:
        return own_card(artefact)
    content = artefact.content
    figures = content["figures"]
    low, high = figures["auc_int4_interval"]
    limits = content["thresholds"]["recommended"]
    lines = [
        f"# Classifier artefact `{artefact.name}`",
        "",
        f"Version `{artefact.version}`, model `{artefact.kind}`, feature version {content['feature_version']}, "
        f"labels: {content['labels']}, seed {content['seed']}, date {content['date']}.",
        "",
        "## What it says",
        "",
        "Per precision, the probability that its answer is worse than full precision's, where worse means: right at full "
        "precision and wrong at this one. What was measured is multiple choice and entity extraction on Llama-3.1-8B; "
        "whether an open answer is worse was not, and other models lose differently. Calibrate on your own variants.",
        "",
        "- `int4` (Q4_K_M): 27 of 499 MMLU questions lost (19 won), 40 of 300 entity extractions lost (24 won).",
        "- `int8` (Q8_0): 1 of 499 MMLU questions lost (2 won).",
        "- `fp8` is given int8's risk, `nvfp4` and `mxfp4` int4's: there are no outcomes for them here.",
        "- Requests with tools or a response schema carry the extraction rate at 4 bits.",
        "- `uncertainty` is half the 90% interval of the int4 risk from the calibration's own spread; for requests outside "
        "the training data it is widened by a stated rule, not an estimate.",
        "",
        "## What the per-prompt part is worth",
        "",
        f"On {figures['study_prompts']} MMLU prompts that the ordering never saw ({figures['int4_losses']} lost at int4, "
        f"{figures['int8_losses']} at int8): area under the ROC curve {figures['auc_int4']:.2f} "
        f"(95% interval {low:.2f} to {high:.2f}); log loss {figures['log_loss_int4']:.4f}, against "
        f"{figures['log_loss_base_rate']:.4f} of the base rate alone; calibration error "
        f"{figures['calibration_error_int4']:.3f}.",
        "",
        _verdict(artefact.kind, figures),
        "",
        _slope(figures),
        "",
        "A text whose form lies outside the training data (repetition, runs of signs, digits or line breaks) gets at least the "
        "risk that four in five general prompts stay below: much noise appended to a request does not buy a lower precision. A "
        "little noise, or an easy request in plain words, appended to a hard one still lowers its risk.",
        "",
        "Chinese: no outcomes are published. General Chinese prompts are taken to be as hard as English ones at the median; "
        "within Chinese the features order.",
        "",
        "## Recommended thresholds",
        "",
        ", ".join(f"`{name}` {limits[name]}" for name in PRECISIONS if name in limits)
        + _shares(content["thresholds"]["by_source"]),
        "",
        "| prompts | n | int4 risk 10/50/90% | int8 risk 10/50/90% | to int4 | to int8 or lower |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for source, row in content["thresholds"]["by_source"].items():
        lines.append(
            f"| {source} | {row['prompts']} | {_join(row['int4'])} | {_join(row['int8'])} | {row['share_int4']:.1%} "
            f"| {row['share_int8_or_lower']:.1%} |"
        )
    lines += ["", "## Data", "", f"{figures['training_prompts']} prompts with outcomes.", "", _DATA]
    return "\n".join(lines)


def _slope(figures: dict[str, Any]) -> str:
    if figures["slope"] == 0.0:
        return "Slope: 0: every request of a kind has the same risk."
    return (
        f"Slope: {figures['slope']:.3f} log-odds per standard deviation of the score. Its prior, {figures['slope_prior']:.3f}, "
        "is half the slope with which the score foretells that a much stronger model wins (held-out MMLU subjects); it is "
        "not let under 0.1, so that thresholds still send the easiest prompts down first."
    )


def _shares(by_source: dict[str, Any]) -> str:
    if all(row["share_int4"] == 1.0 for row in by_source.values()):
        return ". These are the risks themselves: all general traffic may go to int4."
    return ". General traffic, half English and half Chinese: about 65% may go to int4, about 93% to int8 or lower."


def _verdict(kind: str, figures: dict[str, Any]) -> str:
    low = figures["auc_int4_interval"][0]
    if kind in ("constant", "random"):
        return "It looks at nothing in a request: a baseline to compare others with, not one to serve with."
    if not low > 0.5:
        return (
            "**The interval holds 0.5: on right or wrong, the per-prompt part can't be told from chance here.** Take "
            "the base rates as what is known, and the order of requests as one of difficulty."
        )
    return "The interval lies above 0.5: the per-prompt part is worth something here."


def _join(values: list[float]) -> str:
    return " / ".join(f"{value:.4f}" for value in values)

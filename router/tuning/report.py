"""A job's report: JSON for programs, Markdown with a plot for people. Written once; what came true is added later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from router.config.loop import TuningConfig
from router.tuning.analysis import Verdict
from router.tuning.choose import Candidate
from router.tuning.estimators import DECIDES
from router.tuning.replay import Facts
from router.tuning.svg import Point, scatter

_LISTED = 15
KEPT = 200
"""Reports kept in a folder."""


def report_of(verdict: Verdict, settings: TuningConfig, facts: Facts, current: Mapping[str, float]) -> dict[str, Any]:
    """Return what a job saw and expects as plain values (JSON)."""
    evidence = verdict.evidence
    chosen = verdict.choice.chosen if verdict.choice is not None else None
    return {
        "settings": settings.model_dump(mode="json", exclude={"inner_loop"}),
        "variants": list(facts.variants),
        "precisions": list(facts.lower),
        "current": {p: current.get(p, 0.0) for p in facts.lower},
        "records": verdict.records,
        "labels": verdict.labels,
        "labels_read": dict(evidence.counts),
        "reference_quality": evidence.reference_level,
        "bound": -settings.margin * evidence.reference_level,
        "keys_left_out": dict(evidence.left_out),
        "largest_key_share": evidence.key_share,
        "curves": {
            v: {k: (x if math.isfinite(x) else None) for k, x in c._asdict().items()} for v, c in verdict.curves.items()
        },
        "load_model_error": dict(verdict.model_error) if verdict.model_error is not None else None,
        "action": verdict.choice.action if verdict.choice is not None else None,
        "chosen": verdict.candidates.index(chosen) if chosen is not None else None,
        "candidates": [_row(c) for c in verdict.candidates],
        "variant_quality": {v: list(e) for v, e in verdict.expected.items()},
    }


def _row(candidate: Candidate) -> dict[str, Any]:
    return {
        **candidate._asdict(),
        "shares": list(candidate.shares),
        "gain": list(candidate.gain),
        "quality": {name: list(e) for name, e in candidate.quality.items()},
    }


def plot(job: Mapping[str, Any]) -> str:
    """Return the frontier as SVG: quality against goodput, the present and the chosen point marked."""
    report = job["report"]
    rows, chosen = report.get("candidates", []), report.get("chosen")
    points = []
    for i, row in enumerate(rows):
        mean, low, high, _ = row["quality"][DECIDES]
        points.append(Point(row["goodput"], mean, low, high))
        if i == 0:
            points[-1] = points[-1]._replace(colour="#2471a3", radius=6.0, label="current")
        if i == chosen and i != 0:
            points[-1] = points[-1]._replace(colour="#1e8449", radius=7.0, label="chosen")
    points.sort(key=lambda p: p.radius)
    bound = report.get("bound")
    return scatter(
        points,
        title=f"{job['group']}: candidates of job {job['id']}",
        x="goodput, tokens/s in time",
        y="quality against full precision",
        line=(bound, "bound") if bound is not None else None,
    )


def markdown(job: Mapping[str, Any], plot_file: str | None = None) -> str:
    """Return the report for people; `plot_file` is the name of the SVG beside it."""
    report = job.get("report") or {}
    when = datetime.fromtimestamp(float(job["at"]), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    out = [
        f"# Tuning job {job['id']}",
        "",
        f"Group `{job['group']}`, {when}, by {job.get('by', '')}, status **{job['status']}**.",
        "",
        f"**Why**: {job['reason']}.",
        "",
    ]
    if report.get("alarms"):
        out += ["## Alarms", "", *(f"- {a['reason']} (after {a['labels']} labels)" for a in report["alarms"]), ""]
    if "labels_read" in report:
        out += _seen(report)
    rows = report.get("candidates") or []
    if rows:
        out += _candidates(report, rows, plot_file)
    if report.get("classifier"):
        out += _classifier(report["classifier"], job)
    if "trial" in job:
        out += _trial(job, rows, report)
    return "\n".join(out).rstrip() + "\n"


def _seen(report: Mapping[str, Any]) -> list[str]:
    counts = report["labels_read"]
    out = [
        "## What it saw",
        "",
        f"- {report['records']} requests, {report['labels']} labelled answers of lower precisions "
        f"(read: {', '.join(f'{n} {k}' for k, n in counts.items())}).",
        f"- Quality of full precision {report['reference_quality']:.4f}; a policy may be {-report['bound']:.4f} worse.",
        f"- The largest share of the evidence from one key: {report['largest_key_share']:.1%}.",
    ]
    out += [f"- Key `{key}` left out: {why}." for key, why in report["keys_left_out"].items()]
    for variant, (mean, low, high, n) in report["variant_quality"].items():
        out.append(f"- `{variant}`: {mean:+.4f} [{low:+.4f}, {high:+.4f}] an answer, {n} labels.")
    for variant, c in report["curves"].items():
        slots = f", at most {c['slots']:.0f} at once" if c["slots"] is not None else ""
        out.append(
            f"- `{variant}`: first token {c['ttft_base'] * 1e3:.0f} ms + {c['ttft_per_token'] * 1e3:.2f} ms a prompt token; "
            f"then {c['itl_base'] * 1e3:.1f} ms + {c['itl_per_running'] * 1e3:.2f} ms per running request a token{slots} "
            f"(seen up to {c['most_seen']:.0f} running)."
        )
    for row in report.get("judges", []):
        kappa = "none" if row["kappa"] is None else f"{row['kappa']:.2f}"
        out.append(
            f"- Judge `{row['judge']}` against people: {row['pairs']} answers, agreed {row['agreed']:.1%} "
            f"(by chance {row['expected']:.1%}), kappa {kappa}."
        )
    for row in report.get("calibration", []):
        out.append(
            f"- Risks of {row['precision']} against {row['pairs']} pairs: calibration error {row['error']:.4f}, "
            f"bias {row['bias']:+.4f}."
        )
    error = report.get("load_model_error")
    if error:
        out.append(f"- Load model on held-out time: {', '.join(f'{k} off by {v:.1%}' for k, v in error.items())}.")
    return [*out, ""]


def _classifier(told: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    read = told["read"]
    out = [
        "## What it learnt from",
        "",
        f"- Classifier `{told['from']}`, {read['pairs']} pairs of answers that it had judged "
        f"({read['of_other_classifiers']} of other classifiers and {read['broken']} damaged ones left out).",
    ]
    if "gain" in told:
        out += ["", "| held-out pairs | log loss | calibration error | area under the ROC curve |", "|---|---|---|---|"]
        for name, loss in told["log_loss"].items():
            out.append(f"| {name} | {loss:.4f} | {told['calibration_error'][name]:.4f} | {told['auc'][name]:.3f} |")
        out.append("")
        for name, (mean, low, high) in told["gain"].items():
            out.append(f"- {name}: log loss {mean:+.4f} [{low:+.4f}, {high:+.4f}] lower.")
    if told.get("to"):
        out += [
            "",
            f"New: `{told['to']}` ({told['kind']}). Thresholds that as large a share of these pairs passes:",
            "",
        ]
        for precision, threshold in (job.get("thresholds") or {}).items():
            out.append(f"- {precision}: {told['thresholds_before'].get(precision, 0.0):.4f} -> {threshold:.4f}")
    return [*out, ""]


def _candidates(report: Mapping[str, Any], rows: list[Mapping[str, Any]], plot_file: str | None) -> list[str]:
    out = ["## Candidates", ""]
    if plot_file:
        out += [f"![quality against goodput]({plot_file})", ""]
    precisions = report["precisions"]
    head = ["", *precisions, "quality", "DR", "IPS", "tokens/s in time", "gain", "in time", "TTFT p95", "cost"]
    out += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    chosen = report["chosen"]
    ranked = sorted(range(len(rows)), key=lambda i: (i != 0, i != chosen, -rows[i]["goodput"]))
    for i in ranked[:_LISTED]:
        row = rows[i]
        mark = "current" if i == 0 else ("**chosen**" if i == chosen else "")
        mean, low, high, _ = row["quality"][DECIDES]
        gain, least, most = row["gain"]
        cells = [
            mark,
            *(f"{row['thresholds'][p]:.4f} ({share:.0%})" for p, share in zip(precisions, row["shares"], strict=True)),
            f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]",
            f"{row['quality']['dr'][0]:+.4f}",
            f"{row['quality']['ips'][0]:+.4f}",
            f"{row['goodput']:.0f}",
            f"{gain:+.1%} [{least:+.1%}, {most:+.1%}]",
            f"{row['attainment']:.1%}",
            f"{row['ttft_p95_s'] * 1e3:.0f} ms",
            f"{row['cost']:.2f}",
        ]
        out.append("| " + " | ".join(cells) + " |")
    if len(rows) > _LISTED:
        out.append("")
        out.append(
            f"{len(rows) - _LISTED} more in the JSON. In brackets behind a threshold: the share of traffic within it."
        )
    return [*out, ""]


def _trial(job: Mapping[str, Any], rows: list[Mapping[str, Any]], report: Mapping[str, Any]) -> list[str]:
    trial = job["trial"]
    mean, low, high = trial["quality"]
    ended = "outcome" in job
    out = ["## What came true" if ended else "## The canary so far", ""]
    out.append(
        f"- {trial['requests']} requests and {trial['labels']} labels on trial: {job.get('outcome') or trial['reason']}."
    )
    out.append(f"- Quality against full precision {mean:+.4f}, confidence sequence [{low:+.4f}, {high:+.4f}].")
    out.append(f"- In time: {trial['in_time'][0]:.1%}; the others at the same time {trial['in_time'][1]:.1%}.")
    if rows and report.get("chosen") is not None:
        row = rows[report["chosen"]]
        expected = row["quality"][DECIDES]
        out.append(
            f"- Expected were {expected[0]:+.4f} [{expected[1]:+.4f}, {expected[2]:+.4f}] and, with all traffic under "
            f"the new thresholds, {row['attainment']:.1%} in time."
        )
    return [*out, ""]


def write(job: Mapping[str, Any], folder: Path) -> Path:
    """Write `<id>.json`, `<id>.md` and `<id>.svg` into `folder`; return the Markdown's path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = str(job["id"])
    (folder / f"{name}.json").write_bytes(orjson.dumps(job, option=orjson.OPT_INDENT_2))
    has_plot = bool((job.get("report") or {}).get("candidates"))
    if has_plot:
        (folder / f"{name}.svg").write_text(plot(job))
    path = folder / f"{name}.md"
    path.write_text(markdown(job, f"{name}.svg" if has_plot else None))
    return path


def keep(job: Mapping[str, Any], folder: Path, most: int = KEPT) -> None:
    """Write a job as `write` does, and remove the oldest reports above `most`. Raises OSError."""
    write(job, folder)
    reports = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in reports[: max(0, len(reports) - most)]:
        for suffix in (".json", ".md", ".svg"):
            path.with_suffix(suffix).unlink(missing_ok=True)

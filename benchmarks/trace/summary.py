"""The parts' results put together: means, ranges over parts, quality's interval, and how all of it stands to all-FP16."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.harness.report import table

HEADS = (
    "load",
    "policy",
    "goodput req/s (parts)",
    "tokens/s in time",
    "missed (parts)",
    "TTFT p95 s",
    "quality / FP16's (95%)",
    "goodput / FP16's (parts)",
    "fewer missed (parts)",
    "fp16 / int8 / int4",
    "batch tokens/s",
)


def summary(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per load and policy. Goodput and missed targets are those of requests that have targets.

    `goodput_rps` and the like are means over parts, `..._range` the least and most. `quality` is the planted expectation;
    its interval is of right and wrong as they came out, the parts' intervals put together as of independent means.
    """
    base = {(r["load"], r["part"]): _chat(r) for r in results if r["policy"] == "all FP16"}
    keys = dict.fromkeys((r["load"], r["policy"]) for r in results)
    found = []
    for load, policy in keys:
        parts = [r for r in results if (r["load"], r["policy"]) == (load, policy)]
        chats = [_chat(r) for r in parts]
        bases = [base.get((load, r["part"])) for r in parts]
        times = [c["goodput_rps"] / b["goodput_rps"] for c, b in zip(chats, bases, strict=True) if b is not None]
        fewer = [
            1.0 - c["violations"] / b["violations"]
            for c, b in zip(chats, bases, strict=True)
            if b is not None and b["violations"] > 0.0
        ]
        middle = fmean(r["relative"] for r in parts)
        half = math.sqrt(sum(((r["relative_high"] - r["relative_low"]) / 2) ** 2 for r in parts)) / len(parts)
        found.append(
            {
                "load": load,
                "policy": policy,
                "parts": len(parts),
                "goodput_rps": fmean(c["goodput_rps"] for c in chats),
                "goodput_range": _range(c["goodput_rps"] for c in chats),
                "goodput_tps": fmean(c["goodput_tps"] for c in chats),
                "violations": fmean(c["violations"] for c in chats),
                "violations_range": _range(c["violations"] for c in chats),
                "ttft_p95": fmean(c["ttft_p95"] for c in chats),
                "quality": fmean(r["relative_expected"] for r in parts),
                "quality_interval": (middle - half, middle + half),
                "times": _range(times),
                "fewer": _range(fewer),
                "shares": {p: fmean(r["shares"].get(p, 0.0) for r in parts) for p in ("fp16", "int8", "int4")},
                "batch_tps": fmean(r["batch_tps"] for r in parts),
                "batch_offered_tps": fmean(r["batch_offered_tps"] for r in parts),
            }
        )
    return found


def lines(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table's cells, in the order of `HEADS`."""
    return [
        [
            f"{r['load']:g}",
            r["policy"],
            f"{r['goodput_rps']:.1f} ({r['goodput_range'][0]:.1f} to {r['goodput_range'][1]:.1f})",
            f"{r['goodput_tps']:,.0f}",
            f"{100 * r['violations']:.2f}% ({100 * r['violations_range'][0]:.1f} to {100 * r['violations_range'][1]:.1f})",
            f"{r['ttft_p95']:.2f}",
            f"{r['quality']:.4f} ({r['quality_interval'][0]:.4f} to {r['quality_interval'][1]:.4f})",
            f"{r['times'][0]:.2f} to {r['times'][1]:.2f}",
            f"{100 * r['fewer'][0]:.0f}% to {100 * r['fewer'][1]:.0f}%",
            " / ".join(f"{100 * share:.0f}" for share in r["shares"].values()),
            f"{r['batch_tps']:,.0f} of {r['batch_offered_tps']:,.0f}" if r["batch_offered_tps"] else "-",
        ]
        for r in rows
    ]


def sensitivity(results: Sequence[Mapping[str, Any]]) -> str:
    """Return quality over all-FP16's under each truth, the mean of the parts, as a table."""
    names = list(results[0]["relative_by_truth"])
    keys = dict.fromkeys((r["load"], r["policy"]) for r in results)
    made = []
    for load, policy in keys:
        parts = [r["relative_by_truth"] for r in results if (r["load"], r["policy"]) == (load, policy)]
        made.append([f"{load:g}", policy, *(f"{fmean(p[name][3] for p in parts):.4f}" for name in names)])
    return "Quality over all-FP16's (planted expectation), by truth\n" + table(("load", "policy", *names), made)


def _chat(result: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = result["by_scenario"]["realtime"]
    return found


def _range(values: Any) -> tuple[float, float]:
    found = list(values)
    return (min(found), max(found)) if found else (math.nan, math.nan)

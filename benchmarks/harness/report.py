"""Medians of rounds, tables, and the JSON file beside them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent.parent / "out"
Figures = dict[str, float]
Round = dict[str, Figures]


def medians(rounds: Sequence[Round]) -> Round:
    """For each measurement and figure, the median over the rounds that have it."""
    found: Round = {}
    for name in dict.fromkeys(n for r in rounds for n in r):
        having = [r[name] for r in rounds if name in r]
        found[name] = {f: statistics.median(h[f] for h in having) for f in having[0]}
    return found


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(str(row[i])) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [" | ".join(str(cell).ljust(w) for cell, w in zip(row, widths, strict=True)) for row in [heads, *rows]]
    rule = "|".join("-" * (w + 2) for w in widths)
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def write(name: str, content: Mapping[str, Any]) -> Path:
    """Writes `out/NAME.json` with the machine and the time beside the content; gives its path."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.json"
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    path.write_text(json.dumps({"at": stamp, "machine": machine, **content}, indent=1) + "\n")
    return path

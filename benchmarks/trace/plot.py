"""One figure as SVG, without a plotting library: goodput and missed targets over load."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

_COLOURS = (
    "#000000",
    "#777777",
    "#4477aa",
    "#66ccee",
    "#994455",
    "#ccbb44",
    "#999933",
    "#bbbbbb",
    "#228833",
    "#44aa99",
    "#117733",
    "#ee6677",
    "#cc3311",
    "#aa3377",
    "#ee7733",
    "#332288",
)
"""One for each policy; with more of them colours come again."""
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 380, 260, 70, 50, 110
_PER_LINE = 3


def chart(results: Sequence[Mapping[str, Any]], traffic: str) -> str:
    """Return two panels side by side, goodput (requests/s) and share of missed targets (%), one line per policy."""
    names = list(dict.fromkeys(r["policy"] for r in results))
    loads = sorted({float(r["load"]) for r in results})
    panels = (("goodput, requests/s in time", "goodput_rps", 1.0), ("SLO missed, %", "violations", 100.0))
    out = []
    for number, (title, field, factor) in enumerate(panels):
        left = _LEFT + number * (_WIDTH + _GAP)
        top = max(factor * float(r[field]) for r in results) or 1.0
        out += _axes(left, title, loads, top)
        for name, colour in zip(names, cycle(_COLOURS), strict=False):
            points = sorted((float(r["load"]), factor * float(r[field])) for r in results if r["policy"] == name)
            path = " ".join(f"{_x(left, loads, x):.1f},{_y(top, y):.1f}" for x, y in points)
            width = 3 if name.startswith("Bitgear") else 1.5
            style = f'stroke="{colour}" stroke-width="{width}"{_dash(name)}'
            out.append(f'<polyline points="{path}" fill="none" {style}/>')
    y = _TOP + _HEIGHT + 50
    for i, (name, colour) in enumerate(zip(names, cycle(_COLOURS), strict=False)):
        x, line = _LEFT + (i % _PER_LINE) * 290, y + (i // _PER_LINE) * 20
        style = f'stroke="{colour}" stroke-width="3"{_dash(name)}'
        out.append(f'<line x1="{x}" y1="{line - 4}" x2="{x + 22}" y2="{line - 4}" {style}/>')
        out.append(f'<text x="{x + 28}" y="{line}">{html.escape(name)}</text>')
    width, height = _LEFT * 2 + 2 * _WIDTH + _GAP, y + 20 * (len(names) // _PER_LINE + 1)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/><text x="{_LEFT}" y="20" font-size="14">'
        f"Trace replay, {html.escape(traffic)} traffic: load 1 is where FP16 on all devices saturates</text>"
    )
    return "\n".join([head, *out, "</svg>"]) + "\n"


def _dash(name: str) -> str:
    return ' stroke-dasharray="6 4"' if name.endswith("refusing") else ""


def _axes(left: float, title: str, loads: Sequence[float], top: float) -> list[str]:
    bottom = _TOP + _HEIGHT
    out = [
        f'<text x="{left}" y="{_TOP - 12}">{html.escape(title)}</text>',
        f'<path d="M{left} {_TOP} V{bottom} H{left + _WIDTH}" fill="none" stroke="#444"/>',
        f'<text x="{left + _WIDTH / 2}" y="{bottom + 32}" text-anchor="middle">load</text>',
    ]
    out += [f'<text x="{_x(left, loads, v)}" y="{bottom + 16}" text-anchor="middle">{v:g}</text>' for v in loads]
    for i in range(5):
        value = top * i / 4
        y = _y(top, value)
        out.append(f'<line x1="{left}" y1="{y}" x2="{left + _WIDTH}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{value:.3g}</text>')
    return out


def _x(left: float, loads: Sequence[float], value: float) -> float:
    low, high = loads[0], loads[-1]
    return left + (_WIDTH * (value - low) / (high - low) if high > low else _WIDTH / 2)


def _y(top: float, value: float) -> float:
    return _TOP + _HEIGHT * (1 - value / top)

"""A scatter plot with intervals as SVG text: enough for a report, nothing to install."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 400, 80, 20, 40, 56


class Point(NamedTuple):
    """One mark; `low` and `high` are its interval along y."""

    x: float
    y: float
    low: float
    high: float
    colour: str = "#8a94a6"
    radius: float = 3.0
    label: str = ""


def scatter(points: Sequence[Point], *, title: str, x: str, y: str, line: tuple[float, str] | None = None) -> str:
    """Return an SVG document; `line` is a labelled horizontal line. Without points it holds the axes alone."""
    xs = [p.x for p in points] or [0.0, 1.0]
    ys = [v for p in points for v in (p.low, p.high)] + ([line[0]] if line else []) or [0.0, 1.0]
    x0, x1 = _padded(min(xs), max(xs))
    y0, y1 = _padded(min(ys), max(ys))

    def across(value: float) -> float:
        return _LEFT + (value - x0) / (x1 - x0) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - y0) / (y1 - y0) * (_HEIGHT - _TOP - _BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_WIDTH / 2:.0f}" y="22" text-anchor="middle" font-size="15">{escape(title)}</text>',
        f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(x)}</text>',
        f'<text x="16" y="{_HEIGHT / 2:.0f}" text-anchor="middle" transform="rotate(-90 16 {_HEIGHT / 2:.0f})">{escape(y)}</text>',
    ]
    for k in range(6):
        value = y0 + (y1 - y0) * k / 5
        out.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(value):.1f}" y2="{down(value):.1f}" stroke="#e3e6ec"/>'
            f'<text x="{_LEFT - 6}" y="{down(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        )
        value = x0 + (x1 - x0) * k / 5
        out.append(
            f'<text x="{across(value):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:.4g}</text>'
        )
    if line is not None:
        out.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(line[0]):.1f}" y2="{down(line[0]):.1f}" '
            f'stroke="#c0392b" stroke-dasharray="6 4"/><text x="{_WIDTH - _RIGHT - 4}" y="{down(line[0]) - 5:.1f}" '
            f'text-anchor="end" fill="#c0392b">{escape(line[1])}</text>'
        )
    for p in points:
        out.append(
            f'<line x1="{across(p.x):.1f}" x2="{across(p.x):.1f}" y1="{down(p.low):.1f}" y2="{down(p.high):.1f}" '
            f'stroke="{escape(p.colour)}" stroke-opacity="0.5"/>'
            f'<circle cx="{across(p.x):.1f}" cy="{down(p.y):.1f}" r="{p.radius:g}" fill="{escape(p.colour)}"/>'
        )
        if p.label:
            out.append(
                f'<text x="{across(p.x) + 8:.1f}" y="{down(p.y) - 8:.1f}" font-weight="bold">{escape(p.label)}</text>'
            )
    return "\n".join([*out, "</svg>"])


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = (high - low) * 0.06 or max(abs(high), 1.0) * 0.06
    return low - pad, high + pad

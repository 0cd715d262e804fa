"""Cost-quality curves drawn with plain characters, and as an SVG file; no library needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_MARKS = "*o+x#@"
_COLOURS = ("#1f5fa8", "#c2571a", "#3a8a3a", "#7a4fa3", "#888888", "#a33a4f")


def terminal(curves: Mapping[str, Sequence[float]], *, width: int = 61, height: int = 17) -> str:
    """Return curves over the share 0% to 100% as text; values below 0 or above 1 stand at the edge.

    `curves` is name to values at evenly spaced shares, at least two of them; later curves are drawn first.
    """
    grid = [[" "] * width for _ in range(height)]
    for mark, values in reversed(list(zip(_MARKS, curves.values(), strict=False))):
        for column in range(width):
            value = _at(values, column / (width - 1))
            place = round((1 - min(max(value, 0.0), 1.0)) * (height - 1))
            grid[place][column] = mark
    lines = []
    for number, row in enumerate(grid):
        level = 1 - number / (height - 1)
        label = f"{level:5.2f}" if number % 4 == 0 else "     "
        lines.append(f"{label} |{''.join(row)}".rstrip())
    lines.append("      +" + "-" * width)
    lines.append("       0%" + "share sent to the strong model".center(width - 6) + "100%")
    lines.append("       " + "   ".join(f"{mark} {name}" for mark, name in zip(_MARKS, curves, strict=False)))
    return "\n".join(lines)


def svg(curves: Mapping[str, Sequence[float]], title: str) -> str:
    """Return an SVG document of the same curves, in a frame from 0 to 1."""
    left, top, width, height = 60, 40, 520, 320
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 420" font-family="sans-serif" font-size="12">',
        '<rect width="760" height="420" fill="white"/>',
        f'<text x="{left}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for step in range(6):
        x, y = left + width * step / 5, top + height * (1 - step / 5)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{step / 5:.1f}</text>')
        parts.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle">{step * 20}%</text>')
    for number, (name, values) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = []
        for step in range(201):
            value = min(max(_at(values, step / 200), 0.0), 1.0)
            points.append(f"{left + width * step / 200:.1f},{top + height * (1 - value):.1f}")
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = top + 14 + 20 * number
        parts.append(f'<line x1="600" y1="{y}" x2="622" y2="{y}" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="628" y="{y + 4}">{escape(name)}</text>')
    parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#444444"/>')
    parts.append(
        f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">share sent to the strong model</text>'
    )
    parts.append(
        f'<text transform="translate(16 {top + height / 2}) rotate(-90)" text-anchor="middle">gap recovered (PGR)</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _at(values: Sequence[float], share: float) -> float:
    """Return the value at a share, linear between neighbours."""
    place = share * (len(values) - 1)
    below = min(int(place), len(values) - 2)
    return float(values[below] + (values[below + 1] - values[below]) * (place - below))

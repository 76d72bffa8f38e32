"""Draw small charts as inline SVG, without script, fonts or colours (the page's style sheet has the colours).

Every function returns markup. Its coordinates are in a box 720 units wide (wide charts: 1440) that scales with
the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType

from spillway.errors import format_number

WIDTH = 720
WIDE = 1440
WIDE_TOP = 8
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 56, 14, 26, 46

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels.

    >>> Scale(0, 10, 100, 200)(5)
    150.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return round(self.start + share * (self.end - self.start), 2)


@dataclass(frozen=True)
class Line:
    """A line of a chart: its points, its style class, and its name in the legend.

    A point with y = None interrupts the line.
    """

    points: Points
    style: str
    name: str
    steps: bool = False
    dots: bool = False


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between `low` and `high`.

    >>> ticks(0, 97)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(first * step + i * step, 12) for i in range(int((high - first * step) / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Return a number that is short enough for an axis.

    >>> number(1_250_000), number(0.25), number(3.0), number(0), number(0.00002)
    ('1.25M', '0.25', '3', '0', '0.00002')
    """
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.4g}{suffix}"
    return format_number(value)


def line_chart(
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    height: int = 240,
    from_zero: bool = False,
    band: Sequence[tuple[float, float, float]] = (),
    mark: tuple[float, str] | None = None,
    width: int = WIDTH,
) -> str:
    """Draw lines over one pair of axes. `band`: (x, low, high), shaded; `mark`: an x with a label."""
    points = [(x, y) for line in lines for x, y in line.points if y is not None and math.isfinite(y)]
    if not points:
        return ""
    ys = [y for _, y in points] + [edge for _, low, high in band for edge in (low, high)]
    low, high = min(ys), max(ys)
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = (0.0 if from_zero else low - pad), high + pad
    xs = [x for x, _ in points]
    x = Scale(min(xs), max(xs), MARGIN_LEFT, width - MARGIN_RIGHT)
    y = Scale(low, high, height - MARGIN_BOTTOM, MARGIN_TOP)
    parts = [_axes(x, y, height, x_label, y_label)]
    if band:
        upper = " ".join(f"{x(at)},{y(top)}" for at, _, top in band)
        lower = " ".join(f"{x(at)},{y(bottom)}" for at, bottom, _ in reversed(band))
        parts.append(f'<polygon class="band" points="{upper} {lower}"/>')
    parts += [_path(line, x, y) for line in lines]
    if mark is not None:
        parts.append(_mark(mark, x, height))
    return _legend([(line.style, line.name) for line in lines]) + _svg(
        parts, height, f"{y_label} over {x_label}", width
    )


def timeline(
    rows: Sequence[tuple[str, Sequence[tuple[float, float, str, str]]]],
    *,
    x_label: str,
    legend: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Draw one bar per row, split into runs (from, to, style, text shown on hovering).

    `legend`: the names of styles, in the order of the legend; other styles are shown by their class name.
    """
    runs = [run for _, row in rows for run in row]
    if not runs:
        return ""
    step = 34
    left = max(170, 8 * max((len(name) for name, _ in rows), default=0) + 20)
    height = WIDE_TOP + step * len(rows) + MARGIN_BOTTOM
    x = Scale(min(run[0] for run in runs), max(run[1] for run in runs), left, WIDE - MARGIN_RIGHT)
    parts = []
    for position, (name, row) in enumerate(rows):
        top = WIDE_TOP + position * step
        parts.append(
            f'<text class="name" x="{left - 10}" y="{top + 19}" text-anchor="end">{escape(name)}</text>'
        )
        for start, end, style, words in row:
            width = max(round(x(end) - x(start), 2), 0.6)
            parts.append(
                f'<rect class="{style}" x="{x(start)}" y="{top + 2}" width="{width}" height="{step - 7}">'
                f"<title>{escape(words)}</title></rect>"
            )
    bottom = height - MARGIN_BOTTOM
    for tick in ticks(x.low, x.high):
        parts.append(
            f'<text class="tick" x="{x(tick)}" y="{bottom + 20}" text-anchor="middle">{number(tick)}</text>'
        )
    parts.append(
        f'<text class="label" x="{WIDE - MARGIN_RIGHT}" y="{height - 2}" text-anchor="end">{escape(x_label)}</text>'
    )
    named = {**legend, **{style: style for _, row in rows for _, _, style, _ in row if style not in legend}}
    drawn = {style for _, row in rows for _, _, style, _ in row}
    entries = [(style, words) for style, words in named.items() if style in drawn]
    return _legend(entries) + _svg(
        parts, height, f"{', '.join(name for name, _ in rows)} over {x_label}", WIDE
    )


def bars(rows: Sequence[tuple[str, Sequence[tuple[float, str, str]]]], *, unit: str = "B") -> str:
    """Draw horizontal stacked bars: (row name, parts of (value, style, name)); all rows have one scale."""
    longest = max((sum(value for value, _, _ in row) for _, row in rows), default=0)
    if longest <= 0:
        return ""
    step, left, right = 38, 190, 110
    height = WIDE_TOP + step * len(rows) + 6
    x = Scale(0, longest, left, WIDE - right)
    parts = []
    for position, (name, row) in enumerate(rows):
        top, at = WIDE_TOP + position * step, 0.0
        parts.append(
            f'<text class="name" x="{left - 10}" y="{top + 21}" text-anchor="end">{escape(name)}</text>'
        )
        for value, style, words in row:
            width = max(round(x(at + value) - x(at), 2), 0)
            parts.append(
                f'<rect class="{style}" x="{x(at)}" y="{top + 2}" width="{width}" height="{step - 9}">'
                f"<title>{escape(words)}: {number(value)}{escape(unit)}</title></rect>"
            )
            at += value
        parts.append(f'<text class="tick" x="{x(at) + 6}" y="{top + 21}">{number(at)}{escape(unit)}</text>')
    legend = {style: words for _, row in rows for _, style, words in row}
    return _legend(list(legend.items())) + _svg(parts, height, ", ".join(name for name, _ in rows), WIDE)


def region_map(
    rects: Sequence[tuple[float, float, float, float, float, str]],
    *,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, str]] = (),
    y_ticks: Sequence[tuple[float, str]] = (),
    height: int = 520,
) -> str:
    """Draw a plane divided into rectangles.

    A rectangle is (from x, to x, from y, to y, darkness from 0 to 1, text shown on hovering).
    """
    if not rects:
        return ""
    left = max(MARGIN_LEFT, 8 * max((len(word) for _, word in y_ticks), default=0) + 20)
    x = Scale(min(one[0] for one in rects), max(one[1] for one in rects), left, WIDE - MARGIN_RIGHT)
    y = Scale(min(one[2] for one in rects), max(one[3] for one in rects), height - MARGIN_BOTTOM, MARGIN_TOP)
    parts = []
    for low, high, below, above, dark, words in rects:
        width, tall = round(x(high) - x(low), 2), round(y(below) - y(above), 2)
        parts.append(
            f'<rect class="region" x="{x(low)}" y="{y(above)}" width="{width}" height="{tall}" '
            f'fill-opacity="{min(1.0, max(0.0, dark)):.3f}"><title>{escape(words)}</title></rect>'
        )
    bottom = height - MARGIN_BOTTOM
    for at, word in x_ticks:
        parts.append(
            f'<text class="tick" x="{x(at)}" y="{bottom + 18}" text-anchor="middle">{escape(word)}</text>'
        )
    for at, word in y_ticks:
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y(at) + 4}" text-anchor="end">{escape(word)}</text>'
        )
    parts.append(
        f'<text class="label" x="{x.end:g}" y="{height - 6}" text-anchor="end">{escape(x_label)}</text>'
        f'<text class="label" x="0" y="13">{escape(y_label)}</text>'
    )
    return _svg(parts, height, f"{x_label} and {y_label}", WIDE)


def _svg(parts: Sequence[str], height: int, title: str, width: int = WIDTH) -> str:
    body = "\n".join(parts)
    box = f'class="w{width}" viewBox="0 0 {width} {height}"'
    return f'<svg {box} role="img" aria-label="{escape(title)}">\n{body}\n</svg>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<span><i class="{style}"></i>{escape(name)}</span>' for style, name in entries)
    return f'<div class="legend">{items}</div>'


def _axes(x: Scale, y: Scale, height: int, x_label: str, y_label: str) -> str:
    bottom = height - MARGIN_BOTTOM
    parts = []
    for tick in ticks(y.low, y.high):
        at = y(tick)
        parts.append(f'<line class="grid" x1="{MARGIN_LEFT}" x2="{x.end:g}" y1="{at}" y2="{at}"/>')
        parts.append(
            f'<text class="tick" x="{MARGIN_LEFT - 8}" y="{at + 4}" text-anchor="end">{number(tick)}</text>'
        )
    for tick in ticks(x.low, x.high, 6):
        parts.append(
            f'<text class="tick" x="{x(tick)}" y="{bottom + 18}" text-anchor="middle">{number(tick)}</text>'
        )
    parts.append(
        f'<text class="label" x="{x.end:g}" y="{height - 6}" text-anchor="end">{escape(x_label)}</text>'
    )
    parts.append(f'<text class="label" x="0" y="13">{escape(y_label)}</text>')
    return "".join(parts)


def _path(line: Line, x: Scale, y: Scale) -> str:
    drawn, pen, last_y = [], "M", 0.0
    for at, value in line.points:
        if value is None or not math.isfinite(value):
            pen = "M"
            continue
        if line.steps and pen == "L":
            drawn.append(f"L{x(at)} {y(last_y)}")
        drawn.append(f"{pen}{x(at)} {y(value)}")
        pen, last_y = "L", value
    path = f'<path class="line {line.style}" d="{"".join(drawn)}"/>'
    if not line.dots:
        return path
    known = [(at, value) for at, value in line.points if value is not None and math.isfinite(value)]
    return path + "".join(f'<circle class="{line.style}" cx="{x(a)}" cy="{y(v)}" r="2.4"/>' for a, v in known)


def _mark(mark: tuple[float, str], x: Scale, height: int) -> str:
    at, word = x(min(max(mark[0], x.low), x.high)), escape(mark[1])
    side, anchor = (at - 5, "end") if at > x.end * 0.75 else (at + 5, "start")
    return (
        f'<line class="mark" x1="{at}" x2="{at}" y1="{MARGIN_TOP}" y2="{height - MARGIN_BOTTOM}"/>'
        f'<text class="tick strong" x="{side}" y="{MARGIN_TOP + 12}" text-anchor="{anchor}">{word}</text>'
    )

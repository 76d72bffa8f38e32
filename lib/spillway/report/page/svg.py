"""Draw small charts as inline SVG, without script, fonts or colours (the page's style sheet has the colours).

Every function computes positions and returns markup, which `templates/charts.html` writes. Coordinates are in a box 720
units wide (wide charts: 1440) that scales with the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from spillway.errors import format_bytes, format_number
from spillway.report.text import format_cell

WIDTH = 720
WIDE = 1440
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 64, 14, 26, 46
PANEL_GAP = 40
_BARS_TOP = 8

Points = Sequence[tuple[float, float | None]]
Text = tuple[tuple[float, float], str, str, str]
"""A text of a chart: its place, its words, its anchor, its style."""


@cache
def templates() -> Environment:
    """Return the environment of the templates. Every value is escaped; a name that is not given is an error."""
    found = Environment(
        loader=PackageLoader("spillway.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["cell"] = format_cell
    return found


def _draw(macro: str, *arguments: Any) -> str:
    return str(getattr(templates().get_template("charts.html").module, macro)(*arguments))


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

    A point with y = None interrupts the line. `dots`: also draw each point; `dots_only`: draw no line between them.
    """

    points: Points
    style: str
    name: str
    steps: bool = False
    dots: bool = False
    dots_only: bool = False

    @property
    def known(self) -> list[tuple[float, float]]:
        """Return the points that have a value."""
        return [(x, y) for x, y in self.points if y is not None and math.isfinite(y)]


@dataclass(frozen=True)
class _Panel:
    """A pair of axes with its lines, as positions."""

    left: float
    right: float
    top: float
    bottom: float
    grid: tuple[float, ...]
    band: str
    lines: tuple[_Path, ...]
    mark: float | None = None


@dataclass(frozen=True)
class _Path:
    style: str
    path: str
    dots: tuple[tuple[float, float], ...]
    radius: float = 2.4


@dataclass(frozen=True)
class _Rect:
    style: str
    x: float
    y: float
    width: float
    height: float
    words: str
    opacity: str | None = None


def ticks(low: float, high: float, about: int = 5, whole: bool = False) -> list[float]:
    """Return round numbers between `low` and `high`; `whole`: only whole numbers.

    >>> ticks(0, 97), ticks(1, 2, whole=True)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [1.0, 2.0])
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    step = max(1.0, math.ceil(step)) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(first * step + i * step, 12) for i in range(int((high - first * step) / step + 1e-9) + 1)]


_DAY = 86_400
_STEPS = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200)
_DAYS = (1, 2, 7, 14, 30, 91, 182, 365, 730, 3650)


def time_ticks(low: float, high: float, about: int = 5) -> list[tuple[float, str]]:
    """Return round times between two moments (seconds since 1970, UTC), each with its words.

    >>> time_ticks(0, 86_400)
    [(0.0, '00:00'), (21600.0, '06:00'), (43200.0, '12:00'), (64800.0, '18:00'), (86400.0, '00:00')]
    >>> time_ticks(0, 40 * 86_400)[:2]
    [(0.0, '1 Jan'), (1209600.0, '15 Jan')]
    """
    raw = (high - low) / about
    steps = [*_STEPS, *(days * _DAY for days in _DAYS)]
    step = next((one for one in steps if one >= raw * 0.9), steps[-1])
    at = math.ceil(low / step) * step
    found = []
    while at <= high:
        found.append((float(at), _moment(at, step, high - low)))
        at += step
    return found


def _moment(seconds: float, step: int, span: float) -> str:
    """Return the words of a tick: the date at midnight if several days are shown, else the time."""
    moment = _EPOCH + timedelta(seconds=seconds)
    if step < _DAY < span and not seconds % _DAY:
        return f"{moment.day} {moment:%b}"
    if step < 60:
        return f"{moment:%H:%M:%S}"
    if step < _DAY:
        return f"{moment:%H:%M}"
    return f"{moment.day} {moment:%b}" if step < 300 * _DAY else f"{moment:%Y}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_span(low: float, high: float) -> str:
    """Return the dates between two moments in words.

    >>> time_span(0, 3600), time_span(0, 3 * 86_400)
    ('1 Jan 1970, UTC', '1 Jan to 4 Jan 1970, UTC')
    """
    first, last = (_EPOCH + timedelta(seconds=one) for one in (low, high))
    if first.date() == last.date():
        return f"{last.day} {last:%b %Y}, UTC"
    year = "" if first.year == last.year else f" {first.year}"
    return f"{first.day} {first:%b}{year} to {last.day} {last:%b %Y}, UTC"


def number(value: float) -> str:
    """Return a number that is short enough for an axis.

    >>> number(1_250_000), number(0.25), number(3.0), number(0), number(0.00002)
    ('1.25M', '0.25', '3', '0', '0.00002')
    """
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.4g}{suffix}"
    return format_number(value)


Band = Sequence[tuple[float, float, float]]
"""A shaded range of values: (x, low, high)."""


@dataclass(frozen=True)
class Plot:
    """One of the plots of a chart that stand one above the other and share the x axis."""

    lines: Sequence[Line]
    y_label: str
    height: int = 240
    from_zero: bool = False
    band: Band = ()
    mark: tuple[float, str] | None = None


def line_chart(
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    height: int = 240,
    from_zero: bool = False,
    band: Band = (),
    mark: tuple[float, str] | None = None,
    width: int = WIDTH,
    is_time: bool = False,
) -> str:
    """Draw lines over one pair of axes. `band`: (x, low, high), shaded; `mark`: an x with a label.

    `is_time`: x is in seconds since 1970.
    """
    return plots([Plot(lines, y_label, height, from_zero, band, mark)], x_label, width, is_time)


def plots(shown: Sequence[Plot], x_label: str, width: int = WIDTH, is_time: bool = False) -> str:
    """Draw plots one above the other over one x axis; "" if there is no value."""
    xs = [x for plot in shown for line in plot.lines for x, _ in line.known]
    if not xs:
        return ""
    x = Scale(min(xs), max(xs), MARGIN_LEFT, width - MARGIN_RIGHT)
    top, panels, texts = 0, [], []
    for plot in shown:
        bottom = top + plot.height - MARGIN_BOTTOM
        panel, words = _panel(plot, x, top + MARGIN_TOP, bottom)
        panels.append(panel)
        texts += words
        top = bottom + PANEL_GAP - MARGIN_TOP
    height = bottom + MARGIN_BOTTOM
    whole = all(at == int(at) for at in xs)
    marks = (
        time_ticks(x.low, x.high) if is_time else [(at, number(at)) for at in ticks(x.low, x.high, 6, whole)]
    )
    texts += [_tick(x(at), bottom + 21, words, x) for at, words in marks]
    said = f"{x_label}, {time_span(x.low, x.high)}".removeprefix(", ") if is_time else x_label
    texts.append(((x.end, height - 6), said, "end", "label"))
    legend = {line.style: line.name for plot in shown for line in plot.lines if line.name}
    title = f"{', '.join(plot.y_label for plot in shown)} over {said}"
    return _draw("panels", width, height, title, list(legend.items()), panels, texts)


def _tick(at: float, y: float, words: str, x: Scale) -> Text:
    """Return a text below the x axis; at the right edge it ends there, so that it stays inside the box."""
    return ((at, y), words, "end" if at > x.end - 12 else "middle", "tick")


def _panel(plot: Plot, x: Scale, top: int, bottom: int) -> tuple[_Panel, list[Text]]:
    ys = [y for line in plot.lines for _, y in line.known]
    ys += [edge for _, low, high in plot.band for edge in (low, high)]
    low, high = min(ys, default=0.0), max(ys, default=1.0)
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    y = Scale(0.0 if plot.from_zero else low - pad, high + pad, bottom, top)
    marks = ticks(y.low, y.high, 5 if bottom - top > 120 else 3)
    if len(marks) < 3:
        marks = ticks(y.low, y.high, 5)
    texts: list[Text] = [((x.start - 8, y(at) + 4), number(at), "end", "tick") for at in marks]
    texts.append(((0, top - 13), plot.y_label, "start", "label"))
    band = ""
    if plot.band:
        edges = [(at, high) for at, _, high in plot.band] + [(at, low) for at, low, _ in reversed(plot.band)]
        band = " ".join(f"{x(at)},{y(edge)}" for at, edge in edges)
    mark = None
    if plot.mark is not None:
        mark = x(min(max(plot.mark[0], x.low), x.high))
        side, anchor = (mark - 5, "end") if mark > x.end * 0.6 else (mark + 5, "start")
        texts.append(((side, top + 12), plot.mark[1], anchor, "tick strong"))
    paths = tuple(
        _Path(
            line.style,
            "" if line.dots_only else _path(line, x, y),
            tuple((x(a), y(v)) for a, v in line.known) if line.dots or line.dots_only else (),
        )
        for line in plot.lines
    )
    grid = tuple(y(at) for at in marks)
    return _Panel(x.start, x.end, top, bottom, grid, band, paths, mark), texts


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
    return "".join(drawn)


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
    step, left = 32, 190
    height = _BARS_TOP + step * len(rows) + MARGIN_BOTTOM
    bottom = height - MARGIN_BOTTOM
    x = Scale(min(run[0] for run in runs), max(run[1] for run in runs), left, WIDE - MARGIN_RIGHT)
    texts: list[Text] = [
        ((left - 10, _BARS_TOP + place * step + 19), name, "end", "name")
        for place, (name, _) in enumerate(rows)
    ]
    rects = [
        _Rect(
            style,
            x(start),
            _BARS_TOP + place * step + 2,
            max(round(x(end) - x(start), 2), 0.6),
            step - 7,
            words,
        )
        for place, (_, row) in enumerate(rows)
        for start, end, style, words in row
    ]
    texts += [_tick(x(tick), bottom + 20, number(tick), x) for tick in ticks(x.low, x.high)]
    texts.append(((WIDE - MARGIN_RIGHT, height - 2), x_label, "end", "label"))
    drawn = {run[2]: run[2] for run in runs}
    entries = [(style, words) for style, words in {**drawn, **legend}.items() if style in drawn]
    order = [*legend, *drawn]
    entries.sort(key=lambda entry: order.index(entry[0]))
    title = f"{', '.join(name for name, _ in rows)} over {x_label}"
    return _draw("rectangles", WIDE, height, title, entries, rects, texts)


def bars(
    rows: Sequence[tuple[str, Sequence[tuple[float, str, str]]]],
    *,
    unit: str = "B",
    show: Callable[[float], str] | None = None,
    width: int = WIDE,
    limit: tuple[float, str] | None = None,
) -> str:
    """Draw horizontal stacked bars: (row name, parts of (value, style, name)); all rows have one scale.

    `unit`: B for bytes, or the noun that is counted. `show`: formats a value instead. `limit`: a value that all bars
    are compared with, and its words.
    """
    show = show or (lambda value: format_bytes(value) if unit == "B" else f"{number(value)} {unit}".strip())
    longest = max((sum(value for value, _, _ in row) for _, row in rows), default=0)
    if longest <= 0:
        return ""
    step, left, right = (38, 190, 130) if width == WIDE else (38, 150, 120)
    top = _BARS_TOP + (22 if limit is not None else 0)
    height = top + step * len(rows) + 6
    x = Scale(0, max(longest, limit[0] if limit is not None else 0), left, width - right)
    rects: list[_Rect] = []
    texts: list[Text] = []
    for place, (name, row) in enumerate(rows):
        above, at = top + place * step, 0.0
        texts.append(((left - 10, above + 21), name, "end", "name"))
        for value, style, words in row:
            wide = max(round(x(at + value) - x(at), 2), 0)
            rects.append(_Rect(style, x(at), above + 2, wide, step - 9, f"{words}: {show(value)}"))
            at += value
        end = x(at) + 6
        if limit is not None and -12 < x(limit[0]) - end < 90:  # the line must not cross the words
            end = x(limit[0]) + 6
        texts.append(((end, above + 21), show(at), "start", "tick"))
    limits = []
    if limit is not None:
        at, anchor = x(limit[0]), "end" if x(limit[0]) > width / 2 else "start"
        limits.append((at, top - 4, height))
        texts.append(((at, top - 10), limit[1], anchor, "tick strong"))
    legend = {style: words for _, row in rows for _, style, words in row}
    title = ", ".join(name for name, _ in rows)
    return _draw("rectangles", width, height, title, list(legend.items()), rects, texts, limits)


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
    drawn = [
        _Rect(
            "region", x(low), y(above), round(x(high) - x(low), 2), round(y(below) - y(above), 2), words,
            f"{min(1.0, max(0.0, dark)):.3f}",
        )
        for low, high, below, above, dark, words in rects
    ]  # fmt: skip
    texts = [_tick(x(at), height - MARGIN_BOTTOM + 18, word, x) for at, word in x_ticks]
    texts += [((left - 8, y(at) + 4), word, "end", "tick") for at, word in y_ticks]
    texts += [((x.end, height - 6), x_label, "end", "label"), ((0, 13), y_label, "start", "label")]
    return _draw("rectangles", WIDE, height, f"{x_label} and {y_label}", [], drawn, texts)

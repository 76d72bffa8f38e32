"""Draws what levers show: pictures come as data, and each kind of them has one way to be drawn.

    lines     {lines: [{name, points: [(x, y)], style?, steps?, dots?}], x, y, from_zero?, band?, mark?}
    timeline  {rows: [(name, [(from, to, style, words)])], x, legend?: {style: words}}
    bars      {rows: [(name, [(value, style, words)])], unit?}
    regions   {rects: [(from x, to x, from y, to y, darkness, words)], x, y, x_ticks?, y_ticks?: [(at, words)]}
    table     {heads: [...], rows: [[...]]}; a head that starts with # stands over numbers

A style is a class of the page's style sheet; a line without one gets a colour of its own, and c0 to c9 are free for
all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from spillway.errors import Refused
from spillway.levers.protocol import Picture
from spillway.show.report import svg
from spillway.show.words import cells, table

COLOURS = 10


def card(title: str, body: str, note: str = "", wide: bool = False) -> str:
    """A framed part of a section; empty when `body` is."""
    if not body:
        return ""
    said = f"<p>{escape(note)}</p>" if note else ""
    return f'<section class="card{" wide" if wide else ""}"><h3>{escape(title)}</h3>{body}{said}</section>'


def picture_card(picture: Picture) -> str:
    """The picture as a card.

    >>> "<td>often</td>" in picture_card(Picture("How", "table", {"heads": ["how"], "rows": [["often"]]}))
    True
    """
    if picture.kind not in KINDS:
        raise Refused("kind", f"be one of {', '.join(KINDS)}", picture.kind, "see show.report.drawing")
    return card(picture.title, KINDS[picture.kind](picture.data, picture.wide), picture.note, picture.wide)


def _lines(data: Mapping[str, Any], wide: bool) -> str:
    lines = [
        svg.Line(
            line["points"],
            line.get("style", f"c{place % COLOURS}"),
            line["name"],
            line.get("steps", False),
            line.get("dots", False),
        )
        for place, line in enumerate(data["lines"])
    ]
    return svg.line_chart(
        lines,
        x_label=data["x"],
        y_label=data["y"],
        from_zero=data.get("from_zero", False),
        band=data.get("band", ()),
        mark=data.get("mark"),
        width=svg.WIDE if wide else svg.WIDTH,
    )


def _timeline(data: Mapping[str, Any], wide: bool) -> str:
    return svg.timeline(data["rows"], x_label=data["x"], legend=data.get("legend", {}))


def _bars(data: Mapping[str, Any], wide: bool) -> str:
    return svg.bars(data["rows"], unit=data.get("unit", "B"))


def _regions(data: Mapping[str, Any], wide: bool) -> str:
    ticks = {name: data.get(name, ()) for name in ("x_ticks", "y_ticks")}
    return svg.region_map(data["rects"], x_label=data["x"], y_label=data["y"], **ticks)


def _table(data: Mapping[str, Any], wide: bool) -> str:
    return table("|".join(data["heads"]), [cells(*row) for row in data["rows"]])


KINDS: Mapping[str, Callable[[Mapping[str, Any], bool], str]] = {
    "lines": _lines,
    "timeline": _timeline,
    "bars": _bars,
    "regions": _regions,
    "table": _table,
}

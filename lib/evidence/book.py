"""Collect the evidence: printed as it comes, and stored for the page, the charts and the JSON file.

>>> said = []
>>> book = Book(said.append)
>>> book.section("Widths", "What a column takes.")
>>> book.table("Bytes", ("column", "bytes"), [("temp", 1234.5), ("wind", None)], notes=["A1 explains it."])
>>> said[-4:]
['  column  bytes', '  temp     1234', '  wind        -', '  A1 explains it.']
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

Say = Callable[[str], object]
Shown = str | float | int | bool | None
_STYLE = """
table { border-collapse: collapse; font: 13.5px/1.45 system-ui, sans-serif; margin: 6px 0 4px; }
th, td { padding: 3px 12px 3px 0; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; white-space: normal; max-width: 14ch; vertical-align: bottom; }
td:last-child { white-space: normal; max-width: 60ch; padding-right: 0; }
.card.wide { margin-bottom: 16px; } .card.wide svg.w720 { max-width: 820px; }
.scroll { overflow-x: auto; } pre { font-size: 12.5px; overflow-x: auto; }
"""


@dataclass(frozen=True)
class Table:
    """A table and the notes below it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Shown, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A chart as markup, with the data it was drawn from."""

    name: str
    title: str
    markup: str
    data: Any = None


@dataclass
class Section:
    """One part of the page."""

    title: str
    text: str
    parts: list[Table | Figure | str] = field(default_factory=list)


@dataclass
class Book:
    """Collects sections; tables are printed at once."""

    say: Say = print
    sections: list[Section] = field(default_factory=list)

    def section(self, title: str, text: str = "") -> None:
        """Begin a section."""
        self.sections.append(Section(title, text))
        self.say("")
        self.say(f"== {title} ==")
        if text:
            self.say(text)

    def table(
        self,
        title: str,
        header: Sequence[str],
        rows: Iterable[Sequence[Shown]],
        notes: Iterable[str] = (),
    ) -> None:
        """Print a table as text, and add it to the page."""
        made = Table(title, tuple(header), tuple(tuple(row) for row in rows), tuple(notes))
        self._current().parts.append(made)
        self.say("")
        self.say(title)
        for line in format_table(made):
            self.say("  " + line)
        for note in made.notes:
            self.say("  " + note)

    def figure(self, name: str, title: str, markup: str, data: Any = None) -> None:
        """Add a chart; `name` is the name of its files."""
        if markup:
            self._current().parts.append(Figure(name, title, markup, data))

    def note(self, text: str) -> None:
        """Add a sentence."""
        self._current().parts.append(text)
        self.say(text)

    def write(self, build: Path, figures: dict[str, float]) -> Path:
        """Write the page, and the charts with their data in `evidence/`; return the page's path."""
        folder = build / "evidence"
        folder.mkdir(parents=True, exist_ok=True)
        for section in self.sections:
            for part in section.parts:
                if isinstance(part, Figure):
                    _write_figure(folder, part)
        tables = [
            {"section": section.title, **part.__dict__}
            for section in self.sections
            for part in section.parts
            if isinstance(part, Table)
        ]
        (folder / "tables.json").write_text(json.dumps(tables, indent=1, default=str), encoding="utf-8")
        page = build / "evidence.html"
        page.write_text(self.page(figures), encoding="utf-8")
        return page

    def page(self, figures: dict[str, float]) -> str:
        """Return the whole page as text; it loads nothing from elsewhere."""
        style = files("spillway.report.page").joinpath("style.css").read_text(encoding="utf-8") + _STYLE
        names = "".join(f'<a href="#s{i}">{escape(s.title)}</a>' for i, s in enumerate(self.sections))
        body = [
            "<h1>Evidence</h1>",
            '<p class="lead">The papers&#8217; tables and figures, ours beside them.</p>',
        ]
        body.append(f"<nav>{names}</nav>")
        for i, section in enumerate(self.sections):
            body.append(f'<h2 id="s{i}">{escape(section.title)}</h2><p>{escape(section.text)}</p>')
            body += [_markup(part) for part in section.parts]
        body.append('<h2 id="figures">All figures</h2>')
        body.append(_markup(Table("evidence.json", ("figure", "value"), tuple(sorted(figures.items())))))
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Spillway evidence</title><style>{style}</style></head><body><main>\n"
            + "\n".join(body)
            + "\n</main></body></html>\n"
        )

    def _current(self) -> Section:
        if not self.sections:
            self.sections.append(Section("Evidence", ""))
        return self.sections[-1]


def format_cell(cell: Shown) -> str:
    """Format a cell in few characters.

    >>> [format_cell(cell) for cell in (0.123456, 99.981, 12345.6, None, True, float("inf"))]
    ['0.1235', '99.98', '12346', '-', 'yes', 'inf']
    """
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        if not math.isfinite(cell):
            return str(cell)
        return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return str(cell)


def format_table(table: Table) -> list[str]:
    """Format the table in columns of even width; the first is left-aligned."""
    cells = [[format_cell(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.header))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _markup(part: Table | Figure | str) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>" if "\n" not in part else f"<pre>{escape(part)}</pre>"
    if isinstance(part, Figure):
        return f'<div class="card wide"><h3>{escape(part.title)}</h3>{part.markup}</div>'
    head = "".join(f"<th>{escape(name)}</th>" for name in part.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(format_cell(cell))}</td>" for cell in row) + "</tr>"
        for row in part.rows
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in part.notes)
    return (
        f'<div class="card wide"><h3>{escape(part.title)}</h3>'
        f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{notes}</div>'
    )


def _write_figure(folder: Path, figure: Figure) -> None:
    start, end = figure.markup.find("<svg"), figure.markup.rfind("</svg>")
    style = files("spillway.report.page").joinpath("style.css").read_text(encoding="utf-8")
    drawn = figure.markup[start : end + len("</svg>")].replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1
    )
    styled = drawn.replace(">", f"><style>{style}</style>", 1)
    (folder / f"{figure.name}.svg").write_text(styled, encoding="utf-8")
    if figure.data is not None:
        text = json.dumps(figure.data, default=str)
        (folder / f"{figure.name}.json").write_text(text, encoding="utf-8")

"""Format numbers, sentences and tables for people, and sum the stages of the ledger.

Tables and sentences are at most one terminal page wide. `stages_of` sums the work of each stage from the ledger
alone, so no stage and no lever is named here.

>>> from datetime import date
>>> from spillway.ledger import LedgerRow
>>> rows = [LedgerRow("stream", "s", n, date(2026, 1, n), "thin", 1, "rows", offered=9, kept=8, shed=1, lost=1)
...         for n in (1, 2)]
>>> [(one.stage, one.batches, one.handed_on, one.lost) for one in stages_of(row.to_dict() for row in rows)]
[('thin', 2, 16, 2)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap

from spillway.errors import format_bytes, format_count, format_number, format_rate
from spillway.ledger import TOTAL, Row

__all__ = ["format_bytes", "format_cell", "format_count", "format_loss", "format_pct", "format_rate"]


def format_pct(pct: float) -> str:
    """Return a percentage with three digits, or five between 99 and 100.

    >>> format_pct(99.987), format_pct(99.5), format_pct(33.33), format_pct(100), format_pct(6.7e-07)
    ('99.987 %', '99.5 %', '33.3 %', '100 %', '0.00000067 %')
    """
    return f"{format_number(pct, 5 if 99 < pct < 100 else 3)} %"


def format_cell(value: object) -> object:
    """Return the cell of a table as people read it.

    >>> [format_cell(value) for value in (12_000, 0.00002, None, "a")]
    ['12,000', '0.00002', '', 'a']
    """
    if value is None or isinstance(value, bool):
        return "" if value is None else "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return format_number(value) if isinstance(value, float) else value


def format_loss(pct: float) -> str:
    """Return a loss or an error in per cent; a small one is not shown as 0.

    >>> [format_loss(pct) for pct in (0, 0.00042, 0.0123, 47.31, 100.0, float("inf"))]
    ['0 %', '< 0.001 %', '0.012 %', '47 %', '100 %', 'any']
    """
    if pct == float("inf"):
        return "any"
    if 0 < pct < 0.001:
        return "< 0.001 %"
    return f"{pct:.2g} %" if pct < 10 else f"{pct:.0f} %"


PAGE = 100
"""The largest width of a page in characters. Longer lines are hard to read."""
NARROWEST = 60
LEAST = 8
"""The least width to which a column is narrowed."""
_GAP = "  "


def page_width() -> int:
    """Return the width of a page: that of the terminal (or `COLUMNS`), and at most `PAGE`."""
    return max(NARROWEST, min(PAGE, get_terminal_size((PAGE, 24)).columns))


def sentences(text: str, indent: int = 0, page: int | None = None) -> list[str]:
    """Wrap a text into lines; lines after the first are indented by two more.

    >>> sentences("one two three", page=9)
    ['one two', '  three']
    """
    first = " " * indent
    # a path or a command that is too long for a line stays whole, so that it can be copied
    return wrap(
        text,
        page or page_width(),
        initial_indent=first,
        subsequent_indent=first + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 0, page: int | None = None
) -> list[str]:
    """Return a table as lines of text.

    A head that starts with # is above right-aligned numbers. Columns with a head that starts with ~ are
    narrowed and wrapped if the table is too wide, the widest of them first.

    >>> print("|".join(table_lines(["what", "~done", "#kB"], [["a", "kept and kept", "1"], ["b", "-", "20"]], page=18)))
    what  done      kB|a     kept and   1|      kept|b     -         20
    """
    names = [head.lstrip("#~") for head in heads]
    widths = _widths(names, rows)
    may_narrow = [at for at, head in enumerate(heads) if head.startswith("~") and widths[at] > LEAST]
    too_much = indent + sum(widths) + len(_GAP) * (len(heads) - 1) - (page or page_width())
    while too_much > 0 and may_narrow:
        widest = max(widths[at] for at in may_narrow)
        alike = [at for at in may_narrow if widths[at] == widest]
        next_widest = max((widths[at] for at in may_narrow if widths[at] < widest), default=LEAST)
        for at in alike:
            less = min(widest - next_widest, -(-too_much // len(alike)), too_much)
            widths[at], too_much = widths[at] - less, too_much - less
        may_narrow = [at for at in may_narrow if widths[at] > LEAST]
    right = [head.startswith("#") for head in heads]
    found = []
    for row in [names, *rows]:
        folded = [
            [cell] if len(cell) <= width else wrap(cell, max(1, width))
            for cell, width in zip(row, widths, strict=True)
        ]
        for cells in zip_longest(*folded, fillvalue=""):
            padded = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(cells, widths, right, strict=True)
            ]
            found.append((" " * indent + _GAP.join(padded)).rstrip())
    return found


def blocks(
    first: int, heads: Sequence[str], rows: Sequence[Sequence[str]], page: int | None = None
) -> Iterator[list[int]]:
    """Yield the columns of a wide table in blocks that fit on the page.

    Each block has the first `first` columns.

    >>> list(blocks(1, ["k", "aaaa", "bbbb"], [["1", "2", "3"]], page=8))
    [[0, 1], [0, 2]]
    """
    width = page or page_width()
    widths = _widths([head.lstrip("#~") for head in heads], rows)
    always = list(range(first))
    block: list[int] = []
    for at in range(first, len(heads)):
        columns = [*always, *block, at]
        if block and sum(widths[one] for one in columns) + len(_GAP) * (len(columns) - 1) > width:
            yield [*always, *block]
            block = []
        block.append(at)
    yield [*always, *block]


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(heads, *rows, strict=True)]


@dataclass(frozen=True)
class StageSum:
    """The work of a stage in one unit of counting, summed over batches or windows.

    `dimension` is empty for the whole stage.
    """

    stage: str
    unit: str
    dimension: str
    batches: int
    offered: int
    handed_on: int
    rounded: int
    shed: int
    recoverable: int
    lost: int


def stages_of(ledger: Iterable[Row], attribute: str | None = None) -> list[StageSum]:
    """Return the sums of all stages in path order; stages outside the path come last.

    `attribute`: also return what each stage did to this attribute. Contracts may order levers differently from
    batch to batch. The order is that of the last batch.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in ledger:
        of_it = (row["dimension_kind"], row["dimension"]) == ("attribute", attribute)
        if of_it or row["dimension_kind"] == TOTAL:
            found.setdefault((row["stage"], row["unit"], row["dimension"]), []).append(row)
    last: dict[str, Row] = {}
    for (stage, _, _), rows in found.items():
        last[stage] = max([*rows, last.get(stage, rows[0])], key=lambda row: int(row["batch"]))
    place = {stage: (row["ordinal"] < 0, row["ordinal"]) for stage, row in last.items()}
    ordered = sorted(found, key=lambda key: (place[key[0]], *key))
    return [_sum(*key, found[key]) for key in ordered]


def _sum(stage: str, unit: str, dimension: str, rows: Sequence[Row]) -> StageSum:
    names = ("offered", "kept", "rounded", "shed", "recoverable", "lost")
    batches = len({row["batch"] for row in rows})
    return StageSum(stage, unit, dimension, batches, *(sum(int(row[name]) for row in rows) for name in names))

"""Lines of text that fit: tables and sentences no wider than a page of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap

PAGE = 100
"""Columns that everybody's terminal has."""
LEAST = 8
"""Columns that a column which gives way has at least."""
_GAP = "  "


def sentences(text: str, indent: int = 0, page: int = PAGE) -> list[str]:
    """A text in lines; those after the first are indented by two more.

    >>> sentences("one two three", page=9)
    ['one two', '  three']
    """
    first = " " * indent
    return wrap(text, page, initial_indent=first, subsequent_indent=first + "  ")


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 0, page: int = PAGE
) -> list[str]:
    """A table: heads that start with # stand over numbers; those whose heads start with ~ give way and fold, the
    last of them first.

    >>> print("|".join(table_lines(["what", "~done", "#kB"], [["a", "kept and kept", "1"], ["b", "-", "20"]], page=18)))
    what  done      kB|a     kept and   1|      kept|b     -         20
    """
    names = [head.lstrip("#~") for head in heads]
    widths = _widths(names, rows)
    for at in reversed([at for at, head in enumerate(heads) if head.startswith("~")]):
        others = indent + sum(widths) - widths[at] + len(_GAP) * (len(heads) - 1)
        widths[at] = max(min(LEAST, widths[at]), min(widths[at], page - others))
    right = [head.startswith("#") for head in heads]
    found = []
    for row in [names, *rows]:
        folded = [wrap(cell, max(1, width)) or [""] for cell, width in zip(row, widths, strict=True)]
        for cells in zip_longest(*folded, fillvalue=""):
            padded = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(cells, widths, right, strict=True)
            ]
            found.append((" " * indent + _GAP.join(padded)).rstrip())
    return found


def blocks(
    first: int, heads: Sequence[str], rows: Sequence[Sequence[str]], page: int = PAGE
) -> Iterator[list[int]]:
    """The columns of a wide table in blocks that fit, the first so many in every one.

    >>> list(blocks(1, ["k", "aaaa", "bbbb"], [["1", "2", "3"]], page=8))
    [[0, 1], [0, 2]]
    """
    widths = _widths([head.lstrip("#~") for head in heads], rows)
    always = list(range(first))
    block: list[int] = []
    for at in range(first, len(heads)):
        columns = [*always, *block, at]
        if block and sum(widths[one] for one in columns) + len(_GAP) * (len(columns) - 1) > page:
            yield [*always, *block]
            block = []
        block.append(at)
    yield [*always, *block]


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(heads, *rows, strict=True)]

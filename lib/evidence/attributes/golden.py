"""Recompute the thesis's own cells, group by group, and its categories (Tables C.1 and C.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.book import Book
from evidence.golden.attributes import GROUPS
from evidence.golden.categories import (
    HELD_OUT,
    TRUTHS,
    ClassifiedList,
    categories_correct,
    classify_held_out,
    rows_as_printed,
)
from evidence.golden.cells import AGAINST, read_csv
from spillway.levers.attributes.capacity.fit import count_to_shed
from spillway.levers.attributes.threshold.category import CategoryMatcher

_FIGURES = [f"attributes.golden_cells_against_{what}{equal}" for what in AGAINST for equal in ("", "_equal")]


def golden(book: Book, directory: Path) -> dict[str, float]:
    """Return the number of golden cells, how many are equal, and the categories of 40 lists each."""
    book.section(
        "The thesis's cells",
        "Cells compared with what is printed, cells compared with what was recomputed from the text by hand, and "
        "arithmetic on printed numbers, which touches none of our kernels.",
    )
    rows: list[tuple[Any, ...]] = []
    counts: Counter[tuple[str, bool]] = Counter()
    for group, cells_of in GROUPS.items():
        cells = list(cells_of(directory))
        mine = Counter((cell.against, cell.equal) for cell in cells)
        errata = sorted({part for cell in cells for part in (cell.erratum or "").split(", ") if part})
        rows.append((group, *_counts(mine), ", ".join(errata)))
        counts += mine
    rows.append(("all", *_counts(counts), ""))
    book.table(
        "Golden cells, and how many are equal",
        ("group", *(f"{what}{equal}" for what in AGAINST for equal in ("", ", equal")), "errata applied"),
        rows,
    )
    c1, c2 = (categories_correct(directory, table) for table in ("C1", "C2"))
    book.table(
        "Categories of Tables C.1 and C.2",
        ("table", "streams", "correct, ours", "correct, the text's claim", "words alone"),
        [
            ("C.1", 40, c1, 37, categories_correct(directory, "C1", CategoryMatcher.of_thesis())),
            ("C.2", 40, c2, 37, categories_correct(directory, "C2", CategoryMatcher.of_thesis())),
        ],
        [
            f"{rows_as_printed(directory)} of the 80 rows of similarities come out as printed with plain words; the "
            "others need what was never published (A44 to A51).",
        ],
    )
    right_pct, looser = _held_out(book, directory)
    _table_4_6(book, directory)
    return {
        **dict(zip(_FIGURES, _counts(counts), strict=True)),
        "attributes.categories_correct.c1": c1,
        "attributes.categories_correct.c2": c2,
        "attributes.categories_right_pct": right_pct,
        "attributes.categories_right_pct_newest_lists": _right_pct(
            classify_held_out(directory, HELD_OUT[-1:])
        ),
        "attributes.categories_looser_than_truth": looser,
    }


def _held_out(book: Book, directory: Path) -> tuple[float, int]:
    """Return the share of held-out lists with the right class, and how many get a looser class than the true one."""
    lists = classify_held_out(directory)
    rows = []
    for domain in TRUTHS:
        own = [one for one in lists if one.domain == domain]
        rows.append((domain, len(own), sum(one.right for one in own), sum(one.looser for one in own)))
    right, looser = sum(one.right for one in lists), sum(one.looser for one in lists)
    rows.append(("all", len(lists), right, looser))
    book.table(
        "Lists of names held back",
        ("domain", "lists", "right", "looser than the truth"),
        rows,
        [
            "Of no known domain (Others): right when the strictest class is assumed. Missed: "
            + "; ".join(f"{one.source} ({one.domain}): {one.found}" for one in lists if not one.right)
            + ".",
        ],
    )
    return _right_pct(lists), looser


def _right_pct(lists: Sequence[ClassifiedList]) -> float:
    return 100.0 * sum(one.right for one in lists) / max(1, len(lists))


def _counts(counted: Mapping[tuple[str, bool], int]) -> tuple[int, ...]:
    """Return, of each kind, the number of all cells and of equal ones."""
    return tuple(
        count
        for what in AGAINST
        for count in (counted[what, True] + counted[what, False], counted[what, True])
    )


def _table_4_6(book: Book, directory: Path) -> None:
    cells: dict[tuple[str, int], dict[str, str]] = {}
    for row in read_csv(directory, "000_table4_6_n_shed.csv"):
        place = (row["source"], int(row["n_attributes_with_CID"]))
        ours = count_to_shed(float(row["D_kbps"]), float(row["C_kbps"]), place[1])
        mark = "" if str(ours) == row["N_printed"] else f" ({row['N_printed']} printed)"
        cells.setdefault(place, {})[f"{row['D_kbps']}/{row['C_kbps']}"] = f"{ours}{mark}"
    columns = list(next(iter(cells.values())))
    book.table(
        "Table 4.6: attributes to shed at rate / capacity in kbps",
        ("source", "n", *columns),
        [(source, n, *(found[name] for name in columns)) for (source, n), found in cells.items()],
        ["n counts the key: all 81 cells then agree, without it 9 do not."],
    )

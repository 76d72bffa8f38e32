"""The papers, section by section: the module that implements each and the test that shows it.

`papers.csv` has a row for every section. `state` is `implemented`, `replaced` (another rule is used; module and test
are those of the rule that was compared) or `absent` (not built). For the last two, `decision` has the reason.

>>> {row.paper for row in paper_rows()} == set(PAPERS)
True
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from evidence.book import Book

PAPERS = {
    "Ahuja 2006": "A Dynamic Attribute-Based Load Shedding and Data Recovery Scheme for Data Stream Management Systems",
    "Gedik Wu Yu 2008": "Efficient Construction of Compact Shedding Filters for Data Stream Processing",
    "Gedik, Wu, Yu, Liu 2007": "CPU Load Shedding for Binary Stream Joins",
    "Fiscato 2012": "Quality-Aware Overload Management For Stream Processing",
    "Deng 2007": "Approximation Algorithms for Frequency Related Query Processing on Streaming Data",
}
STATES = ("implemented", "replaced", "absent")


@dataclass(frozen=True)
class PaperRow:
    """One section of a paper."""

    paper: str
    section: str
    what: str
    state: str
    module: str
    test: str
    decision: str


def paper_rows() -> list[PaperRow]:
    """Return the rows of `papers.csv`."""
    with Path(__file__).with_name("papers.csv").open(encoding="utf-8", newline="") as source:
        return [PaperRow(**row) for row in csv.DictReader(source)]


def papers(book: Book) -> dict[str, float]:
    """Add a table for each paper, and count its sections by state."""
    book.section(
        "The papers", "Each section of a paper, the module that implements it and the test that shows it."
    )
    rows = paper_rows()
    for paper, title in PAPERS.items():
        mine = [row for row in rows if row.paper == paper]
        book.table(
            f"{paper}: {title}",
            ("section", "what", "state", "module", "test", "decision"),
            [(row.section, row.what, row.state, row.module, row.test, row.decision) for row in mine],
        )
    counts = Counter(row.state for row in rows)
    return {f"papers.sections_{state}": float(counts[state]) for state in STATES}

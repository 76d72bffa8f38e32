"""The table of the papers: every section has a module and a test that are there."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from evidence.book import Book
from evidence.papers import PAPERS, STATES, PaperRow, paper_rows, papers

ROOT = Path(__file__).resolve().parents[2]
ROWS = paper_rows()


@cache
def collected(path: str) -> frozenset[str]:
    """Names of the tests that pytest collects from a file, read without importing it."""
    place = ROOT / path
    if not (place.is_file() and place.name.startswith("test_")):
        return frozenset()
    body = ast.parse(place.read_text(encoding="utf-8")).body
    return frozenset(
        one.name for one in body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper} {row.section} {row.what}")
def test_section_names_a_module_and_a_test_that_exist(row: PaperRow) -> None:
    assert row.paper in PAPERS
    assert row.state in STATES
    assert row.section
    assert row.what
    assert find_spec(row.module) is not None, row.module
    path, _, name = row.test.partition("::")
    assert name in collected(path), row.test
    assert bool(row.decision) == (row.state != "implemented"), (
        "what is not the paper's says why, and nothing else"
    )


def test_every_paper_has_its_rows_and_no_row_stands_twice() -> None:
    assert len({(row.paper, row.section, row.what) for row in ROWS}) == len(ROWS)
    for paper in PAPERS:
        states = [row.state for row in ROWS if row.paper == paper]
        assert states.count("implemented") > 10 or (
            paper == "Fiscato 2012" and states.count("implemented") >= 8
        )


def test_table_stands_in_the_evidence() -> None:
    book = Book(lambda _: None)
    found = papers(book)
    assert sum(found.values()) == len(ROWS)
    page = book.page(found)
    assert all(row.test in page for row in ROWS)

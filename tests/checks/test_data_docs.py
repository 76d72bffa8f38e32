"""The pages of a run stay when the next one writes its own, as many as are kept."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from spillway.checks.data_docs import (
    EARLIER_DOCS,
    SuiteResult,
    archive_docs,
    finish_docs,
    lock_docs,
)
from spillway.checks.gx import Validator
from spillway.checks.suites import Expectation, Suite


def run(docs: Path, number: int) -> str:
    """What a run does, and the index it leaves; each a minute after the other."""
    archive_docs(docs)
    page = docs / "validations" / "ledger" / "r" / "page.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        f'<html><head></head><body class="c">run {number}<script>act()</script></body></html>',
        encoding="utf-8",
    )
    (docs / "static").mkdir()
    index = finish_docs(docs, [SuiteResult("ledger", (), number, 0, 99)])
    os.utime(index, (60 * number, 60 * number))
    return index.read_text(encoding="utf-8")


def test_the_last_runs_stay_and_are_linked_newest_first(tmp_path: Path) -> None:
    docs = tmp_path / "data_docs"
    for number in range(EARLIER_DOCS + 3):
        index = run(docs, number)

    links = re.findall(r'<li><a href="([^"]+)"', index)
    found = [(docs / link).read_text(encoding="utf-8") for link in links]
    last = EARLIER_DOCS + 2
    assert [re.findall(r"(\d+) of 99 failed", one) for one in found] == [
        [str(99 - number)] for number in range(last - 1, last - 1 - EARLIER_DOCS, -1)
    ]
    assert len(list((docs / "earlier").iterdir())) == EARLIER_DOCS
    assert not any("Earlier runs" in one for one in found)
    assert not list((docs / "earlier").glob("*/static"))
    for link in links:
        (outcome,) = re.findall(r'href="(validations[^"]+)"', (docs / link).read_text(encoding="utf-8"))
        assert "<script" not in ((docs / link).parent / outcome).read_text(encoding="utf-8")


def test_pages_link_the_index_and_the_index_links_the_report_also_of_earlier_runs(tmp_path: Path) -> None:
    docs = tmp_path / "data_docs"
    for number in range(2):
        run(docs, number)
    (earlier,) = (docs / "earlier").iterdir()

    def targets(page: Path) -> set[Path]:
        links = re.findall(r'href="([^"]+)"', page.read_text(encoding="utf-8"))
        return {(page.parent / link).resolve() for link in links}

    for folder in (docs, earlier):
        (page,) = folder.glob("validations/**/*.html")
        assert targets(page) == {folder / "index.html"}
    report = tmp_path / "report.html"
    assert report in targets(docs / "index.html")
    assert docs / "index.html" in targets(earlier / "index.html")
    assert report not in targets(earlier / "index.html")


def test_pages_of_a_run_that_died_are_not_kept(tmp_path: Path) -> None:
    docs = tmp_path / "data_docs"
    (docs / "validations").mkdir(parents=True)

    assert "Earlier runs" not in run(docs, 1)


def test_two_runs_that_write_their_pages_at_once_disturb_nobody(tmp_path: Path) -> None:
    """One run moved the pages away while the other made them readable: its judging failed with FileNotFoundError."""
    rule = Expectation(
        name="positive",
        type="expect_column_min_to_be_between",
        kwargs={"column": "x", "min_value": 0},
        meaning="x is no loss.",
        sentence="",
    )
    suite = Suite(name="small", table="ledger", meaning="of one rule", view="", expectations=(rule,))
    docs = tmp_path / "data_docs"
    begun = [Validator(docs, f"run-{number}", ("a",)) for number in range(2)]
    for one in begun:
        one.validate(suite, pa.table({"x": [1, 2]}))
    with ThreadPoolExecutor(8) as pool:
        again = [pool.submit(_written_over_and_over, docs, f"again-{number}") for number in range(8)]
        written = [pool.submit(one.write_docs) for one in begun]
        for one in (*again, *written):
            one.result()
    assert "No expectation failed in 1 suites" in (docs / "index.html").read_text()


def _written_over_and_over(docs: Path, run_id: str) -> None:
    for number in range(5):
        with lock_docs(docs):
            archive_docs(docs, f"{run_id}-{number}")
            pages = docs / "expectations"
            pages.mkdir(parents=True, exist_ok=True)
            for name in range(20):
                (pages / f"{name}.html").write_text("<head></head>")
            finish_docs(docs, [SuiteResult("small", ("a",), 1, 0, 1)], f"{run_id}-{number}")

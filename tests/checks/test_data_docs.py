"""The pages of a run stay when the next one writes its own, as many as are kept."""

from __future__ import annotations

import os
import re
from pathlib import Path

from spillway.checks.data_docs import EARLIER_DOCS, JudgedSuite, finish_docs, keep_earlier_docs


def run(docs: Path, number: int) -> str:
    """What a run does, and the index it leaves; each a minute after the other."""
    keep_earlier_docs(docs)
    page = docs / "validations" / "ledger" / "r" / "page.html"
    page.parent.mkdir(parents=True)
    page.write_text(f"<html><head></head>run {number}<script>act()</script></html>", encoding="utf-8")
    (docs / "static").mkdir()
    index = finish_docs(docs, [JudgedSuite("ledger", (), number, 0, 99)])
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


def test_pages_of_a_run_that_died_are_not_kept(tmp_path: Path) -> None:
    docs = tmp_path / "data_docs"
    (docs / "validations").mkdir(parents=True)

    assert "Earlier runs" not in run(docs, 1)

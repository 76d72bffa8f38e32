"""The evidence's page and files, and a module that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evidence.book import Book
from evidence.run import gather, main, write
from spillway.report.page.svg import Line, line_chart
from spillway.settings import Settings


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})


def test_tables_are_said_at_once_and_kept_for_the_page() -> None:
    said: list[str] = []
    book = Book(said.append)
    book.section("Bytes", "What columns take.")
    book.table("Sizes", ("column", "bytes"), [("a<b", 3.0)], notes=["A13 explains it."])
    assert "  a<b         3" in said
    page = book.page({"x": 1.0})
    assert "<td>a&lt;b</td>" in page
    assert "A13 explains it." in page


def test_the_page_fetches_nothing_and_figures_lie_beside_it(tmp_path: Path) -> None:
    book = Book(quiet)
    book.section("Curves")
    chart = line_chart([Line([(0, 1), (1, 2)], "c0", "a")], x_label="x", y_label="y")
    book.figure("one", "One", chart, {"a": [1, 2]})
    page = book.write(tmp_path, {}).read_text(encoding="utf-8")
    assert "<svg" in page
    assert "src=" not in page
    assert 'href="http' not in page
    drawn = (tmp_path / "evidence" / "one.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg xmlns=")
    assert json.loads((tmp_path / "evidence" / "one.json").read_text(encoding="utf-8")) == {"a": [1, 2]}


def test_evidence_json_is_flat_and_says_on_what_machine(tmp_path: Path) -> None:
    path, _ = write({"b.share_pct": 12.5, "a.count": 3.0}, Book(quiet), tmp_path)
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert figures["a.count"] == 3
    assert figures["b.share_pct"] == 12.5
    assert figures["machine.cores"] >= 1
    assert all(isinstance(value, int | float | str) for value in figures.values())


def test_a_module_that_fails_is_named_and_takes_no_other_with_it(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(book: Book, settings: Settings, seeds: int) -> dict[str, float]:
        raise ValueError("no golden files")

    def sound(book: Book, settings: Settings, seeds: int) -> dict[str, float]:
        return {"sound.seeds": seeds}

    book = Book(quiet)
    figures, failed = gather(("broken", "sound"), settings, 7, book, {"broken": broken, "sound": sound})
    assert failed == ["broken"]
    assert figures["sound.seeds"] == 7
    assert "failed: no golden files" in book.page(figures)
    assert "no golden files" in capsys.readouterr().err


def test_seeds_below_one_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "0"])
    assert "`--seeds` must be 1 or more, got 0" in capsys.readouterr().err

"""`spillway plan STREAM --compare` prints a table of bytes, keeps it, and the report shows it."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, made_once, meters, sites
from tests.report.page.pages import whole_report

from spillway.cli import main
from spillway.engine import ProcessEngine
from spillway.lossless import csv_bytes
from spillway.report.page import build_report
from spillway.report.plan import comparison_lines, comparison_rows, store_comparison, stored_comparison
from spillway.streams.dry_run import Comparison, Size

ONE = Comparison(
    "sites",
    3,
    date(2026, 1, 2),
    1000,
    (
        Size("gzip", 4000, 500),
        Size("xz", 2500, 500),
        Size("parquet", 3000, 500),
        Size("exact", 6000, 1000),
        Size("bound", 2000, 1000),
    ),
)


def shed_once(folder: Path) -> World:
    found = World.begin(ProcessEngine(), folder, SITES, METERS, capacity="30 kbps")
    found.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 400)))
    found.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 400)))
    found.shed()
    found.train("sites", "meters")
    found.shed()
    return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = made_once(tmp_path, shed_once)
    for name in ("home", "lake", "destination", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(found.settings, name))
    return found


def test_comparison_of_a_plan_is_stored_for_the_report(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "sites", "--compare"]) == 0
    told = capsys.readouterr()
    assert told.err == "", "progress is for a terminal"
    raw = world.at("raw", "sites").rows().sort_by("seq").select([one["name"] for one in SITES["attributes"]])
    orders = raw, raw.sort_by([("site", "ascending"), ("at", "ascending")])
    xz = min(
        len(lzma.compress(csv_bytes(rows), preset=preset))
        for rows in orders
        for preset in (9, 9 | lzma.PRESET_EXTREME)
    )
    (line,) = [line for line in told.out.splitlines() if line.startswith("  CSV, xz -9  ")]
    assert line.split()[3] == f"{xz:,}"
    sent = [
        row["bytes_kept"]
        for row in world.rows("ledger")
        if (row["subject"], row["stage"], row["unit"], row["dimension_kind"])
        == ("sites", "sent", "rows", "total")
    ]
    (line,) = [line for line in told.out.splitlines() if "Spillway, by the plan" in line]
    assert line.split()[4] == f"{sent[0]:,}"
    page = whole_report(build_report(world.tables.now()))
    assert "sites, batch 1 of 2020-01-01, 400 rows, next to lossless files" in page
    assert f'<td>CSV, xz -9</td><td class="n">{xz:,}</td>' in page


def test_json_has_every_size_in_bytes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "narrow", "--compare", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"]
    assert [one["stream"] for one in found] == ["meters", "sites"]
    for one in found:
        forms = {size["form"]: (size["bytes"], size["rows"]) for size in one["sizes"]}
        assert set(forms) == {"gzip", "xz", "parquet", "exact", "bound", "offered", "planned"}
        assert all(size > 0 and rows == 400 for size, rows in forms.values())


def test_plan_compresses_nothing_without_compare(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "sites"]) == 0
    told = capsys.readouterr()
    assert "xz" not in told.out
    assert not Path(world.settings.build, "lossless").exists()


def test_sizes_are_compared_per_row_with_the_smallest_file() -> None:
    assert [row[1:] for row in comparison_rows(ONE)] == [
        ("4,000", "8", "1.60"),
        ("2,500", "5", "1.00"),
        ("3,000", "6", "1.20"),
        ("6,000", "6", "1.20"),
        ("2,000", "2", "0.40"),
    ]


def test_comparison_names_a_sample_and_a_smaller_rival() -> None:
    text = " ".join(" ".join(comparison_lines(ONE)).split())
    assert "next to lossless files of its first 500 rows" in text
    assert "CSV, xz -9 is smaller than Spillway without loss, by 1 kB for the batch" in text
    better = replace(ONE, sizes=(*ONE.sizes[:3], Size("exact", 4000, 1000)), rows=500)
    text = " ".join(" ".join(comparison_lines(better)).split())
    assert "of its first" not in text
    assert "is smaller than Spillway" not in text


def test_stored_comparison_reads_back(world: World) -> None:
    assert stored_comparison(world.settings, "sites") is None
    store_comparison(world.settings, ONE)
    assert stored_comparison(world.settings, "sites") == ONE


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stream": "sites"}', '{"batch_date": 3}'])
def test_damaged_comparison_is_left_out_of_the_report(world: World, content: str) -> None:
    store_comparison(world.settings, ONE).write_text(content, encoding="utf-8")
    assert stored_comparison(world.settings, "sites") is None

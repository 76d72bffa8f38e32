"""Header lines and refused lines are no tuples; repeated hours and vanished columns are stated (newcomer B6, B10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.pipeline.streams import METERS, World, csv_lines, meters

from spillway.engine import ProcessEngine
from spillway.report.explain import explain
from spillway.report.status import status

COUNT = 350


def world_of(folder: Path, content: bytes, **changes: Any) -> World:
    world = World.begin(ProcessEngine(), folder, {**METERS, **changes}, capacity="1 kbps")
    world.deliver("meters/2020-01-01/a.csv", content)
    world.shed()
    world.train("meters")
    world.shed()
    return world


def test_explain_counts_tuples_and_neither_headers_nor_refused_lines(tmp_path: Path) -> None:
    content = csv_lines(meters(0, COUNT)) + b"m0,not a time,1,2\nm1,2026-01-01T05:00:00Z,much,2\n"
    world = world_of(tmp_path, content)
    for name in ("power", "count"):
        (part,) = explain(world.tables.now(), "meters", name).levers
        assert part.explanation is not None
        assert sum(part.explanation.numbers["so far"].values()) == COUNT


def test_a_file_delivered_twice_counts_its_tuples_and_not_its_header(tmp_path: Path) -> None:
    content = csv_lines(meters(0, COUNT))
    world = world_of(tmp_path, content)
    world.deliver("meters/2020-01-01/b.csv", content)
    world.shed()
    assert any(f"0 tuples, {COUNT} delivered before" in line for line in world.said), world.said
    assert world.batches("meters")[-1].deduplicated == COUNT
    (total,) = [
        row for row in world.rows("ledger")
        if (row["batch"], row["stage"], row["dimension_kind"]) == (2, "intake", "total")
    ]  # fmt: skip
    assert (total["offered"], total["deduplicated"]) == (COUNT, COUNT)


def test_a_repeated_autumn_hour_is_stated_on_screen_in_status_and_by_explain(tmp_path: Path) -> None:
    rows = [
        {**row, "at": f"2026-10-25T{1 + i // 120:02}:{i // 2 % 60:02}:0{i % 2}"}
        for i, row in enumerate(meters(0, COUNT))
    ]
    world = world_of(tmp_path, csv_lines(rows), timezone="Europe/Berlin")
    said = "at in an hour that clocks show twice, read as the earlier"
    assert any(f"120 with {said}" in line for line in world.said), world.said
    (short,) = [one for one in status(world.tables.now()).shortages if one.kind == "repeated_hour"]
    assert short.sentence == f"120 records with {said} of Europe/Berlin"
    assert "with an offset" in short.remedy
    assert explain(world.tables.now(), "meters", "at").notes == (f"120 records with {said} of Europe/Berlin",)
    assert explain(world.tables.now(), "meters", "power").notes == ()


def test_a_column_that_vanishes_is_a_warning_that_names_the_new_one(tmp_path: Path) -> None:
    world = world_of(tmp_path, csv_lines(meters(0, COUNT)))
    renamed = csv_lines(meters(COUNT, 100)).replace(b"power", b"watts", 1)
    world.deliver("meters/2020-01-02/b.csv", renamed)
    world.shed()
    (line,) = [line for line in world.said if "WARNING" in line]
    assert "batch 2: column power absent in all 100 records: it is null in them; was it renamed" in line
    assert "field watts unknown" in line

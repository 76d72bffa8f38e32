"""Everybody who speaks of accuracy also says which share of the values is absent at the destination (newcomer B3)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.levers.sifters.logs import logged
from tests.pipeline.streams import SITES, World, json_lines, sites
from tests.report.page.pages import whole_report

import spillway
from spillway.engine import ProcessEngine
from spillway.report.explain import explain
from spillway.report.metrics import exposition, metrics_of
from spillway.report.overview import overview, proof_lines
from spillway.report.page import build_report
from spillway.report.status import status
from spillway.store.tables import Tables
from spillway.streams.migrate import migrate
from spillway.streams.presence import certified_presence

MEASURES = ("temp", "level", "pulses", "sky")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A stream whose synopses stay at the source, validated; its destination lies elsewhere."""
    folder = tmp_path_factory.mktemp("held")
    levers = [
        {
            "lever": "attributes",
            "training": {"tuples": 240},
            "synopsis": "hold",
            "treatments": ["keep", "shed"],
        }
    ]
    there = {"SPILLWAY_DESTINATION": str(folder / "there")}
    world = World.begin(ProcessEngine(), folder, {**SITES, "levers": levers}, capacity="3 kbps", **there)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    world.train("sites")
    world.shed()
    world.validate()
    return world


@pytest.fixture(scope="module")
def sifted(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A stream of which rows were dropped for good, validated."""
    return logged(ProcessEngine(), tmp_path_factory.mktemp("sifted"), capacity="4 kbps")


def absent_at_the_destination(world: World) -> dict[str, int]:
    """By attribute, the values that a reader without the source finds absent."""
    found = spillway.read(
        "sites",
        lake=str(world.folder / "none"),
        destination=world.settings.destination,
        schemas=world.settings.schemas,
    ).read_all()
    return {
        name: sum(bound == float("inf") for bound in found[f"{name}__bound_pct"].to_pylist())
        for name in MEASURES
    }


def shown(lines: Any) -> str:
    return " ".join(" ".join(lines).split())


def test_certificates_count_what_a_reader_without_the_source_finds_absent(held: World) -> None:
    absent = absent_at_the_destination(held)
    rows = held.rows("certificates")

    assert sum(absent.values()) > 0
    assert {row["attribute"]: row["source_values"] for row in rows} == absent
    assert {(row["offered_values"], row["lost_values"]) for row in rows} == {(330, 0)}


def test_certificates_count_rows_that_were_dropped_for_good(sifted: World) -> None:
    taken, sent = len(sifted.rows("raw", "logs")), len(sifted.rows("transmitted", "logs"))
    there = certified_presence(sifted.rows("certificates"))

    assert there is not None
    assert (there.offered, there.held, there.lost) == (taken, 0, taken - sent)
    assert taken - sent > 0


@pytest.mark.parametrize("name", ["held", "sifted"])
def test_screen_status_report_and_metrics_say_what_is_absent(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    world: World = request.getfixturevalue(name)
    (figures,) = [one.figures for one in overview(world.tables).streams]
    assert figures.absent_pct is not None
    assert figures.present_pct == 100.0 - figures.absent_pct
    assert figures.absent_pct > 10

    words = "dropped for good" if name == "sifted" else "kept at the source"
    (said,) = [line for line in world.said if "compared" in line and "are absent there" in line][-1:]
    assert words in said
    assert "accuracy" not in said
    assert "are absent there" in shown(proof_lines(overview(world.tables).streams))
    (short,) = [one for one in status(world.tables).shortages if one.kind == "absent"]
    assert words in short.sentence
    page = whole_report(build_report(world.tables, tmp_path / "report.html"))
    assert '<span class="verdict ">' not in page
    assert '<span class="verdict part">with reservations</span>' in page
    assert re.search(rf"<h1>[^\n]*; [\d,]+ (rows|values) {words}[^\n]*</h1>", page)
    assert "absent there %</th>" in page
    assert "every shed value back" not in page
    now = world.batches(figures.stream)[0].updated_at
    (ratio,) = [one for one in metrics_of(world.tables, now) if one.name == "spillway_absent_ratio"]
    assert ratio.samples == (((("stream", figures.stream),), figures.absent_pct / 100),)
    assert "absent_ratio" in exposition([ratio])


def test_explain_says_which_share_of_an_attribute_is_at_the_destination(held: World) -> None:
    absent = absent_at_the_destination(held)
    for name in MEASURES:
        (part,) = explain(held.tables, "sites", name).levers
        assert part.explanation is not None
        there = part.explanation.numbers["at the destination"]
        assert there["% absent"] == pytest.approx(100 * absent[name] / 330)
        assert there["% present within its bound"] == pytest.approx(100 - 100 * absent[name] / 330)


def test_certificates_of_an_older_lake_are_unknown_until_they_are_migrated(
    held: World, tmp_path: Path
) -> None:
    before = held.rows("certificates")
    aged = World(held.folder, held.engine, held.tables.now(), held.contracts)
    table = aged.tables.at("certificates")
    rows = table.rows().to_pylist()
    blank = dict.fromkeys(("offered_values", "source_values", "lost_values"))
    table.replace([row | blank for row in rows], stream="sites", batch=[1])
    try:
        page = whole_report(build_report(aged.tables.now(), tmp_path / "report.html"))
        assert '<span class="verdict ">' not in page
        assert "run `spillway migrate` to count the values at the destination" in page
        assert [one.sentence for one in migrate(held.settings, dry_run=True)] != []
        migrate(held.settings)
        assert aged.rows("certificates") == before
        assert migrate(held.settings) == []
    finally:
        Tables(held.settings).at("certificates").replace(rows, stream="sites", batch=[1])

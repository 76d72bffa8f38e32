"""A contract's sketches: built once a batch, rebuilt alone, asked from the command line with their interval."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.pipeline.streams import SITES, World, day, json_lines, sites

from spillway.cli import main
from spillway.store.files import read_table

SKETCHED = {
    **SITES,
    "mode": "observe",
    "sketches": [
        {"kind": "count_min", "attributes": ["site"]},
        {"kind": "quantiles", "attributes": ["pulses"]},
        {"kind": "pair_count", "attributes": ["site", "temp", "level"], "at_least": 2},
    ],
}
NAMES = {"site", "pulses", "site+temp+level"}


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World.begin(spark, tmp_path_factory.mktemp("sketched"), SKETCHED)
    made.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 300)))
    made.deliver("sites/2020-01-02/b.json", json_lines(sites(300, 240)))
    made.shed()
    return made


def stored(world: World) -> dict[tuple[int, str], str]:
    rows = read_table(world.lake.path("sketches"), ["batch", "name", "digest"]).to_pylist()
    assert len({(row["batch"], row["name"]) for row in rows}) == len(rows)
    return {(row["batch"], row["name"]): row["digest"] for row in rows}


def ask(world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: str) -> Any:
    for name in ("home", "lake", "landing", "build", "schemas"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", str(getattr(world.settings, name)))
    monkeypatch.delenv("SPILLWAY_DESTINATION", raising=False)
    code = main(["ask", "sites", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_every_batch_has_one_of_each_though_nothing_is_trained_yet(world: World) -> None:
    assert set(stored(world)) == {(batch, name) for batch in (1, 2) for name in NAMES}


def test_a_second_run_builds_nothing_and_a_backfill_only_its_own_dates(world: World) -> None:
    before = stored(world)
    version = read_table(world.lake.path("sketches"), ["batch", "format_version"]).num_rows
    world.shed()
    assert stored(world) == before
    world.shed(dates=(day(1), day(1)))
    assert stored(world) == before
    assert read_table(world.lake.path("sketches"), ["batch"]).num_rows == version


def test_a_sketch_that_the_contract_gains_is_made_of_what_is_there(world: World, tmp_path: Any) -> None:
    gaining = world.copy(tmp_path)
    gained = {"kind": "count_min", "attributes": ["sky"], "memory_kib": 8, "heavy_pct": None}
    gaining.contract_becomes({**SKETCHED, "sketches": [*SKETCHED["sketches"], gained]})
    before = stored(gaining)
    gaining.shed()
    assert stored(gaining) == before | {key: d for key, d in stored(gaining).items() if key[1] == "sky"}
    assert {batch for batch, name in stored(gaining) if name == "sky"} == {1, 2}


def test_answers_come_with_interval_method_and_what_they_cover(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, (answer,) = ask(world, monkeypatch, capsys, "site", "frequency", "site-3")
    assert code == 0
    assert (answer["estimate"], answer["covers"]["rows"], answer["covers"]["batches"]) == (90, 540, 2)
    assert answer["low"] <= 90 <= answer["high"]

    code, (answer,) = ask(
        world, monkeypatch, capsys, "site", "frequency", "site-3", "--to-date", "2020-01-01"
    )
    assert (code, answer["estimate"], answer["covers"]["to_date"]) == (0, 50, "2020-01-01")

    code, found = ask(world, monkeypatch, capsys, "site", "top", "2")
    assert [one["estimate"] for one in found] == [90, 90]

    values = sorted(row["pulses"] for row in sites(0, 540) if row["pulses"] is not None)
    code, (answer,) = ask(world, monkeypatch, capsys, "pulses", "quantile", "0.5")
    assert answer["low"] <= values[len(values) // 2] <= answer["high"]

    rows = [(r["site"], r["temp"], r["level"]) for r in sites(0, 540)]
    pairs = sum(
        sum(a == b for a, b in zip(rows[i], rows[j], strict=True)) >= 2
        for i in range(len(rows))
        for j in range(i)
    )
    code, (answer, share) = ask(world, monkeypatch, capsys, "site+temp+level", "near-duplicates")
    assert answer["low"] <= pairs <= answer["high"]
    assert share["estimate"] == pytest.approx(answer["estimate"] / (540 * 539 / 2))

    name = "site+temp+level"
    code, (joined,) = ask(world, monkeypatch, capsys, name, "similarity-join", "sites", name)
    assert joined["low"] <= 2 * pairs + 540 <= joined["high"]
    assert joined["note"] == f"similarity join of sites/{name} x sites/{name}"

    code, (answer,) = ask(world, monkeypatch, capsys, "site", "join", "sites", "site")
    assert code == 0
    assert answer["low"] <= 6 * 90**2 <= answer["high"]


def test_a_question_that_cannot_be_answered_says_what_can(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, told = ask(world, monkeypatch, capsys, "temp", "frequency", "1")
    assert code == 1
    assert "`name` must be one of" in told["error"]
    code, told = ask(world, monkeypatch, capsys, "pulses", "quantile", "half")
    assert (code, "`quantile` must be given some numbers, got half" in told["error"]) == (2, True)


def test_validation_judges_the_sketches_too(world: World, tmp_path: Any) -> None:
    judged = world.copy(tmp_path)
    judged.contract_becomes({**SKETCHED, "mode": "shed"})
    judged.train("sites")
    judged.shed()
    judged.validate()
    rows = [
        row for row in read_table(judged.lake.path("validations")).to_pylist() if row["table"] == "sketches"
    ]
    assert "near_duplicates_are_few" in {row["expectation"] for row in rows}
    assert all(row["success"] for row in rows)

"""What people are told of a join: explain, the report, the command line, and a lever that stands in the wrong place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.levers.joins.lake import JOIN, STREAM, begun, contract_becomes, run
from tests.pipeline.streams import World
from tests.report.page.pages import whole_report
from tests.whole_reads import whole_reads

from spillway.cli import main
from spillway.cli.output import print_table
from spillway.contracts.loader import read_stream
from spillway.engine import ProcessEngine
from spillway.errors import ContractError, SpillwayError
from spillway.levers.joins import explain as telling
from spillway.levers.joins.estimates import MissedPairs, estimate_total_missed_pairs
from spillway.levers.joins.explain import join_pictures, missed_pairs_sentence, total_missed_pairs
from spillway.levers.joins.lever import LEVER
from spillway.report.explain import explain, explain_workload
from spillway.report.page import build_report

BUDGET = {"budget": {"comparisons_per_second": 60}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = begun(tmp_path_factory.mktemp("lake"), ProcessEngine())
    contract_becomes(world, {**JOIN, "description": "Alarms that are about the same."}, **BUDGET)
    run(world)
    return world


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("home", "lake", "destination", "landing", "schemas", "build", "output"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(world.settings, name))
    return world


def test_explain_says_what_was_compared_what_was_missed_and_what_would_miss_less(world: World) -> None:
    found = explain_workload(world.tables.now(), "alike")
    assert found is not None
    (part,) = found.levers
    assert part.explanation is not None
    rows = world.rows("join_windows")
    numbers = part.explanation.numbers
    assert part.explanation.treatment.startswith("compared within its budget: ")
    each = f"{60 * world.contracts.joins['alike'].window.seconds:,.10g} in each window"
    assert "steps (entries read from the index, and lookups)" in part.explanation.because
    assert each.removesuffix(" in each window") in part.explanation.because
    assert numbers["comparisons made"] == sum(row["compared"] for row in rows)
    assert numbers["pairs found"] == len(world.rows("joined", "alike"))
    missed = total_missed_pairs(rows)
    assert missed.low <= missed.estimate <= missed.high
    assert numbers["pairs missed, estimated"] == round(missed.estimate)
    assert any("raise the budget" in remedy for remedy in part.explanation.remedies)
    assert explain_workload(world.tables.now(), "east") is None


def test_windows_of_an_older_version_are_not_said_to_miss_no_lost_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sic and their pairs missed are of the rows that came: sifters may have dropped two thirds."""
    rows = [dict(row) for row in world.rows("join_windows")]
    contract, tables = world.contracts.joins["alike"], world.tables.now()
    now = telling.explain_join(contract, tables)
    assert now is not None
    assert "older Spillway" not in now.treatment
    for row in rows[1:]:
        row |= dict.fromkeys(
            ("missed_here", "left_produced", "right_produced", "unweighted_rows", "inexact_rows")
        )
    monkeypatch.setattr(telling, "_windows", lambda *_: rows)
    told = telling.explain_join(contract, tables)
    assert told is not None
    assert f"{len(rows) - 1:,} of these windows are of an older Spillway" in told.treatment


def test_of_equal_values_what_was_missed_is_said_by_count(world: World, tmp_path: Path) -> None:
    other, side = world.copy(tmp_path), {"attribute": "level", "lasts_seconds": 20}
    equal = {"left": side, "right": side, "predicate": "equality", "threshold": None, "sets": None}
    contract_becomes(other, {**JOIN, "name": "levels"}, **equal, **BUDGET)
    run(other)
    found = explain_workload(other.tables.now(), "levels")
    assert found is not None
    told = found.levers[0].explanation
    assert told is not None
    missed = sum(row["missed"] for row in other.rows("join_windows") if row["subject"] == "levels")
    assert f" pairs, {missed:,.0f} are missed, by count" in told.treatment
    pairs = next(iter(join_pictures(other.contracts.joins["levels"], other.tables.now())))
    assert pairs.title.startswith("levels: ")
    assert pairs.note.startswith(f"{missed:,.0f} are missed, by count.")
    assert "interval" not in pairs.note
    assert not pairs.data["band"]


def test_the_command_line_explains_joins_beside_attributes(
    here: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "alike"]) == 0
    said = capsys.readouterr().out
    assert "alike, reads east, west: Alarms that are about the same." in said
    assert "pairs missed, estimated" in said
    assert main(["explain", "alike", "--json"]) == 0
    assert '"comparisons made"' in capsys.readouterr().out
    assert main(["explain", "east"]) == 0
    assert "spillway explain east ATTRIBUTE, which is one of site, at" in capsys.readouterr().out
    assert main(["explain", "east", "nothing"]) == 2
    assert "`attribute` must be one of east's" in capsys.readouterr().err


def test_shares_are_written_in_decimals_however_small(world: World, tmp_path: Path) -> None:
    other = world.copy(tmp_path)
    contract_becomes(other, JOIN, budget={"core_pct": 6.7e-07})
    told = LEVER.explain(other.contracts.joins["alike"], other.tables.now())
    assert told is not None
    assert told.because.startswith("its budget is 0.00000067 % of a core")


def test_the_table_of_advice_writes_small_shares_in_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ["", "#estimate"], [("% of a core", 6.7e-07)])
    assert "0.00000067" in capsys.readouterr().out


def test_a_stream_needs_an_attribute_to_be_explained(world: World) -> None:
    with pytest.raises(SpillwayError, match="`attribute` must be one of east's"):
        explain(world.tables.now(), "east", None)


def test_the_report_shows_pairs_with_their_band_and_where_matches_lie(world: World, tmp_path: Path) -> None:
    page = whole_report(build_report(world.tables.now(), tmp_path / "report.html"))
    for title in (
        "alike: ",
        "pairs found</h3>",
        "Where matches lie",
        "How much of either window",
    ):
        assert title in page
    assert "Alarms that are about the same. From east, west." in page
    assert 'class="band"' in page


def test_of_older_windows_nothing_is_read_but_columns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "SHOWN_BATCHES", 2)
    contract, tables = world.contracts.joins["alike"], world.tables.now()
    *older, last_but_one, last = sorted(row["window"] for row in world.rows("join_windows"))
    assert older

    def tell() -> None:
        told = LEVER.explain(contract, tables)
        assert told is not None
        assert told.numbers["last windows"] == 2
        assert list(LEVER.pictures(contract, tables))

    assert whole_reads(monkeypatch, tell, "join_windows", "window") == {last_but_one, last}


def test_a_stream_cannot_be_joined_by_its_own_contract() -> None:
    stream: dict[str, Any] = {**STREAM, "levers": JOIN["levers"]}
    with pytest.raises(ContractError, match=r"`levers\[0\].lever` must work on a join"):
        read_stream(stream)


def test_a_join_by_a_lever_of_streams_is_refused_by_name(world: World, tmp_path: Path) -> None:
    other = world.copy(tmp_path)
    contract_becomes(other, {**JOIN, "levers": [{"lever": "attributes"}]})
    with pytest.raises(
        SpillwayError, match=r"alike: `levers` must be one that works on windows, got 'attributes'"
    ):
        run(other)


def test_what_windows_missed_is_told_from_their_samples_together() -> None:
    def row(found: int, chance: float, **said: float) -> dict[str, Any]:
        learned = {"sample": [chance, float(found)]}
        return {"possible": 9000, "compared": 1000, "left_learned": learned, "right_learned": learned, **said}

    sampled = [
        row(found, 0.01, missed=198.0 * found, missed_low=0.0, missed_high=8000.0) for found in (0, 4, 2)
    ]
    one, other = (
        vars(told) for told in (total_missed_pairs(sampled), estimate_total_missed_pairs([(12, 0.01)]))
    )
    assert one == pytest.approx(other)
    counted = row(0, 0.0, missed=70.0, missed_low=70.0, missed_high=70.0)
    assert total_missed_pairs([counted]) == MissedPairs(70.0, 70.0, 70.0)
    both = total_missed_pairs([*sampled, counted])
    assert both.high - both.low == pytest.approx(
        total_missed_pairs(sampled).high - total_missed_pairs(sampled).low
    )
    assert both.estimate == total_missed_pairs(sampled).estimate + 70
    rows_sampled = {f"{side}_learned": {"sample": [1.0] * 7} for side in ("left", "right")}
    older = [
        {**row(0, 0.0, missed=3.0, missed_low=1.0, missed_high=9.0), **rows_sampled},
        {**row(0, 0.0, missed=0.0, missed_low=0.0, missed_high=8.0), **rows_sampled},
    ]
    assert total_missed_pairs(older) == MissedPairs(3.0, 1.0, 13.0)
    # no more is missed than was not compared
    assert total_missed_pairs([row(1, 1e-6, missed=1.0, missed_low=0.0, missed_high=8000.0)]).high == 8000


def test_windows_in_which_nothing_was_compared_are_said_where_what_was_missed_is_estimated() -> None:
    def row(compared: int, missed: float) -> dict[str, Any]:
        side = {"sample": [0.1, 12.0 if compared else 0.0]}
        return {
            "possible": 9000, "compared": compared, "left_learned": side, "right_learned": side,
            "missed": missed, "missed_low": 0.0, "missed_high": 8000.0,
        }  # fmt: skip

    assert "nothing was compared" not in missed_pairs_sentence([row(1000, 216.0)])
    assert "; in 2 of 3 windows nothing was compared" in missed_pairs_sentence(
        [row(1000, 216.0), row(0, 0.0), row(0, 0.0)]
    )

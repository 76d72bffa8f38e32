"""The acceptance test of the house: a lever nobody knows goes through it all with its package and its line alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.levers.thin.lever import ThinPlan
from tests.pipeline.streams import SITES, World, json_lines, sites
from tests.report.page.pages import whole_report

from spillway import registry
from spillway.engine import Engine, ProcessEngine
from spillway.errors import InvalidValue, RunFailed
from spillway.ledger import consecutive_totals, total_imbalance
from spillway.report.explain import explain
from spillway.report.page import build_report
from spillway.report.status import status
from spillway.report.summary import lake_figures
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up

ORDERS = {
    "alone": [{"lever": "thin"}],
    "before": [{"lever": "thin"}, {"lever": "attributes", "training": {"tuples": 240}}],
    "after": [{"lever": "attributes", "training": {"tuples": 240}}, {"lever": "thin"}],
}


@pytest.fixture(autouse=True)
def the_toy_has_its_line() -> Iterator[None]:
    with registry.extra_levers(thin="tests.levers.thin"):
        yield


def brought_through(folder: Path, engine: Engine, order: str) -> World:
    """Taken in, trained, shed in two runs whose last frame spans both, validated."""
    world = World.begin(engine, folder, {**SITES, "levers": ORDERS[order]}, capacity="12 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    world.train("sites")
    world.shed()
    world.deliver("sites/2020-01-01/b.json", json_lines(sites(330, 150)))
    world.shed()
    world.validate()
    return world


@pytest.fixture(scope="module", params=ORDERS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    with registry.extra_levers(thin="tests.levers.thin"):
        return brought_through(tmp_path_factory.mktemp(request.param), ProcessEngine(), request.param)


def test_every_tenth_row_stays_at_home_and_all_come_back(world: World) -> None:
    raw, sent, back = (world.frame(table, "sites") for table in ("raw", "transmitted", "recovered"))
    assert sent["seq"].tolist() == [seq for seq in raw["seq"] if seq % 10 != 9]
    assert back["seq"].tolist() == raw["seq"].tolist()
    assert back["site"].tolist() == raw["site"].tolist()
    tenth = raw["seq"] % 10 == 9
    if world.contracts.streams["sites"].lever_names == ("thin",):
        for name in ("temp", "level", "pulses", "sky"):
            assert back[tenth][name].tolist() == raw[tenth][name].tolist()


def test_the_ledger_balances_and_stages_hand_over_in_the_pinned_order(world: World) -> None:
    rows = world.rows("ledger")
    assert total_imbalance(rows) == 0
    levers = world.batches("sites")[0].levers
    stages = {row["ordinal"]: row["stage"] for row in rows}
    assert [stages[at] for at in sorted(stages)] == ["intake", *levers, "sent"]
    assert any(then["stage"] == "thin" for _, then in consecutive_totals(rows))
    (thin,) = [
        row
        for row in rows
        if row["stage"] == "thin"
        and row["batch"] == 1
        and row["unit"] == "rows"
        and row["dimension_kind"] == "total"
    ]
    assert (thin["offered"], thin["shed"], thin["recoverable"]) == (330, 33, 33)


def test_facts_are_versioned_per_lever(world: World) -> None:
    versions = {(row["lever"], row["version"]) for row in world.rows("models")}
    assert versions == {(name, 1) for name in world.batches("sites")[0].levers}
    assert dict(world.batches("sites")[0].models) == dict(versions)


def test_values_that_were_shed_before_or_after_come_back_within_their_bound(world: World) -> None:
    if "attributes" not in world.batches("sites")[0].levers:
        assert {row["lever"] for row in world.rows("certificates")} == {"thin"}
        return
    raw, back, sent = (world.frame(table, "sites") for table in ("raw", "recovered", "transmitted"))
    assert (
        sent["temp"].isna().sum() > raw["temp"].isna().sum()
        or sent["level"].isna().sum() > raw["level"].isna().sum()
    )
    for name in ("temp", "level"):
        was, now = raw[name], back[name]
        assert was.isna().tolist() == now.isna().tolist()
        assert (((now - was).abs() / was.abs() * 100).dropna() <= 2.0).all()


def test_its_own_table_and_suite_are_judged(world: World) -> None:
    judged = {
        row["table"]: row["success"] for row in world.rows("validations") if row["table"] == "thin_aside"
    }
    assert judged == {"thin_aside": True}
    assert all(row["success"] for row in world.rows("validations"))
    (certificate,) = [r for r in world.rows("certificates") if r["lever"] == "thin" and r["batch"] == 1]
    assert (certificate["attribute"], certificate["shed_values"], certificate["violations"]) == ("", 33, 0)


def test_status_explain_report_and_figures_show_it(world: World) -> None:
    now = status(world.tables.now())
    assert not now.wrong
    assert "thin" in str(now.streams)
    assert "one row in 10 is kept aside" in str(explain(world.tables.now(), "sites", "temp"))
    page = whole_report(build_report(world.tables.now(), world.folder / "report.html"))
    assert "thin" in page
    (figures,) = lake_figures(world.tables.now())
    assert figures.ledger_difference == 0
    assert figures.rows_shed == 48


def test_one_row_of_those_kept_aside_can_be_asked_for(world: World) -> None:
    contract = world.contracts.streams["sites"]
    found = look_up(world.tables, contract, StreamQuery.parse(contract, seq=9))
    assert found.rows["site"].to_pylist() == ["site-3"]
    assert found.synopsis_bytes_read > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "order",
    [one if at % 2 == 0 else pytest.param(one, marks=pytest.mark.long) for at, one in enumerate(ORDERS)],
)
def test_spark_and_this_process_leave_the_same_tables(order: str, engine: Any, tmp_path: Path) -> None:
    here = brought_through(tmp_path / "here", ProcessEngine(), order)
    there = brought_through(tmp_path / "there", engine, order)
    for table in ("raw", "transmitted", "recovered", "thin_aside"):
        assert there.rows(table, "sites") == here.rows(table, "sites")
    assert there.rows("ledger") == here.rows("ledger")
    assert there.rows("certificates") == here.rows("certificates")


def test_the_toy_changes_no_file_but_its_own() -> None:
    """Nothing of the product, its schemas, expectations, DAGs or jobs names the toy."""
    root = Path(__file__).resolve().parents[2]
    grep = shutil.which("grep")
    assert grep is not None
    folders = [str(root / name) for name in ("lib/spillway", "schemas", "expectations", "dags", "jobs")]
    found = subprocess.run(
        [grep, "-rlwE", "thin_aside|levers\\.thin", *folders, "--include=*.py", "--include=*.yaml"],
        capture_output=True,
        text=True,
    )
    foreign = found.stdout.split()
    assert foreign == []


def test_missing_total_names_the_lever_and_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = ThinPlan.account
    rows_only = lambda plan, draft: [line for line in account(plan, draft) if line.unit == "rows"]  # noqa: E731
    monkeypatch.setattr(ThinPlan, "account", rows_only)
    with pytest.raises(RunFailed, match=r"the lever thin: `Plan.account` must return a total .* for values"):
        brought_through(tmp_path, ProcessEngine(), "alone")


def test_lever_must_have_the_name_under_which_it_is_registered() -> None:
    with (
        registry.extra_levers(slim="tests.levers.thin"),
        pytest.raises(InvalidValue, match="be the registered name, got 'thin'"),
    ):
        registry.lever("slim")

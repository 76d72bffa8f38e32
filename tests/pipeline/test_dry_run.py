"""A dry run touches nothing, and says what the real run will do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, meters, sites

from spillway.engine import ProcessEngine
from spillway.errors import UsageError
from spillway.report.overview import attribute_figures
from spillway.streams.dry_run import dry_run, tuples_at_both_ends
from spillway.streams.presence import absent_values

CAPACITY = "12 kbps"
OBSERVED: dict[str, Any] = {**SITES, "mode": "observe"}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two streams, trained and shed once, and each with a batch of the next date taken in."""
    world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("dry"), SITES, METERS, capacity=CAPACITY)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    world.shed()
    world.train("sites", "meters")
    world.shed()
    world.deliver("sites/2020-01-02/b.json", json_lines(sites(330, 300)))
    world.deliver("meters/2020-01-02/b.csv", csv_lines(meters(350, 200)))
    from spillway.intake.ingest import ingest

    for stream in ("sites", "meters"):
        ingest(world.tables, world.engine, world.contracts.streams[stream], "taken in")
    return world


@pytest.fixture
def world(begun: World, tmp_path: Path) -> World:
    return begun.copy(tmp_path)


def on_disk(world: World) -> dict[str, str]:
    return {
        str(path.relative_to(world.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(world.folder.rglob("*"))
        if path.is_file()
    }


def values_by_attribute(rows: list[dict[str, Any]], stream: str, batch: int) -> dict[str, tuple[int, ...]]:
    names = ("offered", "rounded", "shed", "bytes_offered", "bytes_kept", "bytes_source")
    return {
        row["dimension"]: tuple(row[name] for name in names)
        for row in rows
        if (row["subject"], row["batch"], row["dimension_kind"]) == (stream, batch, "attribute")
    }


def test_nothing_of_the_lake_changes(world: World) -> None:
    before = on_disk(world)
    with dry_run(world.tables, world.engine, world.contracts, "narrow") as run:
        assert set(run.batches) == {"sites", "meters"}
        assert run.tables.at("transmitted", "sites").rows().num_rows == 300
    assert on_disk(world) == before


def test_what_it_says_is_what_the_run_then_does(world: World) -> None:
    with dry_run(world.tables, world.engine, world.contracts, "narrow") as run:
        told = run.tables.at("ledger").rows().to_pylist()
        sent = run.tables.at("transmitted", "sites").rows().drop_columns(["batch_date"]).to_pylist()
    world.shed()
    done = world.at("ledger").rows().to_pylist()
    assert any(rounded or shed for _, rounded, shed, *_ in values_by_attribute(told, "sites", 2).values())
    for stream in ("sites", "meters"):
        assert values_by_attribute(told, stream, 2) == values_by_attribute(done, stream, 2)
    came = [row for row in world.rows("transmitted", "sites") if row["batch"] == 2]
    assert [{**row, "batch_date": None} for row in came] == [{**row, "batch_date": None} for row in sent]


def test_a_batch_that_was_shed_can_be_planned_again(world: World) -> None:
    world.shed()
    with dry_run(world.tables, world.engine, world.contracts, "narrow", ("sites", 1)) as run:
        assert (run.batches["sites"].batch, run.batches["meters"].batch) == (1, 2)
        assert run.batches["sites"].rows == 330


def test_a_batch_that_is_not_there_is_refused(world: World) -> None:
    with (
        pytest.raises(
            UsageError, match=r"`batch` must be one of sites whose raw tuples are there \(1, 2\), got 7"
        ),
        dry_run(world.tables, world.engine, world.contracts, "narrow", ("sites", 7)),
    ):
        raise AssertionError("never begun")


def test_what_was_never_trained_is_trained_in_memory(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES, capacity=CAPACITY)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    with dry_run(world.tables, world.engine, world.contracts, "narrow") as run:
        assert run.trained == ("sites",)
        assert run.tables.at("models").rows().num_rows
        assert run.tables.at("certificates").rows(["violations"])["violations"].to_pylist() == [0] * 4
    assert not world.at("models").exists


def test_what_has_not_arrived_waits_with_a_reason(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES, METERS, capacity=CAPACITY)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    with dry_run(world.tables, world.engine, world.contracts, "narrow") as run:
        assert set(run.batches) == {"sites"}
        assert run.waiting == {"meters": "nothing of it is at hand: deliver a file, then spillway run"}


def test_what_is_merely_observed_is_planned_as_if_it_were_not(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, OBSERVED, capacity="8 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    with dry_run(world.tables, world.engine, world.contracts, "narrow") as run:
        assert run.observed == ("sites",)
        touched = values_by_attribute(run.tables.at("ledger").rows().to_pylist(), "sites", 1)
        assert any(counts[1] or counts[2] for counts in touched.values())


@pytest.mark.parametrize(("synopsis", "capacity"), [("send", "6 kbps"), ("hold", CAPACITY)])
def test_the_loss_is_that_of_what_the_destination_has_by_itself(
    world: World, synopsis: str, capacity: str
) -> None:
    stated = {**SITES, "levers": [{**SITES["levers"][0], "synopsis": synopsis}]}
    world.contract_becomes(stated, METERS, capacity=capacity)
    if synopsis == "send":  # so much that its synopses are small beside it
        world.deliver("sites/2020-01-03/c.json", json_lines(sites(630, 4000)))
        world.shed()
    with dry_run(world.tables, world.engine, world.contracts, "narrow") as run:
        contract, batch = run.contracts.streams["sites"], run.batches["sites"]
        ledger = run.tables.at("ledger").rows(subject="sites").to_pylist()
        proofs = run.tables.at("certificates").rows(stream="sites").to_pylist()
        absent = absent_values(run.tables, contract, [batch])
        figures = {one.attribute: one for one in attribute_figures(contract, ledger, proofs, absent)}
        came, has = tuples_at_both_ends(run, "sites", batch.first_seq, batch.last_seq)
    assert any(one.shed for one in figures.values())
    assert any(one.absent for one in figures.values()) == (synopsis == "hold")
    for name in ("temp", "level", "pulses"):
        was, now = (rows[name].to_numpy(zero_copy_only=False).astype(float) for rows in (came, has))
        there = ~np.isnan(was)
        off = 100 * np.abs(now - was)[there] / np.abs(was)[there]
        off[np.isnan(now[there])] = 100.0
        # nulls count as values that are right, or absent with the rest
        assert figures[name].loss_pct == pytest.approx(float(np.mean(off)), rel=0.06, abs=1e-9), name


@pytest.fixture
def on_a_quota(tmp_path: Path) -> World:
    """A stream on a quota of a month: batch 1 has spent half of it, and batches 2 and 3 wait."""
    world = World.begin(ProcessEngine(), tmp_path, SITES, capacity="1 Mbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    world.train("sites")
    world.shed()
    (spent,) = world.at("ledger").rows(["bytes_kept"], stage="sent", unit="rows")["bytes_kept"].to_pylist()
    world.contract_becomes(SITES, capacity=f"{2 * spent} B/month")
    from spillway.intake.ingest import ingest

    for number in (2, 3):
        rows = sites(330 + 300 * (number - 2), 300)
        world.deliver(f"sites/2020-01-0{number}/{number}.json", json_lines(rows))
        ingest(world.tables, world.engine, world.contracts.streams["sites"], "taken in")
    return world


def test_plan_of_a_quota_is_what_the_run_then_does(on_a_quota: World) -> None:
    world = on_a_quota
    planned: dict[int, tuple[float | None, list[dict[str, Any]]]] = {}
    for number in (2, 3):
        with dry_run(world.tables, world.engine, world.contracts, "narrow", ("sites", number)) as run:
            rows = run.tables.at("transmitted", "sites").rows().drop_columns(["batch_date"]).to_pylist()
            planned[number] = run.batches["sites"].capacity_kbps, rows
    world.shed()
    done = {batch.batch: batch for batch in world.batches("sites")}
    sent = world.at("transmitted", "sites").rows().drop_columns(["batch_date"]).to_pylist()
    for number, (kbps, rows) in planned.items():
        assert kbps == done[number].capacity_kbps
        assert rows == [row for row in sent if row["batch"] == number]
    assert {batch.status for batch in done.values()} == {"done"}


def test_plan_of_an_old_batch_leaves_later_spending_out(on_a_quota: World) -> None:
    world = on_a_quota
    world.shed()
    done = {batch.batch: batch for batch in world.batches("sites")}
    with dry_run(world.tables, world.engine, world.contracts, "narrow", ("sites", 2)) as run:
        assert run.batches["sites"].capacity_kbps == pytest.approx(done[2].capacity_kbps, rel=1e-6)

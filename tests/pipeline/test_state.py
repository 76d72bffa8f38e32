"""What goes on from batch to batch is the same however many runs brought them through."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.streams import SITES, World, day, json_lines, sites

from spillway import registry
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.ledger import total_imbalance
from spillway.streams.recover import recover_batches

DELIVERED = {
    "sites/2020-01-01/a.json": json_lines(sites(0, 240)),
    "sites/2020-01-02/nothing.json": b"not a tuple\n",
    "sites/2020-01-03/b.json": json_lines(sites(240, 240)),
}


def trained(folder: Path) -> World:
    lenient = {**SITES, "bad_records": {"action": "reject", "max_share_pct": 100}}
    world = World.begin(ProcessEngine(), folder, lenient)
    world.deliver("sites/2020-01-01/a.json", DELIVERED["sites/2020-01-01/a.json"])
    world.shed()
    world.train("sites")
    return world


def test_a_batch_without_rows_between_two_others_changes_nothing(tmp_path: Path) -> None:
    once, thrice = trained(tmp_path / "once"), trained(tmp_path / "thrice")
    for name, content in DELIVERED.items():
        once.deliver(name, content)
    once.shed()
    for name, content in DELIVERED.items():
        thrice.deliver(name, content)
        thrice.shed()
    assert [batch.rows for batch in once.batches("sites")] == [240, 0, 240]
    assert once.rows("schemes") == thrice.rows("schemes")


def test_one_opening_of_the_tables_serves_run_after_run(tmp_path: Path) -> None:
    world = World.begin(
        ProcessEngine(), tmp_path, {**SITES, "sketches": [{"kind": "count_min", "attributes": ["site"]}]}
    )
    for run in (1, 2):
        world.deliver(f"sites/2020-01-0{run}/a.json", json_lines(sites(240 * run, 240)))
        world.shed()
        assert world.sketch() == 1
    assert {row["batch"] for row in world.rows("sketches")} == {1, 2}


def test_what_is_asked_for_is_counted_as_crossing_and_validation_asks_for_nothing(tmp_path: Path) -> None:
    world = trained(tmp_path)
    world.shed()
    world.validate()
    contract, now = world.contracts.streams["sites"], world.tables.now()
    assert sum(row["bytes_requested"] for row in world.rows("ledger")) == 0
    recover_batches(now, world.engine, contract, world.batches("sites"), asked=True)
    (line,) = [row for row in world.rows("ledger") if row["bytes_requested"]]
    assert (line["stage"], line["ordinal"], line["kept"]) == ("asked_back", -1, 240)
    payloads = sum(len(row["payload"]) for row in world.rows("synopsis"))
    assert line["bytes_requested"] == payloads
    assert total_imbalance(world.rows("ledger")) == 0


def test_a_stream_that_is_only_observed_loses_nothing_to_a_lever_that_forgets_it(tmp_path: Path) -> None:
    with registry.extra_levers(thin="tests.levers.thin"):
        watched = {**SITES, "mode": "observe", "levers": [{"lever": "thin"}]}
        world = World.begin(ProcessEngine(), tmp_path, watched)
        world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 60)))
        world.shed()
        world.train("sites")
        with pytest.raises(
            SpillwayError, match="thin must drop nothing where the contract says mode: observe"
        ):
            world.shed()
        assert world.rows("transmitted", "sites") == []


def test_a_batch_goes_again_through_the_levers_it_is_pinned_to(tmp_path: Path) -> None:
    world = trained(tmp_path)
    world.shed()
    before = world.rows("transmitted", "sites")
    with registry.extra_levers(thin="tests.levers.thin"):
        world.contract_becomes({**SITES, "levers": [{"lever": "thin"}, *SITES["levers"]]})
        world.shed(dates=(day(0), day(0)))  # thin was never trained, and this batch does not need it
        assert world.rows("transmitted", "sites") == before
    world.contract_becomes({**SITES, "levers": []})
    with pytest.raises(
        SpillwayError, match="batch 1 is pinned to the lever attributes, which its contract must list"
    ):
        world.shed(dates=(day(0), day(0)))

"""A channel that goes into another one (3.3): each stage sheds and stores its own, and recovery goes through both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, meters, sites

from spillway.batch import DONE
from spillway.contracts import load_contracts
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up

STREAMS = pytest.mark.parametrize("stream", ["sites", "meters"])
CHANNELS = {
    "narrow": {"capacity": "12 kbps", "into": "trunk", "divide_by": "proportional"},
    "trunk": {"capacity": "7 kbps", "divide_by": "proportional"},
}


def one_after_the_other(contract: dict[str, Any]) -> dict[str, Any]:
    """The contract with attributes kept or shed whole, as the text has it."""
    (lever,) = contract["levers"]
    return {**contract, "levers": [{**lever, "plan": "prefix", "treatments": ["keep", "shed"]}]}


@pytest.fixture(scope="module")
def joined(world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Both streams go through `narrow`, and that into `trunk`; a batch of each was shed, recovered and validated."""
    found = world.copy(tmp_path_factory.mktemp("joined"))
    found.contract_becomes(*(one_after_the_other(contract) for contract in (SITES, METERS)))
    Path(found.settings.schemas, "channels.yaml").write_text(yaml.safe_dump({"channels": CHANNELS}))
    found.contracts = load_contracts(found.settings.schemas)
    found.deliver("sites/2020-01-04/e.json", json_lines(sites(710, 300)))
    found.deliver("meters/2020-01-04/c.csv", csv_lines(meters(440, 800)))
    assert {batch.status for batch in found.shed("trunk")} == {DONE}
    found.validate("sites", "meters")
    return found


def newest(world: World, table: str, stream: str) -> list[dict[str, Any]]:
    number = world.batches(stream)[-1].batch
    return [
        row
        for row in world.rows(table)
        if (row.get("stream", row.get("subject")), row["batch"]) == (stream, number)
    ]


@STREAMS
def test_each_stage_has_a_synopsis_of_what_it_shed(joined: World, stream: str) -> None:
    (scheme,) = newest(joined, "schemes", stream)
    shed = {(way["attribute"], way["stage"]) for way in scheme["attributes"] if way["treatment"] == "shed"}
    assert {stage for _, stage in shed} == {1, 2}
    assert {(block["attribute"], block["stage"]) for block in newest(joined, "synopsis", stream)} == shed
    assert "trunk: " in scheme["reason"]


def test_what_is_sent_fits_both_channels(joined: World) -> None:
    sent = 0.0
    for stream in ("sites", "meters"):
        batch = joined.batches(stream)[-1]
        assert batch.trunk_kbps is not None
        assert batch.capacity_kbps is not None
        ledger = newest(joined, "ledger", stream)
        (line,) = [row for row in ledger if (row["stage"], row["unit"]) == ("sent", "rows")]
        rate = line["bytes_kept"] * 8 / 1000 / batch.seconds_covered
        assert rate <= min(batch.capacity_kbps, batch.trunk_kbps)
        sent += rate
    assert sent <= joined.contracts.channels["trunk"].capacity_kbps


@STREAMS
def test_values_of_both_stages_come_back_within_their_thresholds(joined: World, stream: str) -> None:
    certified = [row for row in newest(joined, "certificates", stream) if row["treatment"] == "shed"]
    assert len(certified) == 2
    assert [row["violations"] for row in certified] == [0, 0]
    batch = joined.batches(stream)[-1]
    names = [row["attribute"] for row in certified]
    whole = joined.frame("recovered", stream)
    whole = whole[whole["batch"] == batch.batch]
    assert (whole[[name + "__bound_pct" for name in names]].notna()).all(axis=None)
    contract = joined.contracts.streams[stream]
    for place in (0, len(whole) - 1):
        of_range = whole.iloc[place]
        seq = int(of_range["seq"])
        question = StreamQuery.parse(contract, names, seq=seq)
        (row,) = look_up(joined.tables, contract, question).rows.to_pylist()
        for name in names:
            assert row[name] == (None if of_range[name] is pd.NA else of_range[name])

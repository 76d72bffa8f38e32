"""What the ledger says of a batch that no lever works on, and what no lever may say of one that is only observed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from tests.pipeline.test_room import ingested, rooms, stream

from spillway import registry
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.drafts import COLLECT_MORE
from spillway.streams.shed import shed_channel
from spillway.streams.train import train_stream


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    tables = Tables(Settings.in_memory(f"accounting-{request.node.name}"))
    yield tables
    tables.forget()


@pytest.mark.parametrize(("capacity", "fits"), [(8.0, False), (4000.0, True)])
def test_what_there_is_no_room_for_is_a_shortfall_though_no_lever_works_on_it(
    tables: Tables, capacity: float, fits: bool
) -> None:
    contract = stream("net", mode="shed")
    batch = ingested(tables, contract)
    shed_channel(tables, ProcessEngine(), rooms(contract, capacity=f"{capacity} kbps"), "up")
    (sent,) = tables.now().at("ledger").rows(stage="sent", unit="rows").to_pylist()
    kbps = sent["bytes_kept"] * 8 / 1000 / (batch.seconds_covered or 0.0)
    assert (kbps <= capacity) is fits
    assert (sent["offered"], sent["kept"]) == (100, 100), "nothing is lost of it"
    assert sent["shortfall"] == (0 if fits else math.ceil(100 * (1 - capacity / kbps)))
    # most of it are fixed bytes
    assert sent["reason"].startswith("" if fits else "no lever works on it; ")
    assert (COLLECT_MORE in sent["reason"]) is not fits


def test_a_lever_that_drops_where_it_is_only_observed_stops_the_run_before_anything_is_published(
    tables: Tables,
) -> None:
    """The toy lever drops whatever the contract says."""
    with registry.extra_levers(thin="tests.levers.thin"):
        contract = stream("net", levers=[{"lever": "thin"}], mode="observe")
        contracts = rooms(contract)
        ingested(tables, contract)
        train_stream(tables, contracts, "net")
        with pytest.raises(
            SpillwayError, match=r"thin must drop nothing .*mode: observe, got 10 rows of batch 1"
        ):
            shed_channel(tables, ProcessEngine(), contracts, "up")
    assert not tables.now().at("transmitted", "net").rows().num_rows

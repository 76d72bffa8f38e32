"""Rows that are sent in the order of their key come back as they arrived, and are counted as they were sent."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evidence.attributes.at_capacity import ledger_bytes
from evidence.attributes.lake import Lake
from spillway.contracts import Channel, read_channel, read_stream
from spillway.store.blobs import read_bytes
from spillway.store.files import sort_keys_of

SITES, ROWS, PER_SECOND = 24, 9_600, 100.0
KEYS = ("site",)


def visits() -> pa.Table:
    """Sites report in turn, with counters that change by one; sometimes a site is late, and its time goes back."""
    at, chance = np.arange(ROWS), np.random.default_rng(6)
    rounds = ROWS // SITES

    def counter() -> pa.Array:
        walk = np.cumsum(chance.integers(-1, 2, (rounds, SITES)), axis=0) + chance.integers(900, 5_000, SITES)
        return pa.array(walk.reshape(-1).astype(float), mask=chance.random(ROWS) < 0.01)

    late = (chance.random(ROWS) < 0.02) * 90
    return pa.table(
        {
            "site": [f"site {i % SITES * 7 % SITES}" for i in at],
            "at": pa.array((at // SITES * 60 - late) * 1_000_000, pa.timestamp("us", tz="UTC")),
            "first": counter(),
            "second": counter(),
            "third": counter(),
        }
    )


def landed(capacity: str, levers: bool = True, ways: Sequence[str] = ("keep", "round", "shed")) -> Lake:
    lever = {"lever": "attributes", "training": {"tuples": 4_800}, "treatments": list(ways)}
    attributes = [
        {"name": "site", "type": "string", "role": "key", "nullable": False},
        {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
        *(
            {"name": name, "type": "double", "role": "measure", "error_pct": 1.0}
            for name in ("first", "second", "third")
        ),
    ]
    contract = read_stream(
        {
            "stream": "visits",
            "channel": "up",
            "source": {"format": "parquet"},
            "rate": {"from": "declared", "tuples_per_second": PER_SECOND},
            "levers": [lever] if levers else [],
            "attributes": attributes,
        }
    )
    sink = io.BytesIO()
    pq.write_table(visits(), sink)
    up: dict[str, Channel] = {"up": read_channel("up", {"capacity": capacity})}
    files = {"visits": {"2026-01-01/a.parquet": sink.getvalue()}}
    lake = Lake.land(f"order-{uuid4()}", {"visits": contract}, files, up)
    if levers:
        lake.train()
    return lake


@pytest.fixture(
    scope="module",
    params=[("1 Gbps", True), ("1 Gbps", False), ("1.6 kbps", True), ("0.6 kbps", True)],
    ids=str,
)
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """A lake whose batch is sent, recovered and certified; to be read."""
    capacity, levers = request.param
    made = landed(capacity, levers)
    made.shed()
    yield made
    made.forget()


def sent_order(lake: Lake) -> tuple[str, ...]:
    (file,) = lake.tables.at("transmitted", "visits").files()
    return sort_keys_of(file)


def test_rows_come_back_in_the_order_in_which_they_arrived(lake: Lake) -> None:
    table = lake.tables.at("recovered", "visits")
    recovered, raw = table.rows(["seq", "site", "at", "first"]), lake.rows("raw", "visits")
    assert recovered["seq"].to_pylist() == list(range(ROWS))
    assert recovered["site"].equals(raw["site"])
    assert recovered["at"].equals(raw["at"])
    certificates = lake.tables.at("certificates").rows().to_pylist()
    assert all(one["violations"] == 0 for one in certificates)
    if lake.contracts.channels["up"].capacity_kbps > 1_000:
        assert sent_order(lake) == KEYS
        assert recovered["first"].to_pylist() == raw["first"].to_pylist()


def test_batch_that_fits_by_key_is_sent_whole() -> None:
    """By the bytes of `raw`, where rows lie in the order of arrival, the batch exceeds its share."""
    wide = landed("1 Gbps")
    wide.send()
    (whole,) = ledger_bytes(wide, "visits").values()
    kbps = 1.005 * whole * 8.0 / 1000.0 / (ROWS / PER_SECOND)
    (load,) = wide.loads("visits")
    narrow = landed(f"{kbps} kbps", ways=["keep", "round"])
    narrow.send()
    columns = ["seq", "first", "second", "third"]
    sent = narrow.tables.at("transmitted", "visits").rows(columns).sort_by("seq")
    raw = narrow.rows("raw", "visits").select(columns)
    assert load.rate_kbps > kbps
    assert sent.equals(raw)
    for made in (wide, narrow):
        made.forget()


def test_a_batch_that_is_sent_again_has_the_same_bytes(lake: Lake) -> None:
    def content() -> bytes:
        (file,) = lake.tables.at("transmitted", "visits").files()
        return read_bytes(file.path)

    first = content()
    other = landed(
        f"{lake.contracts.channels['up'].capacity_kbps} kbps", bool(lake.contracts.streams["visits"].levers)
    )
    other.send()
    (file,) = other.tables.at("transmitted", "visits").files()
    assert read_bytes(file.path) == first
    other.forget()


def test_a_batch_that_fits_by_key_alone_loses_nothing() -> None:
    """In arrival order the batch does not fit the channel; the first draft shows that it fits if stored by key."""
    wide = landed("1 Gbps", ways=["keep", "round"])
    (load,) = wide.loads("visits")
    wide.send()
    sent = sum(ledger_bytes(wide, "visits").values())
    assert sent_order(wide) == KEYS
    seconds = sum(batch.seconds_covered or 0.0 for batch in wide.batches("visits"))
    by_key_kbps = sent * 8 / 1000 / seconds
    wide.forget()
    assert by_key_kbps < 0.96 * load.rate_kbps
    narrow = landed(f"{(by_key_kbps + load.rate_kbps) / 2} kbps", ways=["keep", "round"])
    narrow.shed()
    certificates = narrow.tables.at("certificates").rows().to_pylist()
    assert [one["rounded_values"] for one in certificates] == [0, 0, 0]
    narrow.forget()

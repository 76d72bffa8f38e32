"""What a plan says will cross, crosses, also of a stream whose keys, order and file are mostly overhead."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evidence.attributes.lake import Lake
from spillway.contracts import read_channel, read_stream
from spillway.levers.attributes.scheme import Run, load_runs

PER_SECOND = 25.0


def awkward(tuples: int) -> pa.Table:
    """Ragged keys in no order, an order attribute that jumps back and forth, nulls, and measures of noise."""
    random = np.random.default_rng(4)
    keys = np.array([f"unit-{k}/{'x' * (k % 17)}" for k in range(97)], object)
    return pa.table(
        {
            "unit": keys[random.integers(0, 97, tuples)],
            "at": np.cumsum(random.integers(-3, 9, tuples) * 1_000_003),
            "level": pa.array(np.round(random.lognormal(3, 2, tuples), 5), mask=random.random(tuples) < 0.1),
            "load": np.round(random.normal(0, 1e6, tuples), 3),
            "steps": random.integers(0, 2**40, tuples),
        }
    )


@pytest.fixture(
    params=[(900, "hold"), pytest.param((9_000, "hold"), marks=pytest.mark.long), (9_000, "send")], ids=str
)
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """One batch of the stream, taken in and trained."""
    tuples, synopsis = request.param
    attributes = [
        {"name": "unit", "type": "string", "role": "key", "nullable": False},
        {"name": "at", "type": "integer", "role": "order", "nullable": False},
        *({"name": name, "type": "double", "role": "measure"} for name in ("level", "load")),
        {"name": "steps", "type": "integer", "role": "measure"},
    ]
    contract = read_stream(
        {
            "stream": "odd",
            "channel": "up",
            "source": {"format": "parquet"},
            "rate": {"from": "declared", "tuples_per_second": PER_SECOND},
            "levers": [{"lever": "attributes", "synopsis": synopsis, "training": {"tuples": tuples}}],
            "attributes": attributes,
        }
    )
    sink = io.BytesIO()
    pq.write_table(awkward(tuples), sink)
    wide = {"up": read_channel("up", {"capacity": "1 Gbps"})}
    name = f"plan-{tuples}-{synopsis}"
    lake = Lake.land(name, {"odd": contract}, {"odd": {"2026-01-01/a.parquet": sink.getvalue()}}, wide)
    lake.train()
    yield lake
    lake.forget()


def sent_into(lake: Lake, kbps: float) -> tuple[float, list[Run]]:
    """What crossed, in kbps, counted from what was written; and the runs."""
    narrow = lake.with_channels({"up": read_channel("up", {"capacity": f"{kbps!r} kbps"})})
    narrow.send()
    (batch,) = narrow.batches("odd")
    (total,) = (
        narrow.tables.at("ledger")
        .rows(["bytes_kept"], subject="odd", stage="sent", unit="rows", dimension_kind="total")
        .to_pylist()
    )
    crossed = total["bytes_kept"] * 8.0 / 1000.0 / (batch.rows / PER_SECOND)
    runs = list(load_runs(narrow.tables, "odd", [1]))
    return crossed, runs


@pytest.mark.parametrize(
    "share",
    [0.45, 0.75, pytest.param(0.6, marks=pytest.mark.long), pytest.param(0.9, marks=pytest.mark.long)],
)
def test_what_crosses_fits_into_the_room_there_is(lake: Lake, share: float) -> None:
    offered = lake.loads("odd")[0].rate_kbps
    measures = sum(lake.loads("odd")[0].widths_bits[name] for name in ("level", "load", "steps"))
    always = offered - measures * PER_SECOND / 1000.0
    room = always + share * (offered - always)
    crossed, runs = sent_into(lake, room)
    assert crossed <= room
    assert all(run.shortfall_kbps == 0 for run in runs)


def test_what_always_travels_is_as_wide_as_it_was_planned(lake: Lake) -> None:
    """Everything is shed and it is still too much: the plan says by how much, within a twentieth of what crosses."""
    crossed, runs = sent_into(lake, 0.01)
    assert all(way.way == "shed" for run in runs for way in run.ways)
    assert all(run.shortfall_kbps > 0 for run in runs)
    assert [run.planned_kbps for run in runs] == pytest.approx([crossed] * len(runs), rel=0.05)

"""A synopsis is sent only where it takes fewer bytes than its column, end to end."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evidence.attributes.lake import Lake
from spillway.contracts import read_channel, read_stream
from spillway.levers.attributes.scheme import load_runs

TUPLES, SENDERS = 6_000, 3


def walk(seed: int) -> np.ndarray:
    """Values whose synopsis within 5 % is small."""
    moves = np.random.default_rng(seed).normal(0, 0.003, (TUPLES // SENDERS, SENDERS))
    return np.round(np.exp(np.cumsum(moves, 0)).ravel() * 50, 4)


def repeated(period: int) -> np.ndarray:
    """Random values that repeat: zstd finds the repetition, a synopsis does not."""
    block = np.round(np.random.default_rng(7).lognormal(3.0, 1.5, period), 1)
    return np.tile(block, TUPLES // period + 1)[:TUPLES]


def landed(name: str, second: np.ndarray, minimize: str) -> Lake:
    """A stream that was trained on its first day; `second` are the values of the second day."""
    contract = read_stream(
        {
            "stream": name,
            "channel": "up",
            "source": {"format": "parquet"},
            "rate": {"from": "declared", "tuples_per_second": 100},
            "levers": [
                {
                    "lever": "attributes",
                    "treatments": ["keep", "shed"],
                    "synopsis": "send",
                    "error_pct": 5,
                    "training": {"tuples": TUPLES},
                }
            ],
            "attributes": [
                {"name": "site", "type": "integer", "role": "key", "nullable": False},
                {"name": "at", "type": "integer", "role": "order", "nullable": False},
                {"name": "level", "type": "double", "role": "measure"},
            ],
        }
    )
    turns, files = np.arange(TUPLES), {}
    for day, values in enumerate((walk(1), second)):
        rows = pa.table({"site": turns % SENDERS, "at": turns + day * TUPLES, "level": values})
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        files[f"2026-01-0{day + 1}/a.parquet"] = sink.getvalue()
    wide = {"up": read_channel("up", {"capacity": "1 Gbps", "minimize": minimize})}
    lake = Lake.land(f"pays-{name}", {name: contract}, {name: files}, wide)
    lake.train()
    return lake


@pytest.fixture(params=[np.full(TUPLES, 21.5), repeated(1200)], ids=["constant", "repeated"])
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """On a channel paid by the byte, the synopsis is smaller than the column on the first day, larger on the second."""
    lake = landed("gauge", request.param, "bytes")
    yield lake
    lake.forget()


def test_column_that_takes_less_than_its_synopsis_is_sent_exact(lake: Lake) -> None:
    lake.send()
    first, second = lake.batches("gauge")
    ways = {
        batch.batch: {way.way for run in load_runs(lake.tables, "gauge", [batch.batch]) for way in run.ways}
        for batch in (first, second)
    }
    assert "keep" not in ways[first.batch]
    assert ways[second.batch] == {"keep"}
    given, true = (lake.rows(table, "gauge", second)["level"] for table in ("transmitted", "raw"))
    assert given == true

"""Room that no whole attribute fills: some tuples of a batch are treated better than the others, end to end."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evidence.attributes.lake import Lake
from spillway.contracts import read_channel, read_stream
from spillway.levers.attributes.scheme import Run, load_runs

TUPLES, SENDERS, PER_SECOND = 6_000, 4, 100.0


def landed(name: str, columns: Mapping[str, np.ndarray], synopsis: str) -> Lake:
    """A stream of these measures, trained; all of it is one batch."""
    plain = [{"name": one, "type": "double", "role": "measure"} for one in columns]
    contract = read_stream(
        {
            "stream": name,
            "channel": "up",
            "source": {"format": "parquet"},
            "rate": {"from": "declared", "tuples_per_second": PER_SECOND},
            "levers": [{"lever": "attributes", "synopsis": synopsis, "training": {"tuples": TUPLES}}],
            "attributes": [
                {"name": "site", "type": "integer", "role": "key", "nullable": False},
                {"name": "at", "type": "integer", "role": "order", "nullable": False},
                *plain,
            ],
        }
    )
    turns = np.arange(TUPLES)
    rows = pa.table({"site": turns % SENDERS, "at": turns, **columns})
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    wide = {"up": read_channel("up", {"capacity": "1 Gbps"})}
    lake = Lake.land(
        f"divided-{name}", {name: contract}, {name: {"2026-01-01/a.parquet": sink.getvalue()}}, wide
    )
    lake.train()
    return lake


def sent_into(lake: Lake, stream: str, kbps: float) -> tuple[float, list[Run]]:
    """What crossed of a capacity, as a share of it, and the runs."""
    lake = lake.with_channels({"up": read_channel("up", {"capacity": f"{kbps!r} kbps"})})
    lake.send()
    (total,) = (
        lake.tables.at("ledger")
        .rows(["bytes_kept"], subject=stream, stage="sent", unit="rows", dimension_kind="total")
        .to_pylist()
    )
    crossed = total["bytes_kept"] * 8.0 / 1000.0 / (TUPLES / PER_SECOND)
    return crossed / kbps, list(load_runs(lake.tables, stream, [1]))


def noise(seed: int) -> np.ndarray:
    """Values that nothing predicts."""
    return np.round(np.random.default_rng(seed).lognormal(3.0, 1.5, TUPLES), 6)


@pytest.fixture
def one_measure(request: pytest.FixtureRequest) -> Iterator[tuple[Lake, float, float]]:
    """A stream of one measure, what always travels of it, and what the measure takes, in kbps."""
    lake = landed("gauge", {"level": noise(1)}, request.param)
    load = lake.loads("gauge")[0]
    measure = load.widths_bits["level"] * load.tuples_per_second / 1000.0
    yield lake, load.rate_kbps - measure, measure
    lake.forget()


@pytest.mark.parametrize("one_measure", ["hold"], indirect=True)
def test_of_a_measure_that_does_not_fit_most_tuples_cross_all_the_same(
    one_measure: tuple[Lake, float, float],
) -> None:
    lake, fixed, measure = one_measure
    used, runs = sent_into(lake, "gauge", fixed + 0.12 * measure)
    assert 0.9 < used <= 1.0
    assert [[way.way for way in run.ways] for run in runs] == [["round"], ["shed"]]
    (batch,) = lake.batches("gauge")
    given = lake.rows("transmitted", "gauge", batch)["level"]
    cut = runs[1].from_seq - runs[0].from_seq
    assert cut > TUPLES // 3
    assert (given.slice(0, cut).null_count, given.slice(cut).null_count) == (0, TUPLES - cut)
    # what was held gives the rest back, within the bound
    lake.shed()
    (certificate,) = lake.tables.at("certificates").rows(stream="gauge", attribute="level").to_pylist()
    assert (certificate["violations"], certificate["shed_values"]) == (0, TUPLES - cut)


@pytest.mark.parametrize("one_measure", ["send"], indirect=True)
def test_never_over_capacity_even_where_synopses_were_to_be_sent(
    one_measure: tuple[Lake, float, float],
) -> None:
    lake, fixed, measure = one_measure
    used, runs = sent_into(lake, "gauge", fixed + 0.02 * measure)
    assert used <= 1.0
    assert all(run.shortfall_kbps == 0 for run in runs)
    assert "no room to send the synopses of level, which stay at the source" in runs[-1].reason


def test_a_synopsis_of_many_times_its_planned_size_is_known_by_the_next_draft() -> None:
    # c follows from a and b: next to nothing while these cross as they are, all of its noise where they do not
    a, b = noise(2), noise(3)
    lake = landed("sums", {"a": a, "b": b, "c": np.round(a + b, 6)}, "send")
    load = lake.loads("sums")[0]
    measures = sum(load.widths_bits[name] for name in "abc") * load.tuples_per_second / 1000.0
    used, runs = sent_into(lake, "sums", load.rate_kbps - 0.80 * measures)
    assert 0.9 < used <= 1.0
    assert not any(way.way == "shed" and not way.sent for run in runs for way in run.ways)
    lake.forget()

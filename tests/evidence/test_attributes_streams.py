"""Streams in memory: numbered as intake numbers them, and shaped as Table 4.1 says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evidence.attributes.generated import Source, generated, sources
from evidence.attributes.streams import landed
from spillway.contracts import StreamContract, read_stream
from spillway.errors import SpillwayError
from spillway.levers.attributes.cycle.find import find_cycle
from spillway.pipeline.train import plain_values

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def contract() -> StreamContract:
    return read_stream(
        {
            "stream": "net",
            "channel": "uplink",
            "source": {"format": "csv"},
            "rate": {"from": "event_time"},
            "attributes": [
                {"name": "router", "type": "string", "role": "key"},
                {"name": "at", "type": "timestamp", "role": "order"},
                {"name": "delay_ms", "type": "double"},
            ],
        }
    )


HEADER = b"router,at,delay_ms\n"


def line(second: int, delay: bytes = b"1.5") -> bytes:
    return b"r1,2026-03-02T08:00:%02dZ,%s\n" % (second, delay)


def test_rejected_lines_keep_their_numbers_and_repeated_files_are_skipped(contract: StreamContract) -> None:
    first = HEADER + line(0) + line(1, b"fast") + line(2)
    files = {
        "2026-03-03/a.csv": HEADER + line(3) + line(4),
        "2026-03-02/a.csv": first,
        "2026-03-02/b.csv": first,
    }
    stream = landed(contract, files)
    # the header is line 1, which has number 0: records 2 and 4 of the first file stay, its copy takes no numbers
    assert stream.rows["seq"].to_pylist() == [1, 3, 5, 6]
    assert [(d.batch, d.first_seq, d.last_seq) for d in stream.deliveries] == [(1, 0, 3), (2, 4, 6)]


def test_the_time_covered_by_event_time_counts_the_last_step_too(contract: StreamContract) -> None:
    stream = landed(contract, {"2026-03-02/a.csv": HEADER + line(0) + line(10) + line(20)})
    # three moments ten seconds apart cover thirty seconds
    assert stream.deliveries[0].seconds_covered == 30.0


@pytest.mark.parametrize("source", sources(GOLDEN), ids=lambda source: source.name)
def test_a_generated_source_has_its_attributes_and_its_cycle(source: Source) -> None:
    stream = generated(source, cycles=6)
    names = [a.source_name for a in stream.contract.attributes if a.role != "order"]
    assert names == list(source.attributes)
    columns = {name: plain_values(stream.rows[name]) for name in stream.contract.names}
    bits = {a.name: a.declared_bits for a in stream.contract.attributes}
    found = find_cycle(columns, np.arange(stream.rows.num_rows), bits, order="polled_at")
    assert (found.attributes, found.length) == (stream.contract.keys, source.cycle)


def test_a_delivery_of_one_moment_has_no_rate(contract: StreamContract) -> None:
    with pytest.raises(SpillwayError, match="must span two moments, got 1"):
        landed(contract, {"2026-03-02/a.csv": HEADER + line(0)})


def test_generated_streams_repeat_themselves_bit_for_bit() -> None:
    source = Source("a.net", "internet", ("Router", "Mean", "Max"), 7)
    assert generated(source, cycles=9, seed=3).rows.equals(generated(source, cycles=9, seed=3).rows)
    assert not generated(source, cycles=9, seed=3).rows.equals(generated(source, cycles=9, seed=4).rows)


def test_prices_changes_and_percentages_obey_their_relation() -> None:
    source = Source("q", "stock", ("Symbol", "Last Sale", "Net Change", "Percentage Change"), 5)
    rows = generated(source, cycles=40).rows
    price, change, percent = (np.asarray(rows[n]) for n in ("Last_Sale", "Net_Change", "Percentage_Change"))
    # a price has two decimals, so its predecessor is price - change, and a percentage is rounded to 0.01
    assert np.abs(percent - 100 * change / (price - change)).max() <= 0.005 + 1e-9

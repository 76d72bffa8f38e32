"""Streams shaped as Table 4.1 says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evidence.attributes.generated import Source, generate_stream, sources
from spillway.levers.attributes.cycle.identifier import find_cycle
from spillway.levers.attributes.training.train import plain_values
from spillway.records import parse_records

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("source", sources(GOLDEN), ids=lambda source: source.name)
def test_a_generated_source_has_its_attributes_and_its_cycle(source: Source) -> None:
    made = generate_stream(source, cycles=6)
    names = [a.source_name for a in made.contract.attributes if a.role != "order"]
    assert names == list(source.attributes)
    columns = {a.name: plain_values(made.rows[a.source_name]) for a in made.contract.attributes}
    bits = {a.name: a.declared_bits for a in made.contract.attributes}
    found = find_cycle(columns, np.arange(made.rows.num_rows), bits, order="polled_at")
    assert (found.attributes, found.length) == (made.contract.keys, source.cycle)


def test_generated_streams_repeat_themselves_bit_for_bit() -> None:
    source = Source("a.net", "internet", ("Router", "Mean", "Max"), 7)
    assert generate_stream(source, cycles=9, seed=3).rows.equals(
        generate_stream(source, cycles=9, seed=3).rows
    )
    assert not generate_stream(source, cycles=9, seed=3).rows.equals(
        generate_stream(source, cycles=9, seed=4).rows
    )


def test_a_stream_lands_on_two_dates_in_whole_cycles_without_a_refusal() -> None:
    made = generate_stream(Source("a.net", "internet", ("Router", "Mean", "Max"), 7), cycles=9)
    parsed = [parse_records(made.contract, name, content) for name, content in made.files.items()]
    assert [one.table.num_rows for one in parsed] == [28, 35]
    assert [one.rejected.num_rows for one in parsed] == [0, 0]
    assert made.files.keys() == {"2006-03-01/half.parquet", "2006-03-02/half.parquet"}


def test_prices_changes_and_percentages_obey_their_relation() -> None:
    source = Source("q", "stock", ("Symbol", "Last Sale", "Net Change", "Percentage Change"), 5)
    rows = generate_stream(source, cycles=40).rows
    price, change, percent = (np.asarray(rows[n]) for n in ("Last Sale", "Net Change", "Percentage Change"))
    # a price has two decimals, so its predecessor is price - change, and a percentage is rounded to 0.01
    assert np.abs(percent - 100 * change / (price - change)).max() <= 0.005 + 1e-9

"""Load the real streams for adaptive mechanisms: the four of the demo, and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from evidence.attributes.codecs.samples import REAL, Sample, real_sample
from evidence.attributes.lake import Lake
from evidence.narrow_links import narrow_contracts, narrow_files
from spillway.contracts import Contracts, StreamContract
from spillway.contracts.levers import LeverEntry
from spillway.levers.attributes.settings import AttributeSettings

DEMO_ROWS = 30_000
LEFT_OUT = ("flights", "doctors")
"""Streams of packages that are left out: the demo has the flights already, and the doctors' visits have no order."""
BLOCKS, LEAST_BLOCKS, ROWS_A_BLOCK = 10, 5, 500
"""As many slices as leave `ROWS_A_BLOCK` rows in each: a short slice makes much of what a format writes once."""


def demo_lake(contracts: Contracts, settings: AttributeSettings) -> Lake:
    """Return the demo's four streams as delivered, each with the attribute lever alone under these settings.

    Neither class nor bound is stated, so that all streams are compared on the same terms.
    """
    contracts, files = narrow_contracts(contracts), narrow_files()
    streams = {name: plain_contract(contracts.streams[name], settings) for name in files}
    return Lake.land("adaptive", streams, files, contracts.channels)


def plain_contract(contract: StreamContract, settings: AttributeSettings) -> StreamContract:
    """Return the contract with the attribute lever alone, and without bounds of its own."""
    attributes = tuple(replace(one, error=None, error_pct=None) for one in contract.attributes)
    return replace(contract, attributes=attributes, levers=(LeverEntry("attributes", settings),))


def samples(lake: Lake) -> Iterator[Sample]:
    """Yield the demo's streams, then the real streams of installed packages."""
    for name, contract in lake.contracts.streams.items():
        yield sample_of(contract, lake.rows("raw", name))
    yield from (real_sample(name) for name in REAL if name not in LEFT_OUT)


def sample_of(contract: StreamContract, rows: pa.Table) -> Sample:
    """Return raw rows as a sample: numeric measures may be shed, protected numbers always travel."""
    numeric = {one.name for one in contract.attributes if one.type in ("integer", "double")}
    kept = [name for name in contract.names if name in rows.column_names]
    return Sample(
        contract.stream,
        rows.select(kept).slice(0, DEMO_ROWS),
        contract.keys,
        tuple(name for name in contract.sheddable if name in numeric),
        tuple(one.name for one in contract.attributes if one.role == "protected" and one.name in numeric),
        contract.order,
    )


def row_slices(rows: int) -> list[tuple[int, int]]:
    """Return the borders of the slices that later rows are cut into.

    >>> len(row_slices(20_000)), len(row_slices(3_000)), len(row_slices(700))
    (10, 6, 5)
    """
    return slices(rows, min(BLOCKS, max(LEAST_BLOCKS, rows // ROWS_A_BLOCK)))


def slices(rows: int, blocks: int) -> list[tuple[int, int]]:
    """Return the borders of consecutive slices of even length.

    >>> slices(7, 3)
    [(0, 2), (2, 4), (4, 7)]
    """
    count = max(1, min(blocks, rows))
    return [(rows * place // count, rows * (place + 1) // count) for place in range(count)]

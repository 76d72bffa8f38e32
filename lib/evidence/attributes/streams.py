"""The demo streams in memory: landing bytes parsed and numbered as intake does it, one delivery a batch date.

What is measured downstream is the product's code on these tables; only Spark and Delta are left out, which move
bytes and decide nothing. Widths are those of the same Parquet encoding (zstd, dictionaries).

>>> table = pa.table({"seq": [0, 1], "a": ["x", "y"]})
>>> sorted(column_widths(table)), min(column_widths(table).values()) > 0
(['a', 'seq'], True)
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spillway.contracts import Contracts, StreamContract
from spillway.demo.data import STREAMS
from spillway.errors import SpillwayError
from spillway.records import count_records, parse_records


@dataclass(frozen=True)
class Delivery:
    """What landed for one batch date: its tuples, the `seq` numbers set aside for it, the seconds it covers."""

    batch: int
    rows: pa.Table
    first_seq: int
    last_seq: int
    seconds_covered: float

    @cached_property
    def column_bytes(self) -> dict[str, int]:
        """Compressed bytes of every column as written."""
        return column_widths(self.rows)


@dataclass(frozen=True)
class MemoryStream:
    """A stream with its contract and its deliveries in order."""

    contract: StreamContract
    deliveries: tuple[Delivery, ...]

    @cached_property
    def rows(self) -> pa.Table:
        """All tuples in `seq` order."""
        return pa.concat_tables([delivery.rows for delivery in self.deliveries])

    @property
    def name(self) -> str:
        return self.contract.stream


def demo_streams(contracts: Contracts) -> dict[str, MemoryStream]:
    """The demo's three streams."""
    return {name: landed(contracts.streams[name], make()) for name, make in STREAMS.items()}


def landed(contract: StreamContract, files: Mapping[str, bytes]) -> MemoryStream:
    """A stream from landing files named `<date>/<file>`: repeats skipped, tuples numbered by file order and line."""
    digests: set[str] = set()
    seq = 0
    by_date: dict[str, list[pa.Table]] = {}
    spans: dict[str, tuple[int, int]] = {}
    # dates first, names within: the order in which intake sets numbers aside
    for name in sorted(files, key=lambda name: (name.partition("/")[0], name)):
        content = files[name]
        digest = hashlib.sha256(content).hexdigest()
        records = count_records(contract, content)
        if digest in digests or not records:
            continue
        digests.add(digest)
        parsed = parse_records(contract, name, content).table
        numbers = pc.cast(pc.add(parsed["line"], seq - 1), pa.int64())
        day = name.partition("/")[0]
        by_date.setdefault(day, []).append(parsed.drop_columns(["line"]).add_column(0, "seq", numbers))
        spans[day] = (spans.get(day, (seq, seq))[0], seq + records - 1)
        seq += records
    deliveries = []
    for number, (day, parts) in enumerate(by_date.items(), start=1):
        rows = pa.concat_tables(parts).combine_chunks()
        deliveries.append(Delivery(number, rows, *spans[day], seconds_of(contract, rows)))
    return MemoryStream(contract, tuple(deliveries))


def seconds_of(contract: StreamContract, rows: pa.Table) -> float:
    """The time a delivery took to arrive, by declared line rate or by event time, as intake measures it."""
    if contract.rate.from_ == "declared":
        return rows.num_rows / float(contract.rate.tuples_per_second or 1.0)
    moments = np.unique(np.asarray(rows[contract.order]).astype("datetime64[us]").astype(np.int64) / 1e6)
    if len(moments) < 2:
        raise SpillwayError(
            f"{contract.stream}: a delivery must span two moments, got {len(moments)}; declare its rate"
        )
    return float((moments[-1] - moments[0]) * len(moments) / (len(moments) - 1))


def column_widths(rows: pa.Table) -> dict[str, int]:
    """Compressed bytes of each column, written as the lake writes it."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd", use_dictionary=True)
    metadata = pq.ParquetFile(sink).metadata
    found = dict.fromkeys(rows.column_names, 0)
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            found[chunk.path_in_schema.split(".")[0]] += chunk.total_compressed_size
    return found

"""Measure bytes and processor time of Parquet files with other constants, as ratios to those of `spillway.parquet`.

The rows are those of the evidence's real and generated streams, with `seq` and `batch` as in `transmitted`, and
1,048,576 tuples of generated telemetry for constants that matter only in long files. Encodings are chosen once, so that
only the constant differs. Bytes are whole files. Processor time is that of the writes alone, the least of `ROUNDS`.

`encoding.bytes.level.19.real` = 0.98: at zstd level 19, real streams take 2 % less than with the product's constants.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from evidence.attributes.codecs.samples import REAL, of_source, real_sample
from evidence.attributes.generated import sources
from evidence.bench.bench_attributes import telemetry
from spillway.parquet import ROWS_IN_A_GROUP, best_encodings, parquet_writer

LONG_ROWS = 1 << 20
ROUNDS = 3
CHOICES: Mapping[str, Mapping[str, Any]] = {
    **{f"level.{level}": {"compression_level": level} for level in (1, 3, 6, 9, 12, 15, 19)},
    **{f"page_bytes.{1 << bits}": {"data_page_size": 1 << bits} for bits in (16, 20, 23, 25)},
    **{f"rows_in_a_page.{1 << bits}": {"max_rows_per_page": 1 << bits} for bits in (14, 17, 19)},
    **{f"page_version.{number}": {"data_page_version": f"{number}.0"} for number in (1, 2)},
    **{f"dictionary_bytes.{1 << bits}": {"dictionary_pagesize_limit": 1 << bits} for bits in (18, 20, 23)},
    **{f"rows_in_a_group.{1 << bits}": {"rows": 1 << bits} for bits in (12, 14, 16, 17, 19, 20)},
}
"""By name, the options of Arrow's writer that differ from the product's; `rows`: the rows of a row group."""


def streams(directory: Path) -> Iterator[tuple[str, pa.Table]]:
    """Yield the kind and the rows of each stream."""
    for name in REAL:
        yield "real", as_transmitted(real_sample(name).rows)
    for source in sources(directory):
        yield "generated", as_transmitted(of_source(source).rows)
    yield "long", pa.concat_tables(telemetry((0, LONG_ROWS, 0.01), {}))


def as_transmitted(rows: pa.Table) -> pa.Table:
    """Return rows with the columns of `transmitted` in front of them."""
    columns = {"seq": pa.array(range(rows.num_rows), pa.int64()), "batch": pa.repeat(1, rows.num_rows)}
    return pa.table(columns | {name: rows[name] for name in rows.column_names})


def write_cost(rows: pa.Table, encodings: Mapping[str, str], options: Mapping[str, Any]) -> tuple[int, float]:
    """Return the bytes of a file, and the processor seconds of writing it."""
    other = dict(options)
    size = other.pop("rows", ROWS_IN_A_GROUP)
    found, seconds = 0, float("inf")
    for _ in range(ROUNDS):
        sink, began = io.BytesIO(), time.process_time()
        with parquet_writer(sink, rows.schema, encodings, rows.num_rows > size, **other) as writer:
            writer.write_table(rows, row_group_size=size)
        found, seconds = len(sink.getvalue()), min(seconds, time.process_time() - began)
    return found, seconds


def encoding_bench(home: str) -> dict[str, float]:
    """Return ratios of bytes and processor time to those of the product's constants, by constant and kind of stream."""
    totals: dict[tuple[str, str], tuple[int, float]] = {}
    choosing: dict[str, float] = {}
    for kind, rows in streams(Path(home, "tests", "golden")):
        began = time.process_time()
        encodings = best_encodings(rows.slice(0, ROWS_IN_A_GROUP))
        choosing[kind] = choosing.get(kind, 0.0) + time.process_time() - began
        for name, options in {"": {}, **CHOICES}.items():
            size, seconds = write_cost(rows, encodings, options)
            before = totals.get((name, kind), (0, 0.0))
            totals[name, kind] = before[0] + size, before[1] + seconds
    found: dict[str, float] = {}
    for (name, kind), (size, seconds) in totals.items():
        own_size, own_seconds = totals["", kind]
        if name:
            found[f"encoding.bytes.{name}.{kind}"] = size / own_size
            found[f"encoding.cpu.{name}.{kind}"] = seconds / own_seconds
        else:
            found[f"encoding.own_bytes.{kind}"] = float(size)
            found[f"encoding.choosing_cpu_over_writing.{kind}"] = choosing[kind] / seconds
    return found

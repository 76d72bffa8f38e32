"""Write columns as Parquet in the encoding that takes the fewest bytes, and measure what each column takes.

>>> rows = pa.table({"repeated": [1] * 4096, "counted": list(range(4096))})
>>> best_encodings(rows)
{'repeated': 'DELTA_BINARY_PACKED', 'counted': 'DELTA_BINARY_PACKED'}
>>> sum(widths_of(rows).values()) < 200
True
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spillway.footers import ShortFooterSink

ROWS_IN_A_GROUP = 1 << 19
COMPRESSION_LEVEL = 9
"""Of zstd. At level 3, times that advance by a constant step take thirty times the bytes."""
PAGE_BYTES = 1 << 23
"""A page is compressed by itself, so that large pages take fewer bytes. A row group has one page in most columns."""
SAMPLE_ROWS = 1 << 16
"""Number of rows on which the encodings of a file are compared."""
DICTIONARY, PLAIN, INTEGERS, LENGTHS, PREFIXES = (
    "DICTIONARY",
    "PLAIN",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
)
"""The encodings that Spark's vectorised reader, DuckDB, Polars and delta-rs read. `BYTE_STREAM_SPLIT` is not one."""
_EMPTY_STATISTICS_BYTES = 2

Encodings = Mapping[str, str]
"""Encoding by column. A column that is missing has a dictionary."""


def best_encodings(rows: pa.Table) -> dict[str, str]:
    """Return the encoding of each column that takes the fewest bytes; of equal ones, the first in `_candidates`.

    The rows decide and nothing else, so that the same rows always become the same bytes.
    """
    sample = rows.slice(max(0, (rows.num_rows - SAMPLE_ROWS) // 2), SAMPLE_ROWS)
    trials = [(field.name, one) for field in sample.schema for one in _candidates(field.type)]
    if not trials:
        return {}
    table = pa.table([sample[name] for name, _ in trials], names=[str(at) for at in range(len(trials))])
    encodings = {str(at): encoding for at, (_, encoding) in enumerate(trials)}
    sizes = widths_of(table, encodings)
    best: dict[str, tuple[int, str]] = {}
    for at, (name, encoding) in enumerate(trials):
        size = sizes[str(at)]
        if name not in best or size < best[name][0]:
            best[name] = size, encoding
    return {name: encoding for name, (_, encoding) in best.items()}


@contextmanager
def encoder(
    sink: Any,
    schema: pa.Schema,
    encodings: Encodings,
    has_row_groups: bool = False,
    footers: list[pq.FileMetaData] | None = None,
) -> Iterator[pq.ParquetWriter]:
    """Provide a writer of Parquet as every table is written.

    `has_row_groups`: the file may have more than one row group. Only then the footer states the smallest and largest
    value of each column by which row groups are skipped; the table's log states them for the whole file. They are
    written to a page index as well, because Arrow would otherwise repeat them in the page headers: columns take the
    same bytes in files of one and of several row groups, so that a compaction changes no plan.
    `footers`: where the writer appends the footer when it is closed.
    """
    shortened = ShortFooterSink(sink, has_row_groups)
    with pq.ParquetWriter(
        shortened,
        schema,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=[name for name in schema.names if encodings.get(name, DICTIONARY) == DICTIONARY],
        column_encoding={
            name: encodings[name] for name in schema.names if encodings.get(name, DICTIONARY) != DICTIONARY
        }
        or None,
        data_page_size=PAGE_BYTES,
        max_rows_per_page=ROWS_IN_A_GROUP,
        write_statistics=[field.name for field in schema if has_row_groups and skips_groups(field.type)],
        write_page_index=has_row_groups,
        # Parquet's own types say it all; Arrow's copy of the schema would cost every small batch a kilobyte
        store_schema=False,
        metadata_collector=footers,
    ) as writer:
        yield writer
        shortened.finish()
    shortened.close()


def widths_of(rows: pa.Table, encodings: Encodings | None = None) -> dict[str, int]:
    """Return the compressed bytes of each column, as a table's file of these rows would have them."""
    sink = io.BytesIO()
    with encoder(sink, rows.schema, best_encodings(rows) if encodings is None else encodings) as writer:
        writer.write_table(rows, row_group_size=ROWS_IN_A_GROUP)
    return chunk_bytes(pq.ParquetFile(sink).metadata)


def empty_bytes(schema: pa.Schema) -> int:
    """Return the bytes of a file of these columns that has no row."""
    sink = io.BytesIO()
    with encoder(sink, schema, {}):
        pass
    return len(sink.getvalue())


def chunk_bytes(metadata: pq.FileMetaData, group: int | None = None) -> dict[str, int]:
    """Return the compressed bytes of each column of a file (or of one of its row groups), by its footer."""
    found: dict[str, int] = {}
    for place in range(metadata.num_row_groups) if group is None else [group]:
        row_group = metadata.row_group(place)
        for index in range(metadata.num_columns):
            chunk = row_group.column(index)
            name = chunk.path_in_schema.split(".")[0]
            # without a page index, the page header has an empty struct of statistics
            header = _EMPTY_STATISTICS_BYTES if chunk.has_offset_index else 0
            found[name] = found.get(name, 0) + chunk.total_compressed_size + header
    return found


def _candidates(kind: pa.DataType) -> tuple[str, ...]:
    """Return the encodings to compare for a type; none where there is no choice."""
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return DICTIONARY, INTEGERS, PLAIN
    if pa.types.is_floating(kind):
        return DICTIONARY, PLAIN
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return DICTIONARY, LENGTHS, PREFIXES, PLAIN
    return ()


def skips_groups(kind: pa.DataType) -> bool:
    """Whether readers of Spillway skip row groups by a column of this type: numbers of rows and batches, and times.

    Not floats: Arrow ignores NaN, which Spark sorts after every number. Not text and bytes: Arrow writes whole values.
    """
    return pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)

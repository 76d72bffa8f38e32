"""Write columns as Parquet in the encoding that takes the fewest bytes, and measure what each column takes.

>>> rows = pa.table({"repeated": [1] * 4096, "counted": list(range(4096))})
>>> best_encodings(rows)
{'repeated': 'DELTA_BINARY_PACKED', 'counted': 'DELTA_BINARY_PACKED'}
>>> sum(widths_of(rows).values()) < 200
True

`make bench` (part `encoding`: real, generated and long streams) compares the constants with others. The figures below
are its output with pyarrow 26.0.1. Choosing encodings takes 0.8 of the processor time of writing for a million rows.
For a file of 20,000 rows, all of which are compared, it takes 4 to 7 times the processor time of writing.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spillway.footers import ShortFooterSink

ROWS_IN_A_GROUP = 1 << 19
"""Compared on 1,048,576 rows: row groups of 65,536 rows take 6 % more bytes, row groups of 4,096 rows 70 % more, one
row group of all rows 0.4 % fewer."""
COMPRESSION_LEVEL = 9
"""Of zstd. Level 6 takes 0 to 1.6 % more bytes for 0.7 to 0.8 of the processor time, level 12 takes 0 to 0.3 % fewer
for 1.5 to 2.6 times, level 19 takes 1 to 5 % fewer for 8 to 10 times. Level 3 takes 2 to 5 % more."""
PAGE_BYTES = 1 << 23
"""Each page is compressed by itself. Pages of 64 KiB take 1 to 3 % more bytes, pages above 1 MiB the same number.
Data page version 1 is written; version 2 takes 0 to 0.1 % more."""
SAMPLE_ROWS = 1 << 16
"""Number of rows on which the encodings and the orders of a file are compared."""
DICTIONARY_MARGIN = 1.3
"""If a dictionary takes at most this many times the bytes of the best encoding in the sample, it is compared on all
rows."""
MOST_BYTES_TAKEN = 1 << 30
"""Bytes of rows that change places at once."""
LEAST_SAVING = 0.03
"""Share of the bytes that another order of rows must save; readers pay for it by sorting."""
DICTIONARY, PLAIN, INTEGERS, LENGTHS, PREFIXES = (
    "DICTIONARY",
    "PLAIN",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
)
"""The encodings that Spark's vectorised reader, DuckDB, Polars and delta-rs read. `BYTE_STREAM_SPLIT` is not one."""
_EMPTY_STATISTICS_BYTES = 2

_KEYS = b"spillway.rows_by"

Encodings = Mapping[str, str]
"""Encoding by column. A column that is not named gets a dictionary."""


def best_encodings(rows: pa.Table) -> dict[str, str]:
    """Return the encoding of each column that takes the fewest bytes; of equal ones, the first in `_candidates`.

    The encodings are compared on `SAMPLE_ROWS` rows. More rows repeat more values, so that a dictionary takes
    relatively fewer bytes. If it takes at most `DICTIONARY_MARGIN` times the bytes of the best encoding in the sample,
    both are compared on all rows. The choice depends on the rows alone, so that the same rows always become the same
    bytes.
    """
    return _best(rows, _compared(_sample(rows)))


def best_layout(
    rows: pa.Table, keys: Sequence[str], order_stays: bool = False
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the keys by which to store rows, and the best encodings of the columns in that order.

    `keys` are returned if storing rows by key (see `by_key`) saves at least `LEAST_SAVING` of the bytes, `seq`
    included, or if `order_stays` is true: the rows are stored by key already. Otherwise `()` is returned: the order of
    arrival. On the evidence's streams, batches of 10,000 rows become up to 13 % smaller, or 26 % if measures are
    rounded. Batches of 1,000 rows become up to 5 % smaller. Rows without measures become larger on most streams.

    >>> key = [at % 100 for at in range(10_000)]
    >>> counter = [(one + 1) ** 3 % 997 + at // 100 * (one % 7) for at, one in enumerate(key)]
    >>> rows = pa.table({"seq": range(10_000), "key": key, "counter": counter})
    >>> best_layout(rows, ["key"])[0]
    ('key',)
    """
    sample = _sample(rows)
    ordered = by_key(sample, keys)
    if keys and order_stays:
        return tuple(keys), _best(by_key(rows, keys), _compared(ordered))
    arrival = _compared(sample)
    if ordered is not sample:
        found = _compared(ordered)
        before, after = (sum(min(sizes.values()) for sizes in one.values()) for one in (arrival, found))
        if after <= (1 - LEAST_SAVING) * before:
            return tuple(keys), _best(by_key(rows, keys), found)
    return (), _best(rows, arrival)


def by_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows grouped by key; the same table object if they are grouped already.

    Keys come in the order of their first row. Rows of one key keep their order. If the senders of a stream report in
    turn, `seq` then advances by equal steps within each key, and takes almost no bytes.

    >>> by_key(pa.table({"key": ["b", "a", "b"], "seq": [1, 2, 3]}), ["key"])["seq"].to_pylist()
    [1, 3, 2]
    """
    if rows.num_rows < 2:
        return rows
    codes = np.zeros(rows.num_rows, np.int64)
    for name in keys:
        values = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        one = np.asarray(values.indices, np.int64)
        codes = np.asarray(pa.array(codes * (one.max() + 1) + one).dictionary_encode().indices, np.int64)
    return rows if (codes[1:] >= codes[:-1]).all() else _take(rows, np.argsort(codes, kind="stable"))


def as_arrived(rows: pa.Table, arrival: str) -> pa.Table:
    """Return the rows in the order of the column `arrival`."""
    return _take(rows, pc.sort_indices(rows[arrival]).to_numpy())


def _take(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """Return the rows at these places.

    Arrow joins the chunks of a column before it takes rows of it, and refuses if they have more than 2 GiB of text.
    """
    if rows.nbytes <= MOST_BYTES_TAKEN:
        return rows.take(places)
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    wide = pa.schema([field.with_type(large.get(field.type, field.type)) for field in rows.schema])
    whole = rows.cast(wide).combine_chunks()
    lengths = [pc.binary_length(whole[field.name]) for field in wide if field.type in large.values()]
    sizes = np.full(rows.num_rows, 8 * rows.num_columns, np.int64)
    for one in lengths:
        sizes += np.asarray(pc.fill_null(one, 0), np.int64)
    pieces = np.cumsum(sizes[places]) // MOST_BYTES_TAKEN
    edges = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), rows.num_rows]
    return pa.concat_tables(
        [whole.take(places[low:high]).cast(rows.schema) for low, high in itertools.pairwise(edges)]
    )


def _sample(rows: pa.Table) -> pa.Table:
    return rows.slice(max(0, (rows.num_rows - SAMPLE_ROWS) // 2), SAMPLE_ROWS)


def _best(rows: pa.Table, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Return the best encoding of each column, by the sizes in a sample of the rows."""
    best = {name: min(found, key=found.__getitem__) for name, found in sizes.items()}
    if rows.num_rows > SAMPLE_ROWS:
        doubtful = {
            name: (DICTIONARY, best[name])
            for name, found in sizes.items()
            if best[name] != DICTIONARY and found[DICTIONARY] <= DICTIONARY_MARGIN * found[best[name]]
        }
        best |= {name: min(found, key=found.__getitem__) for name, found in _compared(rows, doubtful).items()}
    return best


def _compared(
    rows: pa.Table, candidates: Mapping[str, Sequence[str]] | None = None
) -> dict[str, dict[str, int]]:
    """Return the bytes of each column in each of its candidate encodings, by default all for its type."""
    if candidates is None:
        candidates = {field.name: _candidates(field.type) for field in rows.schema}
    trials = [(name, one) for name, some in candidates.items() for one in some]
    if not trials:
        return {}
    table = pa.table([rows[name] for name, _ in trials], names=[str(at) for at in range(len(trials))])
    sizes = widths_of(table, {str(at): encoding for at, (_, encoding) in enumerate(trials)})
    found: dict[str, dict[str, int]] = {}
    for at, (name, encoding) in enumerate(trials):
        found.setdefault(name, {})[encoding] = sizes[str(at)]
    return found


@contextmanager
def encoder(
    sink: Any,
    schema: pa.Schema,
    encodings: Encodings,
    has_row_groups: bool = False,
    footers: list[pq.FileMetaData] | None = None,
    keys: Sequence[str] = (),
    **other: Any,
) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet writer with the options of every table.

    `has_row_groups`: the file may have more than one row group. Only then the footer states the smallest and largest
    value of each column by which row groups are skipped; for the whole file the table's log states them. A page index
    holds them too, because Arrow would otherwise repeat them in the page headers. So a column takes the same bytes in
    a file of one row group and in a file of several, and a compaction changes no plan.
    `footers`: the list to which the writer appends the footer when it is closed.
    `keys`: the columns by which the rows of each row group are stored (`by_key`). The footer states them.
    `other`: options of Arrow's writer that replace the constants, for comparisons.
    """
    shortened, collected = ShortFooterSink(sink, has_row_groups), [] if footers is None else footers
    with _arrow_writer(
        shortened, schema, encodings, has_row_groups, metadata_collector=collected, **other
    ) as writer:
        yield writer
        if keys:
            writer.add_key_value_metadata({_KEYS: json.dumps(list(keys))})
        shortened.finish()
    shortened.close(collected[-1])


def _arrow_writer(
    sink: Any, schema: pa.Schema, encodings: Encodings, has_row_groups: bool = False, **other: Any
) -> pq.ParquetWriter:
    options: dict[str, Any] = {
        "compression_level": COMPRESSION_LEVEL,
        "data_page_size": PAGE_BYTES,
        "max_rows_per_page": ROWS_IN_A_GROUP,
    }
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=[name for name in schema.names if encodings.get(name, DICTIONARY) == DICTIONARY],
        column_encoding={
            name: encodings[name] for name in schema.names if encodings.get(name, DICTIONARY) != DICTIONARY
        }
        or None,
        write_statistics=[field.name for field in schema if has_row_groups and skips_groups(field.type)],
        write_page_index=has_row_groups,
        # Parquet's own types say it all; Arrow's copy of the schema would cost every small batch a kilobyte
        store_schema=False,
        **options | other,
    )


def stored_keys(metadata: pq.FileMetaData) -> tuple[str, ...]:
    """Return the keys by which the rows of each row group are stored; `()`: the footer states none (arrival order)."""
    stated = (metadata.metadata or {}).get(_KEYS)
    return () if stated is None else tuple(json.loads(stated))


def widths_of(rows: pa.Table, encodings: Encodings | None = None) -> dict[str, int]:
    """Return the compressed bytes of each column, as a table's file of these rows would have them."""
    chosen, footers = best_encodings(rows) if encodings is None else encodings, list[pq.FileMetaData]()
    with _arrow_writer(pa.MockOutputStream(), rows.schema, chosen, metadata_collector=footers) as writer:
        writer.write_table(rows, row_group_size=ROWS_IN_A_GROUP)
    return chunk_bytes(footers[0])


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
    """Return the encodings to compare for a type; none if there is no choice."""
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return DICTIONARY, INTEGERS, PLAIN
    if pa.types.is_floating(kind):
        return DICTIONARY, PLAIN
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return DICTIONARY, LENGTHS, PREFIXES, PLAIN
    return ()


def skips_groups(kind: pa.DataType) -> bool:
    """Return whether Spillway's readers skip row groups by a column of this type: row and batch numbers, and times.

    Not floats: Arrow ignores NaN, which Spark sorts after every number. Not text and bytes: Arrow writes whole values.
    """
    return pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)

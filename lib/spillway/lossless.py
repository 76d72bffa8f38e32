"""Measure the bytes of the same rows in files of lossless compressors, to compare a plan with them.

* `gzip`: a CSV file, gzip level 9;
* `xz`: a CSV file, xz preset 9 or 9e, the smaller of both;
* `parquet`: a Parquet file, zstd level 19, the smallest of all encodings for each column, one row group, no statistics,
  no copy of the Arrow schema.

Each is measured with the rows in the order of arrival and with the rows sorted by key and time; the smaller file
counts. A file counts whole, with header, footer and checksum. No file holds `seq`, so a sorted file loses the order of
arrival. This favours the compressors.

>>> rows = pa.table({"key": ["a", "b"] * 500, "value": [float(at % 7) for at in range(1000)]})
>>> sizes = lossless_sizes(rows, ["key"])
>>> list(sizes), max(sizes.values()) < len(csv_bytes(rows))
(['gzip', 'xz', 'parquet'], True)
"""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from spillway.parquet import DICTIONARY, INTEGERS, LENGTHS, PLAIN, PREFIXES, chunk_bytes

ZSTD_LEVEL = 19
SPLIT = "BYTE_STREAM_SPLIT"
"""An encoding that Spillway does not write, because Spark's vectorised reader refuses it. A rival may."""
_UNITS = ("s", "ms", "us", "ns")
_XZ_PRESETS = (9, 9 | lzma.PRESET_EXTREME)


def lossless_sizes(rows: pa.Table, keys: Sequence[str] = (), order: str | None = None) -> dict[str, int]:
    """Return the bytes of the rows as `gzip`, `xz` and `parquet`, each in the better of both orders."""
    orders = list(row_orders(rows, keys, order))
    texts = [csv_bytes(one) for one in orders]
    return {
        "gzip": min(gzip_bytes(text) for text in texts),
        "xz": min(xz_bytes(text) for text in texts),
        "parquet": min(parquet_bytes(one) for one in orders),
    }


def row_orders(rows: pa.Table, keys: Sequence[str], order: str | None = None) -> Iterator[pa.Table]:
    """Yield the rows as they arrived, and sorted by key and time; rows with equal key and time keep their order."""
    yield rows
    names = [
        name for name in dict.fromkeys([*keys, *([order] if order else [])]) if name in rows.column_names
    ]
    if keys and names:
        by = [(name, "ascending") for name in names] + [("", "ascending")]
        numbered = rows.append_column("", pa.array(range(rows.num_rows), pa.int64()))
        yield numbered.sort_by(by).drop_columns([""])


def csv_bytes(rows: pa.Table) -> bytes:
    """Return the rows as a CSV file with a header, from which they can be read back.

    Numbers are as short as they can be, times are in the coarsest unit that holds them, and text is quoted only if it
    has to be.
    """
    plain = pa.table([in_coarsest_unit(rows[name]) for name in rows.column_names], names=rows.column_names)
    if not any(_has_null_and_empty(column) for column in plain.columns):
        try:
            return _csv(plain, "none")
        except pa.ArrowInvalid:
            pass  # a text contains a comma, a quote or a line break
    return _csv(plain, "needed")


def _csv(rows: pa.Table, quoting: str) -> bytes:
    sink = io.BytesIO()
    pv.write_csv(rows, sink, pv.WriteOptions(quoting_style=quoting))
    return sink.getvalue()


def _has_null_and_empty(values: pa.ChunkedArray) -> bool:
    """Return whether a column has nulls and empty texts, which only quotes distinguish in CSV."""
    if not pa.types.is_string(values.type) or not values.null_count:
        return False
    return bool(pc.any(pc.equal(values, "")).as_py())


def gzip_bytes(text: bytes) -> int:
    """Return the size of the text as a gzip file of level 9."""
    return len(gzip.compress(text, 9, mtime=0))


def xz_bytes(text: bytes) -> int:
    """Return the size of the text as an xz file of preset 9 or 9e, the smaller of both."""
    return min(len(lzma.compress(text, preset=preset)) for preset in _XZ_PRESETS)


def parquet_bytes(rows: pa.Table) -> int:
    """Return the size of the rows as a Parquet file, each column in the encoding that takes the fewest bytes."""
    best: dict[str, str] = {}
    for name in rows.column_names:
        column = rows.select([name])
        sizes = {one: _column_bytes(column, one) for one in _encodings(column.schema.field(0).type)}
        best[name] = min(sizes, key=lambda one: sizes[one])
    return len(_parquet_of(rows, best))


def _column_bytes(column: pa.Table, encoding: str) -> int:
    file = _parquet_of(column, {column.column_names[0]: encoding})
    return sum(chunk_bytes(pq.ParquetFile(io.BytesIO(file)).metadata).values())


def _parquet_of(rows: pa.Table, encodings: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        row_group_size=max(1, rows.num_rows),
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=[name for name, one in encodings.items() if one == DICTIONARY],
        column_encoding={name: one for name, one in encodings.items() if one != DICTIONARY} or None,
        dictionary_pagesize_limit=1 << 30,
        data_page_size=1 << 30,
        max_rows_per_page=max(1, rows.num_rows),
        write_statistics=False,
        store_schema=False,
    )
    return sink.getvalue()


def _encodings(kind: pa.DataType) -> tuple[str, ...]:
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return DICTIONARY, INTEGERS, PLAIN, SPLIT
    if pa.types.is_floating(kind):
        return DICTIONARY, PLAIN, SPLIT
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return DICTIONARY, LENGTHS, PREFIXES, PLAIN
    return (PLAIN,)


def in_coarsest_unit(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times in the coarsest unit that holds them; everything else as it is."""
    if not pa.types.is_timestamp(values.type):
        return values
    for unit in _UNITS:
        if unit == values.type.unit:
            break
        coarse = pa.timestamp(unit, tz=values.type.tz)
        if pc.all(pc.equal(values.cast(coarse, safe=False).cast(values.type), values), min_count=0).as_py():
            return values.cast(coarse)
    return values

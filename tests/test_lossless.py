"""What lossless compressors make of rows, against files that this test writes and reads by itself."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway import lossless
from spillway.lossless import csv_bytes, lossless_sizes, parquet_bytes, row_orders

START = datetime(2026, 1, 1, tzinfo=UTC)


def polled(rows: int = 600) -> pa.Table:
    """Six routers that report in turn; sometimes a value is missing."""
    delays = np.random.default_rng(5).normal(80, 9, rows).round(1)
    return pa.table(
        {
            "router": [f"r{at % 6}" for at in range(rows)],
            "at": pa.array(
                [START + timedelta(minutes=at // 6) for at in range(rows)], pa.timestamp("us", tz="UTC")
            ),
            "delay": pa.array(
                [None if at % 50 == 0 else value for at, value in enumerate(delays)], pa.float64()
            ),
            "hops": pa.array(range(rows), pa.int64()),
        }
    )


def written_by_hand(rows: list[dict[str, Any]]) -> bytes:
    """The CSV file that Python's own module writes, names in quotes as pyarrow has them."""
    names = list(rows[0])
    sink = io.StringIO()
    sink.write(",".join(f'"{name}"' for name in names) + "\n")
    writer = csv.writer(sink, lineterminator="\n")
    for row in rows:
        delay = "" if row["delay"] is None else f"{row['delay']:g}"
        writer.writerow([row["router"], f"{row['at']:%Y-%m-%d %H:%M:%S}Z", delay, row["hops"]])
    return sink.getvalue().encode()


def test_gzip_and_xz_compress_a_standard_csv_file() -> None:
    rows = polled()
    arrived = rows.to_pylist()
    by_key = sorted(arrived, key=lambda row: (row["router"], row["at"]))
    texts = [written_by_hand(arrived), written_by_hand(by_key)]
    sizes = lossless_sizes(rows, ["router"], "at")
    assert csv_bytes(rows) == texts[0]
    assert sizes["gzip"] == min(len(gzip.compress(text, 9, mtime=0)) for text in texts)
    assert sizes["xz"] == min(
        len(lzma.compress(text, preset=preset)) for text in texts for preset in (9, 9 | lzma.PRESET_EXTREME)
    )


def test_parquet_is_no_larger_than_with_any_one_encoding() -> None:
    rows = polled()
    size = parquet_bytes(rows)
    for encodings in (
        {},
        {"at": "DELTA_BINARY_PACKED", "hops": "DELTA_BINARY_PACKED"},
        {"delay": "BYTE_STREAM_SPLIT"},
        dict.fromkeys(rows.column_names, "PLAIN"),
    ):
        sink = io.BytesIO()
        pq.write_table(
            rows,
            sink,
            compression="zstd",
            compression_level=19,
            use_dictionary=[name for name in rows.column_names if name not in encodings],
            column_encoding=encodings or None,
            write_statistics=False,
            store_schema=False,
        )
        assert size <= len(sink.getvalue())


def test_parquet_file_reads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    make = lossless._parquet_of

    def kept(rows: pa.Table, encodings: dict[str, str]) -> bytes:
        written.append(make(rows, encodings))
        return written[-1]

    monkeypatch.setattr(lossless, "_parquet_of", kept)
    rows = polled()
    assert parquet_bytes(rows) == len(written[-1])
    assert pq.read_table(io.BytesIO(written[-1])).equals(rows)


def test_rows_alike_in_key_and_time_stay_in_the_order_of_arrival() -> None:
    rows = pa.table({"key": ["b", "a", "b", "a"], "at": [1, 1, 1, 0], "place": [0, 1, 2, 3]})
    arrived, sorted_rows = row_orders(rows, ["key"], "at")
    assert arrived["place"].to_pylist() == [0, 1, 2, 3]
    assert sorted_rows["place"].to_pylist() == [3, 1, 0, 2]
    assert list(row_orders(rows, [])) == [rows]


def test_csv_quotes_only_where_needed() -> None:
    assert csv_bytes(pa.table({"a": ["x", None]})) == b'"a"\nx\n\n'
    assert csv_bytes(pa.table({"a": ["x", ""]})) == b'"a"\nx\n\n'
    assert csv_bytes(pa.table({"a": ["", None]})) == b'"a"\n""\n\n'
    assert csv_bytes(pa.table({"a": ["x,y"]})) == b'"a"\n"x,y"\n'


def test_csv_has_times_in_the_coarsest_unit_that_holds_them() -> None:
    whole = [datetime(1969, 12, 31, 23, 59, 59), None]
    half = [datetime(1969, 12, 31, 23, 59, 59, 500_000)]
    assert csv_bytes(pa.table({"t": pa.array(whole, pa.timestamp("us"))})) == b'"t"\n1969-12-31 23:59:59\n\n'
    assert csv_bytes(pa.table({"t": pa.array(half, pa.timestamp("us"))})) == b'"t"\n1969-12-31 23:59:59.500\n'


@pytest.mark.parametrize("rows", [0, 1])
def test_batches_without_rows_have_sizes(rows: int) -> None:
    table = polled(6).append_column("day", pa.array([date(2026, 1, 1)] * 6)).slice(0, rows)
    sizes = lossless_sizes(table, ["router"], "at")
    assert all(size > 0 for size in sizes.values())

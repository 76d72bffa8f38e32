"""Compare the bytes of rows stored by key with those in the order of arrival, for a day's file of each stream.

The columns are those of `transmitted`, `seq` and `batch` included, written by the product. Measures are sent exactly,
rounded to a grid of `ERROR_PCT`, or shed (then only the other columns are sent). If a figure is negative, rows by key
take more bytes. The product stores rows by key only if that saves at least 3 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evidence.attributes.codecs.compare import samples
from evidence.attributes.codecs.samples import Sample
from evidence.attributes.lab import Lab
from evidence.book import Book, Shown
from spillway.levers.attributes.synopsis.rounding import levels_per_octave
from spillway.parquet import best_layout, compressed_widths, group_by_key

ERROR_PCT = 4.5
BATCH_ROWS = 1_000, 10_000


def row_orders(book: Book, labs: Mapping[str, Lab], directory: Path) -> dict[str, float]:
    """Return `attributes.key_order_saves_pct.<stream>`, and `attributes.bytes_per_row.<class>.<stream>`."""
    return compare_orders(book, samples(labs, directory))


def compare_orders(book: Book, every: Iterable[Sample]) -> dict[str, float]:
    """Compare the orders of some samples."""
    figures: dict[str, float] = {}
    saved: list[tuple[Shown, ...]] = []
    widths: list[tuple[Shown, ...]] = []
    for sample in every:
        rows = transmitted_columns(sample)
        name = sample.name
        sizes = [size for size in BATCH_ROWS if size < rows.num_rows]
        parts = [rows.slice((rows.num_rows - size) // 2, size) for size in sizes] + [rows]
        for part in parts:
            forms = (part, round_measures(part, sample), shed_measures(part, sample))
            row = [saving_pct(one, sample.key) for one in forms]
            saved.append((name, part.num_rows, *row))
        figures[f"attributes.key_order_saves_pct.{name}"] = float(saved[-1][2] or 0.0)
        classes = bytes_per_row(rows, sample)
        figures |= {f"attributes.bytes_per_row.{kind}.{name}": value for kind, value in classes.items()}
        widths.append((name, rows.num_rows, *classes.values()))
    book.table(
        "Bytes saved by rows in the order of their key, in %",
        ("stream", "rows", "measures exact", "measures rounded", "measures shed"),
        saved,
        ["Negative: rows by key take more bytes. The product stores rows by key if that saves at least 3 %."],
    )
    book.table(
        "Bytes per row by class of column, exact, in the order that is written",
        ("stream", "rows", "seq", "time", "key", "measures", "other"),
        widths,
    )
    return figures


def transmitted_columns(sample: Sample) -> pa.Table:
    """Return the columns of `transmitted`: `seq` and `batch`, then the stream's own, times in microseconds."""
    rows, count = sample.rows, sample.rows.num_rows
    columns = {"seq": pa.array(np.arange(count)), "batch": pa.array(np.ones(count, np.int64))}
    for name in rows.column_names:
        values = rows[name]
        columns[name] = values.cast(pa.timestamp("us")) if pa.types.is_timestamp(values.type) else values
    return pa.table(columns)


def saving_pct(rows: pa.Table, key: Sequence[str]) -> float:
    """Return the share of the bytes of all columns that storing rows by key saves, in %."""
    arrived = sum(compressed_widths(rows).values())
    return 100.0 * (1.0 - sum(compressed_widths(group_by_key(rows, key)).values()) / arrived)


def bytes_per_row(rows: pa.Table, sample: Sample) -> dict[str, float]:
    """Return the bytes per row of `seq`, time, key, measures and other columns, in the order that is written."""
    keys, encodings = best_layout(rows, sample.key)
    found = dict.fromkeys(("seq", "time", "key", "measures", "other"), 0.0)
    for name, size in compressed_widths(group_by_key(rows, keys), encodings).items():
        if name == "seq":
            kind = "seq"
        elif name == sample.order:
            kind = "time"
        elif name in sample.key:
            kind = "key"
        else:
            kind = "measures" if name in sample.measures else "other"
        found[kind] += size / rows.num_rows
    return found


def round_measures(rows: pa.Table, sample: Sample) -> pa.Table:
    """Return the rows with each measure at the nearest level of a grid within `ERROR_PCT`."""
    levels = 2.0 * levels_per_octave(ERROR_PCT)
    for name in sample.measures:
        column = rows[name].combine_chunks()
        values = np.nan_to_num(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False))
        mantissa, exponent = np.frexp(values)
        on_grid = np.ldexp(np.rint(mantissa * levels) / levels, exponent)
        mask = np.asarray(pc.is_null(column, nan_is_null=True))
        whole = np.rint(on_grid) if pa.types.is_integer(column.type) else on_grid
        made = pa.array(whole, mask=mask).cast(column.type)
        rows = rows.set_column(rows.column_names.index(name), name, made)
    return rows


def shed_measures(rows: pa.Table, sample: Sample) -> pa.Table:
    """Return the rows with all measures null."""
    for name in sample.measures:
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, pa.nulls(rows.num_rows, rows[name].type))
    return rows

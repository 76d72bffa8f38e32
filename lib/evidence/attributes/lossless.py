"""Compare the product with lossless compressors on the newest batch of every stream, without loss and within the bound.

The product's own steps land, train and send each stream twice. The channel has room for everything and is paid by the
byte (`minimize: bytes`), and the lever states `synopsis: send`, so that nothing stays at the source:

* exact: no value at the destination may differ (`error_pct: 0`); a column is kept or sent as an exact synopsis;
* bound: values stay within the bounds that the contract states or that training finds.

Our bytes are those of the ledger: whole files, `seq`, `batch`, `scheme`, footers, log entries, and the metadata that a
destination elsewhere needs to recover the batch. The *fixed bytes* are those of no column and no synopsis. Models are
sent once per training, with the first batch, and are left out; `attributes.exact_model_bytes.<stream>` has their bytes,
and one geometric mean counts all of them for the one batch. They were trained on rows of earlier batches.

Compressors get the same rows without `seq`, in the order of arrival or by key and time, whichever is smaller
(`spillway.lossless`). `pcodec` compresses each numeric column, times and dates included, separately at its highest
level. Doubles with few decimals are compressed as they are and as whole numbers; the smaller one counts. Its null
bitmap is compressed with zstd. All other columns are one Parquet file.

>>> rows = pa.table({"key": ["a", "b"] * 500, "value": [float(at % 7) for at in range(1000)]})
>>> list(rival_sizes(rows, ["key"], None))
['gzip', 'xz', 'parquet', 'pcodec']
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from demo.data import STREAMS
from evidence.attributes.at_capacity import ledger_bytes
from evidence.attributes.codecs.compressors import pcodec_bytes, zstd_bytes
from evidence.attributes.generated import generate_stream, sources
from evidence.attributes.lake import Lake
from evidence.attributes.real_streams import TRIED_REAL, real_stream
from evidence.attributes.variants import with_settings
from evidence.book import Book
from spillway.batch import Batch
from spillway.contracts import StreamContract, load_contracts, read_channel
from spillway.levers.attributes.option import WAYS
from spillway.levers.attributes.packing.whole_numbers import decimals_of
from spillway.levers.attributes.policy import own_settings, with_fewest_bytes
from spillway.levers.protocol import OVERHEAD
from spillway.lossless import csv_bytes, in_coarsest_unit, lossless_sizes, parquet_bytes, row_orders
from spillway.settings import Settings
from spillway.store.files import column_bytes

RIVALS = ("xz", "parquet", "pcodec")
"""The smallest of these counts as the best rival; gzip is shown for reference only."""
PLENTY = "1000000 kbps"
REGULAR_STEPS, REGULAR_PCT = 2, 99.0
"""A stream arrives in regular order if its `REGULAR_STEPS` most frequent time steps are this share of all steps."""
LEVER = "attributes"
Landed = tuple[StreamContract, Mapping[str, bytes]]
"""A contract, and the content of the files that land."""


@dataclass(frozen=True)
class SentBytes:
    """The bytes of one batch at the destination."""

    total_bytes: int
    column_bytes: Mapping[str, int]
    payload_bytes: Mapping[str, int]
    """Bytes of the synopses that were sent, by attribute."""
    model_bytes: int = 0
    """Bytes of the models, which an earlier batch brought; they are not in `total_bytes`."""

    @property
    def fixed_bytes(self) -> int:
        """Return the bytes that belong to no column and no synopsis."""
        return self.total_bytes - sum(self.column_bytes.values()) - sum(self.payload_bytes.values())

    def of(self, name: str) -> int:
        """Return the bytes that are sent of a column, with its synopsis."""
        return self.column_bytes.get(name, 0) + self.payload_bytes.get(name, 0)


@dataclass(frozen=True)
class ComparedStream:
    """The newest batch of a stream: its bytes by the product and by its rivals."""

    stream: str
    rows: pa.Table
    keys: tuple[str, ...]
    sizes: Mapping[str, int]
    exact: SentBytes
    bound: SentBytes
    differing_values: int
    """Number of values that the destination does not recover exactly although nothing may be lost."""
    order_columns: tuple[str, ...]

    @property
    def best(self) -> str:
        return min(RIVALS, key=lambda name: self.sizes[name])

    @property
    def best_bytes(self) -> int:
        return self.sizes[self.best]

    @property
    def bytes_by_contestant(self) -> dict[str, int]:
        """Return the bytes by contestant, with the number of rows and the size as plain CSV."""
        return {
            "rows": self.rows.num_rows,
            "csv": len(csv_bytes(self.rows)),
            **self.sizes,
            "exact": self.exact.total_bytes,
            "bound": self.bound.total_bytes,
        }

    @property
    def is_regular(self) -> bool:
        """Return whether the times advance by only a few different steps."""
        return all(is_regular(self.rows[name]) for name in self.order_columns)

    @property
    def order_bytes_per_row(self) -> float:
        """Return the bytes per row of `seq` and the time together."""
        return sum(map(self.exact.of, ("seq", *self.order_columns))) / self.rows.num_rows


def lossless(book: Book, settings: Settings, directory: Path) -> dict[str, float]:
    """Write the tables; return `attributes.exact_bytes_over_best_lossless.<stream>` and related figures."""
    book.section(
        "Lossless compressors",
        "The newest batch of every stream as files of lossless compressors, next to the bytes that the product sends "
        "without loss and within the bound. The rivals: CSV with gzip -9 and with xz -9; Parquet with zstd-19 and the "
        "best encoding of each column; pcodec for each numeric column with Parquet for the other columns.",
    )
    return compare_figures(book, [compare(name, *one) for name, one in every_stream(settings, directory)])


def every_stream(settings: Settings, directory: Path) -> Iterator[tuple[str, Landed]]:
    """Yield name, contract and landing files of each stream: those of the demo, generated ones and real ones."""
    contracts = load_contracts(settings.schemas)
    for name, make in STREAMS.items():
        if LEVER in contracts.streams[name].lever_names:
            contract = contracts.streams[name]
            levers = tuple(one for one in contract.levers if one.lever == LEVER)
            yield name, (replace(contract, levers=levers), make())
    for source in sources(directory):
        made = generate_stream(source)
        yield f"generated.{made.contract.stream}", (made.contract, made.files)
    for name in TRIED_REAL:
        made = real_stream(name)
        yield name, (made.contract, made.files)


def compare(name: str, contract: StreamContract, files: Mapping[str, bytes]) -> ComparedStream:
    """Send a stream without loss and within its bound; measure its newest batch, and the rivals on the same rows."""
    crossed: dict[str, SentBytes] = {}
    rows, differing = pa.table({}), 0
    for bound in ("exact", "bound"):
        stated = with_fewest_bytes(with_every_treatment(contract), exact=bound == "exact")
        stream = stated.stream
        lake = Lake.land(f"lossless-{stream}", {stream: stated}, {stream: files})
        lake = replace(lake, settings=replace(lake.settings, destination=f"memory://lossless-there-{stream}"))
        terms = {"capacity": PLENTY, "minimize": "bytes"}
        lake = lake.with_channels({stated.channel: read_channel(stated.channel, terms)})
        lake = lake.with_contract(trained_before_newest(stated, lake.batches(stream)))
        lake.train()
        lake.send()
        batch = next(one for one in reversed(lake.batches(stream)) if one.rows)
        crossed[bound] = sent_bytes_of(lake, stream, batch)
        if bound == "exact":
            rows = lake.rows("raw", stream, batch)
            lake.recover(stream)
            back = lake.rows("recovered", stream, batch)
            differing = sum(differing_values(rows[one], back[one]) for one in contract.names)
        lake.forget()
    times = tuple(one.name for one in contract.attributes if one.name == contract.order)
    sizes = rival_sizes(rows.select(contract.names), contract.keys, contract.order)
    return ComparedStream(
        name, rows, contract.keys, sizes, crossed["exact"], crossed["bound"], differing, times
    )


def with_every_treatment(contract: StreamContract) -> StreamContract:
    """Return the contract with every treatment allowed."""
    return with_settings(contract, replace(own_settings(contract), treatments=WAYS))


def trained_before_newest(contract: StreamContract, batches: Sequence[Batch]) -> StreamContract:
    """Return the contract with training on rows of batches before the newest one, and on none of the newest."""
    settings = own_settings(contract)
    *earlier, _ = [batch.rows for batch in batches if batch.rows]
    tuples = min(settings.training.tuples, sum(earlier))
    return with_settings(contract, replace(settings, training=replace(settings.training, tuples=tuples)))


def sent_bytes_of(lake: Lake, stream: str, batch: Batch) -> SentBytes:
    """Return the bytes of one batch at the destination, in total by the ledger, and by column."""
    where: dict[str, Any] = {"batch_date": batch.batch_date, "batch": batch.batch}
    columns = [*OVERHEAD, *lake.contracts.streams[stream].names]
    files = lake.tables.at("transmitted", stream).files(**where)
    payloads: Counter[str] = Counter()
    for row in (
        lake.tables.at("sent_synopsis").rows(["attribute", "payload"], stream=stream, **where).to_pylist()
    ):
        payloads[row["attribute"]] += len(row["payload"])
    told = {
        row["batch"]: len(row["payload"])
        for row in lake.tables.at("destination_metadata")
        .rows(["batch", "payload"], stream=stream)
        .to_pylist()
    }
    # each batch repeats its own metadata; the largest row has the models as well
    models = max(told.values(), default=0) - told.get(batch.batch, 0)
    return SentBytes(ledger_bytes(lake, stream)[batch.batch], column_bytes(files, columns), payloads, models)


def differing_values(truth: pa.ChunkedArray, found: pa.ChunkedArray) -> int:
    """Return the number of values that are not equal; two nulls or two NaN are.

    >>> differing_values(pa.chunked_array([[1.0, None, math.nan]]), pa.chunked_array([[1.5, None, math.nan]]))
    1
    """
    if truth.type != found.type or len(truth) != len(found):
        return len(truth)
    one, other = truth.combine_chunks(), found.combine_chunks()
    same = pc.or_(pc.equal(one, other).fill_null(False), pc.and_(one.is_null(), other.is_null()))
    if pa.types.is_floating(one.type):
        both_nan = pc.and_(pc.is_nan(one).fill_null(False), pc.is_nan(other).fill_null(False))
        same = pc.or_(same, both_nan)
    return len(truth) - int(pc.sum(same.cast(pa.int64())).as_py() or 0)


def rival_sizes(rows: pa.Table, keys: Sequence[str], order: str | None) -> dict[str, int]:
    """Return the bytes of the rows by each compressor, in the better of both orders."""
    orders = row_orders(rows, keys, order)
    return {**lossless_sizes(rows, keys, order), "pcodec": min(pcodec_file_bytes(one) for one in orders)}


def pcodec_file_bytes(rows: pa.Table) -> int:
    """Return the bytes of the numeric columns by pcodec and of the others as one Parquet file."""
    numeric = [name for name in rows.column_names if _is_number(rows.schema.field(name).type)]
    others = rows.drop_columns(numeric)
    sizes = [pcodec_column_bytes(rows[name]) for name in numeric]
    return sum(sizes) + (parquet_bytes(others) if others.num_columns else 0)


def pcodec_column_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes of a column by pcodec, and of its null bitmap.

    A column of doubles with few decimals is also tried as whole numbers, which pcodec does not always find by itself.

    >>> cents = np.random.default_rng(1).integers(0, 1000, 5_000)
    >>> pcodec_column_bytes(pa.chunked_array([cents / 100])) <= pcodec_bytes(cents)
    True
    """
    size = 0
    if column.null_count:
        size = len(zstd_bytes(np.packbits(np.asarray(column.is_null())).tobytes()))
    known = column.drop_null()
    if pa.types.is_timestamp(known.type):
        known = in_coarsest_unit(known).cast(pa.int64())
    elif pa.types.is_date32(known.type):
        known = known.cast(pa.int32())
    values = known.to_numpy()
    sizes = [pcodec_bytes(values)]
    if pa.types.is_floating(known.type) and len(values) and np.isfinite(values).all():
        decimals = decimals_of(values)
        if decimals is not None:
            sizes.append(pcodec_bytes(np.rint(values * 10.0**decimals).astype(np.int64)))
    return size + min(sizes)


def _is_number(kind: pa.DataType) -> bool:
    types = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_date32)
    return any(is_one(kind) for is_one in types)


def is_regular(times: pa.ChunkedArray) -> bool:
    """Return whether a few different steps from one time to the next are almost all steps.

    >>> is_regular(pa.chunked_array([[0, 0, 60, 60, 120, 120]])), is_regular(pa.chunked_array([[0, 1, 3, 9, 27]]))
    (True, False)
    """
    known = times.drop_null()
    width = pa.int32() if pa.types.is_date32(known.type) else pa.int64()
    steps = np.diff(known.cast(width).to_numpy()) if len(known) > 1 else np.zeros(1)
    _, counts = np.unique(steps, return_counts=True)
    often = np.sort(counts)[::-1][:REGULAR_STEPS].sum()
    return bool(100.0 * often >= REGULAR_PCT * len(steps))


def compare_figures(book: Book, every: Sequence[ComparedStream]) -> dict[str, float]:
    """Write the tables of some streams; return their figures."""
    figures: dict[str, float] = {}
    for one in every:
        figures[f"attributes.exact_bytes_over_best_lossless.{one.stream}"] = (
            one.exact.total_bytes / one.best_bytes
        )
        figures[f"attributes.bound_bytes_over_best_lossless.{one.stream}"] = (
            one.bound.total_bytes / one.best_bytes
        )
        figures[f"attributes.exact_fixed_bytes.{one.stream}"] = float(one.exact.fixed_bytes)
        figures[f"attributes.exact_model_bytes.{one.stream}"] = float(one.exact.model_bytes)
        figures |= {
            f"attributes.bytes.{one.stream}.{name}": float(size)
            for name, size in one.bytes_by_contestant.items()
        }
        place = "order_bytes_per_row" if one.is_regular else "irregular_order_bytes_per_row"
        figures[f"attributes.{place}.{one.stream}"] = one.order_bytes_per_row
    over = {one.stream: (one.exact.total_bytes - one.exact.fixed_bytes) / one.best_bytes for one in every}
    figures |= {
        "attributes.exact_differing_values": float(sum(one.differing_values for one in every)),
        "attributes.exact_fixed_bytes_mean": sum(one.exact.fixed_bytes for one in every) / max(1, len(every)),
        "attributes.exact_bytes_over_best_lossless_geometric_mean": geometric_mean(
            [one.exact.total_bytes / one.best_bytes for one in every]
        ),
        "attributes.exact_bytes_with_models_over_best_lossless_geometric_mean": geometric_mean(
            [(one.exact.total_bytes + one.exact.model_bytes) / one.best_bytes for one in every]
        ),
        "attributes.exact_bytes_without_fixed_over_best_lossless_geometric_mean": geometric_mean(
            [*over.values()]
        ),
        "attributes.exact_bytes_without_fixed_over_best_lossless_largest": max(over.values(), default=0.0),
    }
    in_order = [one.order_bytes_per_row for one in every if one.is_regular]
    figures["attributes.order_bytes_per_row_largest"] = max(in_order, default=0.0)
    book.table(
        "Bytes of the newest batch",
        ("stream", "rows", "gzip -9", *RIVALS, "ours, exact", "of it fixed", "over the best", "without fixed",
         "ours, at the bound", "over the best", "seq and time, bytes a row"),
        [
            (
                one.stream, one.rows.num_rows, one.sizes["gzip"], *(one.sizes[name] for name in RIVALS),
                one.exact.total_bytes, one.exact.fixed_bytes, one.exact.total_bytes / one.best_bytes,
                over[one.stream], one.bound.total_bytes, one.bound.total_bytes / one.best_bytes,
                f"{one.order_bytes_per_row:.3f}{'' if one.is_regular else ' (irregular)'}",
            )
            for one in every
        ],
        ["The best is the smallest of xz, Parquet and pcodec, which hold no seq and may sort the rows. Fixed bytes: "
         "footers, log entries, schemes and destination metadata."],
    )  # fmt: skip
    book.table(
        "Exact bytes by column",
        ("stream", "column", "type", "ours", "treatment", "pcodec or Parquet", "over it"),
        [row for one in every for row in _by_column(one)],
        ["A rival's column: pcodec or Parquet, in the order of arrival or by key, whichever is smaller, without its "
         "share of a file's footer."],
    )  # fmt: skip
    return figures


def geometric_mean(ratios: Sequence[float]) -> float:
    """
    >>> round(geometric_mean([0.5, 2.0]), 9)
    1.0
    """
    return math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))


def _by_column(one: ComparedStream) -> Iterator[tuple[Any, ...]]:
    orders = list(row_orders(one.rows, one.keys, one.order_columns[0] if one.order_columns else None))
    for name in one.rows.column_names:
        if name in ("batch", "batch_date") or (name not in one.exact.column_bytes and not one.exact.of(name)):
            continue
        kind = one.rows.schema.field(name).type
        sizes = [min(_parquet_column(rows, name) for rows in orders)]
        if _is_number(kind):
            sizes += [pcodec_column_bytes(rows[name]) for rows in orders]
        treatment = "synopsis sent" if one.exact.payload_bytes.get(name) else "kept"
        ours, theirs = one.exact.of(name), min(sizes)
        yield one.stream, name, str(kind), ours, treatment, theirs, ours / max(1, theirs)


def _parquet_column(rows: pa.Table, name: str) -> int:
    """Return the bytes of a column as a Parquet file, without the bytes of a file that has no rows."""
    column = rows.select([name])
    return parquet_bytes(column) - parquet_bytes(column.slice(0, 0))

"""Sketches in Spark: keys hashed natively, partial sketches by Arrow kernels, one row a batch and sketch.

`partial_sketches` ships one 64-bit key a row and sketch to the kernel and gets one small payload a partition back;
`merged_sketches` adds them up; both are lazy. `build` runs them and returns rows of the `sketches` table, in which the
number of partitions shows nowhere: counters are sums, and heavy keys are found by a second pass with the finished
table, because which light keys look heavy in a part of the data depends on the parts.

`suspects` passes a batch through a stable Bloom filter in stream order, shard by shard. A filter may be wrong, so it
only names rows; `confirmed` says which of them truly came before.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spillway.sketches import format as binary
from spillway.sketches import sql
from spillway.sketches.answers import Keys
from spillway.sketches.count_min import CountMin
from spillway.sketches.dyadic import Dyadic
from spillway.sketches.hashing import key_header
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount
from spillway.sketches.query import merged
from spillway.sketches.specification import Sketch, SketchSpec, read_sketch
from spillway.sketches.stable_bloom import StableBloom

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTIAL = "spec int, batch bigint, batch_date date, rows bigint, payload binary"
_SPARK_TYPES = {"integer": "bigint"}
_GATHERED_MAX = 1000
_PARTIAL_ARROW = pa.schema(
    [
        ("spec", pa.int32()),
        ("batch", pa.int64()),
        ("batch_date", pa.date32()),
        ("rows", pa.int64()),
        ("payload", pa.binary()),
    ]
)


def _column(name: str, kind: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col(f"`{name}`").cast(_SPARK_TYPES.get(kind, kind))


def key_column(attributes: Sequence[str], types: Sequence[str], seed: int) -> Column:
    """The 64-bit key of a row, equal to `hashing.fingerprint`: type, null and seed are part of what is hashed."""
    from pyspark.sql import functions as sf

    values = [_column(name, kind) for name, kind in zip(attributes, types, strict=True)]
    flags = [
        sf.when(value.isNull(), sf.lit(1 << place)).otherwise(sf.lit(0)).cast("bigint")
        for place, value in enumerate(values)
    ]
    nulls = reduce(lambda one, other: one.bitwiseOR(other), flags)
    return sf.xxhash64(sf.lit(key_header(types, seed)).cast("bigint"), nulls, *values)


def _order_column(name: str, kind: str) -> Column:
    from pyspark.sql import functions as sf

    value = _column(name, kind)
    if kind == "timestamp":
        value = sf.unix_micros(value.cast("timestamp"))
    elif kind == "date":
        value = sf.unix_date(value)
    elif kind == "boolean":
        value = value.cast("int")
    return value.cast("double")


def _inputs(specs: Sequence[SketchSpec]) -> list[Column]:
    """Only what the kernels need: a key, an order value, or a key for each attribute."""
    columns = []
    for place, spec in enumerate(specs):
        if spec.kind == "count_min":
            columns.append(key_column(spec.attributes, spec.types, spec.seed).alias(f"k{place}"))
        elif spec.kind == "quantiles":
            columns.append(_order_column(spec.attributes[0], spec.types[0]).alias(f"k{place}"))
        elif spec.kind == "pair_count":
            columns += [
                key_column([name], [kind], spec.seed).alias(f"k{place}_{at}")
                for at, (name, kind) in enumerate(zip(spec.attributes, spec.types, strict=True))
            ]
    return columns


def _keys(batch: pa.RecordBatch, name: str) -> Keys:
    return batch.column(name).to_numpy(zero_copy_only=False).view(np.uint64)


def _feed(sketch: Sketch, spec: SketchSpec, place: int, batch: pa.RecordBatch) -> None:
    if isinstance(sketch, CountMin):
        sketch.update(_keys(batch, f"k{place}"))
    elif isinstance(sketch, Dyadic):
        # Arrow gives nulls as NaN, which have no order either
        sketch.update(batch.column(f"k{place}").to_numpy(zero_copy_only=False))
    elif isinstance(sketch, PairCount):
        columns = [_keys(batch, f"k{place}_{at}") for at in range(len(spec.attributes))]
        sketch.update(np.column_stack(columns), batch.column("seq").to_numpy(zero_copy_only=False))


Batch = tuple[int, datetime.date]


def _batch_columns(batch: Batch | None) -> list[str]:
    return [] if batch else ["batch", "batch_date"]


def _by_batch(
    batches: Iterator[pa.RecordBatch], only: Batch | None
) -> Iterator[tuple[int, datetime.date, pa.RecordBatch]]:
    """Record batches cut where the stream's batch changes, unless all rows are of one, which need not be shipped."""
    for record in batches:
        if only is not None:
            yield *only, record
            continue
        numbers = record.column("batch").to_numpy(zero_copy_only=False)
        if numbers.size == 0:
            continue
        for number in numbers[:1] if (numbers == numbers[0]).all() else np.unique(numbers):
            mine = numbers == number
            part = record if mine.all() else record.filter(pa.array(mine))
            yield int(number), part.column("batch_date")[0].as_py(), part


def partial_sketches(frame: DataFrame, specs: Sequence[SketchSpec], batch: Batch | None = None) -> DataFrame:
    """One payload a partition, batch and sketch. `frame` has the attributes, seq (for pair_count), and batch and
    batch_date unless all its rows are of the stated `batch`: every column shipped costs.
    """
    specs = tuple(specs)
    ordinals = ["seq"] if any(spec.kind == "pair_count" for spec in specs) else []

    def accumulate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[tuple[int, int, datetime.date], tuple[Sketch, int]] = {}
        for number, date, part in _by_batch(batches, batch):
            for place, spec in enumerate(specs):
                sketch, rows = held.get((place, number, date)) or (spec.counting(), 0)
                _feed(sketch, spec, place, part)
                held[(place, number, date)] = (sketch, rows + part.num_rows)
        for (place, number, date), (sketch, rows) in held.items():
            yield _partial([(place, number, date, rows, sketch.to_bytes())])

    return frame.select(*ordinals, *_batch_columns(batch), *_inputs(specs)).mapInArrow(accumulate, PARTIAL)


def _partial(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    named = [dict(zip(_PARTIAL_ARROW.names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(named, schema=_PARTIAL_ARROW)


def merged_sketches(partials: DataFrame) -> DataFrame:
    """One payload a batch and sketch."""

    def add_up(table: pa.Table) -> pa.Table:
        sketches = [read_sketch(payload.as_py()) for payload in table.column("payload")]
        first = {name: table.column(name)[0].as_py() for name in ("spec", "batch", "batch_date")}
        rows = sum(table.column("rows").to_pylist())
        return pa.Table.from_batches([_partial([(*first.values(), rows, merged(sketches).to_bytes())])])

    return partials.groupBy("spec", "batch", "batch_date").applyInArrow(add_up, PARTIAL)


def heavy_keys(
    frame: DataFrame,
    specs: Sequence[SketchSpec],
    tables: Mapping[tuple[int, int], bytes],
    batch: Batch | None = None,
) -> DataFrame:
    """The keys whose counters' minimum reaches the share, with their values as JSON, for each (spec, batch)."""
    from pyspark.sql import functions as sf

    specs = tuple(specs)
    wanted = sorted({place for place, _ in tables})
    names = list(dict.fromkeys(name for place in wanted for name in specs[place].attributes))
    keys = [
        key_column(specs[place].attributes, specs[place].types, specs[place].seed).alias(f"k{place}")
        for place in wanted
    ]

    def screen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened = {at: CountMin.from_bytes(payload) for at, payload in tables.items()}
        seen: set[tuple[int, int, int]] = set()
        for number, _, part in _by_batch(batches, batch):
            found: list[tuple[int, int, int, str]] = []
            for place in wanted:
                spec, counts = specs[place], opened[(place, number)]
                unique, first = np.unique(_keys(part, f"k{place}"), return_index=True)
                least = counts.point(unique, "cm").estimate
                heavy = least >= float(spec.heavy_pct or 0.0) / 100 * counts.total
                for key, row in zip(unique[heavy].tolist(), first[heavy].tolist(), strict=True):
                    if (place, number, key) not in seen:
                        seen.add((place, number, key))
                        values = [
                            part.column(f"v{names.index(name)}")[row].as_py() for name in spec.attributes
                        ]
                        found.append(
                            (place, number, key - (key >> 63 << 64), json.dumps(values, default=str))
                        )
            if found:
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column) for column in zip(*found, strict=True)],
                    ["spec", "batch", "key", "label"],
                )

    kinds = {name: kind for spec in specs for name, kind in zip(spec.attributes, spec.types, strict=True)}
    values = [_column(name, kinds[name]).alias(f"v{at}") for at, name in enumerate(names)]
    narrow = frame.select(*_batch_columns(batch), *keys, *values)
    found = narrow.mapInArrow(screen, "spec long, batch bigint, key bigint, label string")
    return found.groupBy("spec", "batch", "key").agg(sf.min("label").alias("label"))


def build(
    frame: DataFrame, stream: str, specs: Sequence[SketchSpec], batch: Batch | None = None
) -> list[dict[str, Any]]:
    """Rows of the `sketches` table for every batch in `frame` and every sketch that merges (not stable_bloom)."""
    specs = tuple(spec for spec in specs if spec.kind != "stable_bloom")
    if not specs:
        return []
    partials = partial_sketches(frame, specs, batch)
    if partials.rdd.getNumPartitions() * len(specs) > _GATHERED_MAX:
        partials = merged_sketches(partials)
    found = _gathered(partials.collect())
    tables = {
        (row.spec, row.batch): bytes(row.payload)
        for row in found
        if isinstance(specs[row.spec].empty(), HeavyHitters)
    }
    heavy: dict[tuple[int, int], list[Any]] = {}
    if tables:
        for row in heavy_keys(frame, specs, tables, batch).collect():
            heavy.setdefault((row.spec, row.batch), []).append(row)
    rows = []
    for row in found:
        spec, payload = specs[row.spec], bytes(row.payload)
        if (row.spec, row.batch) in tables:
            payload = _with_heavy(spec, payload, heavy.get((row.spec, row.batch), []))
        rows.append(table_row(stream, spec, row.batch, row.batch_date, row.rows, payload))
    return sorted(rows, key=lambda row: (row["batch"], row["kind"], row["name"]))


def _gathered(partials: Sequence[Any]) -> list[Any]:
    """Partial payloads added up here: few and small, another stage of Python workers would cost more."""
    from pyspark.sql import Row

    groups: dict[tuple[int, int, datetime.date], list[Any]] = {}
    for row in partials:
        groups.setdefault((row.spec, row.batch, row.batch_date), []).append(row)
    return [
        Row(
            spec=spec,
            batch=number,
            batch_date=date,
            rows=sum(part.rows for part in parts),
            payload=merged([read_sketch(bytes(part.payload)) for part in parts]).to_bytes(),
        )
        for (spec, number, date), parts in groups.items()
    ]


def _with_heavy(spec: SketchSpec, payload: bytes, keys: Sequence[Any]) -> bytes:
    sketch = spec.empty()
    assert isinstance(sketch, HeavyHitters)
    sketch.counts = CountMin.from_bytes(payload)
    labels = {row.key % (1 << 64): json.loads(row.label) for row in keys}
    sketch.candidates = np.array(sorted(labels), dtype=np.uint64)
    sketch.labels = dict(sorted(labels.items()))
    return sketch.to_bytes()


def table_row(
    stream: str, spec: SketchSpec, batch: int, batch_date: datetime.date, rows: int, payload: bytes,
    started_from: int | None = None, started_digest: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One row of the `sketches` table."""
    return {
        "stream": stream,
        "kind": spec.kind,
        "name": spec.name,
        "attributes": list(spec.attributes),
        "batch": batch,
        "batch_date": batch_date,
        "parameters": json.dumps(spec.parameters, sort_keys=True),
        "seed": spec.seed,
        "format_version": binary.VERSION,
        "rows": rows,
        "started_from": started_from,
        "started_digest": started_digest,
        "digest": binary.digest(payload),
        "payload": payload,
    }


@dataclass(frozen=True)
class Passed:
    """A batch after a filter: the seq of the rows it suspects, and its state afterwards."""

    suspected: DataFrame
    state: StableBloom


def suspects(frame: DataFrame, spec: SketchSpec, before: StableBloom | None = None) -> DataFrame:
    """Pass the rows of `frame` through the filter in the order of `seq`, each shard by one task.

    Rows with a `seq` are suspected duplicates; rows with a `payload` are states, each good for its `shards`.
    """
    from pyspark.sql import functions as sf

    start = (before or _filter(spec)).to_bytes()
    shards = spec.shards
    key = key_column(spec.attributes, spec.types, spec.seed)
    high = sf.shiftrightunsigned(sf.xxhash64(sf.col("key")), 32)
    narrow = frame.select("seq", key.alias("key"))
    placed = narrow.withColumn("shard", sf.shiftright(high * sf.lit(shards).cast("bigint"), 32))

    def observe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sketch, touched = StableBloom.from_bytes(start), np.zeros(shards, dtype=np.bool_)
        schema = pa.schema([("seq", pa.int64()), ("shards", pa.list_(pa.int32())), ("payload", pa.binary())])
        for part in batches:
            touched[np.unique(part.column("shard").to_numpy())] = True
            duplicate = sketch.observe(_keys(part, "key"))
            seqs = part.column("seq").filter(pa.array(duplicate))
            nothing = [pa.nulls(len(seqs), schema.field(name).type) for name in ("shards", "payload")]
            yield pa.RecordBatch.from_arrays([seqs, *nothing], schema=schema)
        if touched.any():
            mine = np.flatnonzero(touched).tolist()
            state = [pa.array([None], pa.int64()), pa.array([mine], schema.field("shards").type)]
            yield pa.RecordBatch.from_arrays([*state, pa.array([sketch.to_bytes()])], schema=schema)

    ordered = placed.repartition(shards, "shard").sortWithinPartitions("shard", "seq")
    return ordered.mapInArrow(observe, "seq bigint, shards array<int>, payload binary")


def _filter(spec: SketchSpec) -> StableBloom:
    sketch = spec.empty()
    assert isinstance(sketch, StableBloom)
    return sketch


def pass_through(frame: DataFrame, spec: SketchSpec, before: StableBloom | None = None) -> Passed:
    """`suspects`, run once and taken apart; the caller unpersists nothing, what is kept is the suspects' seq."""
    from pyspark.sql import functions as sf

    found = suspects(frame, spec, before).localCheckpoint()
    state = StableBloom.from_bytes((before or _filter(spec)).to_bytes())
    for row in found.where(sf.col("payload").isNotNull()).collect():
        state.absorb_shards(StableBloom.from_bytes(bytes(row.payload)), row.shards)
    return Passed(found.where(sf.col("seq").isNotNull()).select("seq"), state)


def repeats(frame: DataFrame, attributes: Sequence[str], history: DataFrame | None = None) -> DataFrame:
    """Exact: the seq of every row of `frame` whose values (null equals null) an earlier row has had."""
    from pyspark.sql import functions as sf

    names = [f"`{name}`" for name in attributes]
    mine = frame.select("seq", *names, sf.lit(True).alias("asked"))
    rows = mine
    if history is not None:
        rows = mine.unionByName(history.select("seq", *names, sf.lit(False).alias("asked")))
    firsts = rows.groupBy(*names).agg(
        sf.min("seq").alias("first"), sf.collect_list(sf.when(sf.col("asked"), sf.col("seq"))).alias("seqs")
    )
    return firsts.select("first", sf.explode("seqs").alias("seq")).where("seq > first").select("seq")


def confirmed(
    suspected: DataFrame, frame: DataFrame, attributes: Sequence[str], history: DataFrame | None = None
) -> DataFrame:
    """Which suspects truly repeat an earlier row, looked up by their values only: few, since suspects are few."""
    from pyspark.sql import functions as sf

    names = [f"`{name}`" for name in attributes]
    asked = sf.broadcast(frame.join(sf.broadcast(suspected), "seq").select(*names).distinct())
    same = [frame[name].eqNullSafe(asked[name]) for name in names]
    alike = frame.join(asked, same, "left_semi")
    before = None
    if history is not None:
        matches = [history[name].eqNullSafe(asked[name]) for name in names]
        before = history.join(asked, matches, "left_semi")
    return repeats(alike, attributes, before).join(sf.broadcast(suspected), "seq", "left_semi")


def register_functions(spark: SparkSession) -> None:
    """Make `spillway_*` known to SQL: `spillway_merge` over payloads, and the questions in `sql.FUNCTIONS`."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf, udf

    def merge(payload: Any) -> Any:
        return sql.merge_payloads(payload)

    # Spark tells an aggregate by these types, which postponed annotations would hide from it
    merge.__annotations__ = {"payload": pd.Series, "return": bytes}
    spark.udf.register("spillway_merge", pandas_udf(merge, "binary"))
    for name, (function, returns) in sql.FUNCTIONS.items():
        spark.udf.register(name, udf(function, returns))

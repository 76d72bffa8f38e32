"""Sketches in Spark: keys hashed natively, tables counted natively, Arrow kernels where Spark has none.

`build` returns rows of the `sketches` table, one a batch and sketch, in which the number of partitions shows nowhere.
Frequencies (`count_min`) are counted by Spark's own `count_min_sketch` over our keys, whose table is a count-min
table like any other: every estimator here reads it, and no row leaves the JVM. Heavy keys are counted exactly, after
all keys in light buckets (key mod 65,536) are gone. Quantiles and pairs go through Arrow kernels, one number or one key
an attribute and row, and one small payload a partition comes back.

`suspects` passes a batch through a stable Bloom filter in stream order, shard by shard, from its files. A filter may be wrong, so it
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

from spillway.lake.files import DataFile, RowReader
from spillway.sketches import format as binary
from spillway.sketches import sql
from spillway.sketches.answers import Keys
from spillway.sketches.column_keys import keys_of
from spillway.sketches.count_min import CountMin
from spillway.sketches.dyadic import Dyadic
from spillway.sketches.hashing import key_header
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount
from spillway.sketches.query import merged
from spillway.sketches.specification import Sketch, SketchSpec, read_sketch
from spillway.sketches.stable_bloom import StableBloom, shards_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTIAL = "spec int, batch bigint, batch_date date, rows bigint, payload binary"
_SPARK_TYPES = {"integer": "bigint"}
_GATHERED_MAX = 1000
_BUCKETS = 1 << 16
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
    header = sf.lit(key_header(types, seed)).cast("bigint")
    return sf.xxhash64(reduce(lambda one, other: one.bitwiseXOR(other), flags, header), *values)


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
        if spec.kind == "quantiles":
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
    if isinstance(sketch, Dyadic):
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
    """One payload a partition, batch and sketch, of the kinds that have kernels.

    `frame` has the attributes, seq (for pair_count), and batch and batch_date unless all its rows are of the stated
    `batch`: every column shipped costs.
    """
    specs = tuple(specs)
    ordinals = ["seq"] if any(spec.kind == "pair_count" for spec in specs) else []

    def accumulate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[tuple[int, int, datetime.date], tuple[Sketch, int]] = {}
        for number, date, part in _by_batch(batches, batch):
            for place, spec in enumerate(specs):
                sketch, rows = held.get((place, number, date)) or (spec.empty(), 0)
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


def counted_tables(frame: DataFrame, specs: Sequence[SketchSpec], batch: Batch | None = None) -> DataFrame:
    """One row a batch: how many rows it has, and Spark's count-min table of every sketch (t0, t1, ...)."""
    from pyspark.sql import functions as sf

    keys, tables = [], []
    for place, spec in enumerate(specs):
        p = _counts(spec).parameters
        # Spark takes w = ceil(2 / eps), d = ceil(-log2(1 - confidence)): halves keep rounding away from both
        error, confidence = 2.0 / (p.width - 0.5), 1.0 - 2.0 ** (0.5 - p.depth)
        keys.append(key_column(spec.attributes, spec.types, spec.seed).alias(f"k{place}"))
        table = sf.count_min_sketch(f"k{place}", sf.lit(error), sf.lit(confidence), sf.lit(p.seed))
        # the aggregate would interpret the key's expression; one used twice is kept apart and compiled
        tables += [table.alias(f"t{place}"), sf.max(f"k{place}").alias(f"greatest{place}")]
    hashed = frame.select(*_batch_columns(batch), *keys)
    return hashed.groupBy(*_batch_columns(batch)).agg(sf.count("*").alias("rows"), *tables)


def _counts(spec: SketchSpec) -> CountMin:
    sketch = spec.empty()
    if isinstance(sketch, HeavyHitters):
        return sketch.counts
    assert isinstance(sketch, CountMin)
    return sketch


def heavy_keys(
    frame: DataFrame, spec: SketchSpec, rows: Mapping[int, int], batch: Batch | None = None
) -> DataFrame:
    """Every key of at least `heavy_pct` of its batch's `rows`, counted exactly, with its values as JSON."""
    from pyspark.sql import functions as sf

    least = {number: float(spec.heavy_pct or 0.0) / 100 * count for number, count in rows.items()}
    limit = reduce(
        lambda rest, item: sf.when(sf.col("batch") == item[0], sf.lit(item[1])).otherwise(rest),
        least.items(),
        sf.lit(None).cast("double"),
    )
    number = sf.lit(batch[0]).cast("bigint") if batch else sf.col("batch")
    values = [_column(name, kind).alias(name) for name, kind in zip(spec.attributes, spec.types, strict=True)]
    key = key_column(spec.attributes, spec.types, spec.seed)
    narrow = frame.select(number.alias("batch"), key.alias("key"), *values)
    narrow = narrow.withColumn("bucket", sf.pmod("key", sf.lit(_BUCKETS)))
    heavy = narrow.groupBy("batch", "bucket").count().where(sf.col("count") >= limit).drop("count")
    left = narrow.join(sf.broadcast(heavy), ["batch", "bucket"], "left_semi")
    found = left.groupBy("batch", "key", *[f"`{name}`" for name in spec.attributes]).count()
    texts = [sf.to_json(sf.struct(f"`{name}`"), {"ignoreNullFields": "false"}) for name in spec.attributes]
    return found.where(sf.col("count") >= limit).select("batch", "key", sf.array(*texts).alias("labels"))


def build(
    frame: DataFrame, stream: str, specs: Sequence[SketchSpec], batch: Batch | None = None
) -> list[dict[str, Any]]:
    """Rows of the `sketches` table for every batch in `frame` and every sketch that merges (not stable_bloom).

    `frame` has the attributes, seq (for pair_count), and batch and batch_date unless all of it is `batch`.
    """
    rows = _built_natively(frame, stream, [spec for spec in specs if spec.kind == "count_min"], batch)
    kernels = [spec for spec in specs if spec.kind in ("quantiles", "pair_count")]
    if kernels:
        partials = partial_sketches(frame, kernels, batch)
        if partials.rdd.getNumPartitions() * len(kernels) > _GATHERED_MAX:
            partials = merged_sketches(partials)
        for row in _gathered(partials.collect()):
            rows.append(
                table_row(stream, kernels[row.spec], row.batch, row.batch_date, row.rows, bytes(row.payload))
            )
    return sorted(rows, key=lambda row: (row["batch"], row["kind"], row["name"]))


def _built_natively(
    frame: DataFrame, stream: str, specs: Sequence[SketchSpec], batch: Batch | None
) -> list[dict[str, Any]]:
    if not specs:
        return []
    found = [row.asDict() for row in counted_tables(frame, specs, batch).collect() if row.rows]
    if batch:
        found = [{**row, "batch": batch[0], "batch_date": batch[1]} for row in found]
    rows = []
    for place, spec in enumerate(specs):
        sketch = spec.empty()
        heavy: dict[int, list[Any]] = {}
        if isinstance(sketch, HeavyHitters) and found:
            sizes = {row["batch"]: row["rows"] for row in found}
            for key in heavy_keys(frame, spec, sizes, batch).collect():
                heavy.setdefault(key.batch, []).append(key)
        for row in found:
            counts = CountMin.from_spark(bytes(row[f"t{place}"]), _counts(spec).parameters)
            payload = _with_heavy(spec, counts, heavy.get(row["batch"], [])).to_bytes()
            rows.append(table_row(stream, spec, row["batch"], row["batch_date"], row["rows"], payload))
    return rows


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


def _with_heavy(spec: SketchSpec, counts: CountMin, keys: Sequence[Any]) -> Sketch:
    sketch = spec.empty()
    counts.context = spec.context
    if not isinstance(sketch, HeavyHitters):
        return counts
    sketch.counts = counts
    # each value comes as {"name": value}, so that JSON carries its type and null
    labels = {
        row.key % (1 << 64): [value for text in row.labels for value in json.loads(text).values()]
        for row in keys
    }
    sketch.candidates = np.array(sorted(labels), dtype=np.uint64)
    sketch.labels = dict(sorted(labels.items()))
    return sketch


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


def suspects(
    spark: SparkSession,
    files: Sequence[DataFile],
    seq: tuple[int, int],
    spec: SketchSpec,
    before: StableBloom | None = None,
) -> DataFrame:
    """Pass the rows `seq` (from, to) of a table's files through the filter in their order, each shard by one task.

    A task reads the few columns in the order of `seq` and takes what is of its shards: to read them once a task costs a
    tenth of moving and sorting them. Rows with a `seq` are suspected duplicates; rows with a `payload` are states, each
    good for its `shards`.
    """
    start, shards = (before or _filter(spec)).to_bytes(), spec.shards
    tasks = min(shards, spark.sparkContext.defaultParallelism)
    schema = pa.schema([("seq", pa.int64()), ("shards", pa.list_(pa.int32())), ("payload", pa.binary())])

    def observe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in (index for batch in batches for index in batch.column(0).to_pylist()):
            sketch, read = StableBloom.from_bytes(start), RowReader(files)
            for low in range(seq[0], seq[1] + 1, RowReader.AT_A_TIME):
                rows = read(spec.attributes, low, min(seq[1], low + RowReader.AT_A_TIME - 1))
                if not rows.num_rows:
                    continue
                keys, places = keys_of(rows, spec.attributes, spec.types, spec.seed), np.asarray(rows["seq"])
                if tasks > 1:
                    mine = shards_of(keys, np.uint64(shards)) % tasks == task
                    keys, places = keys[mine], places[mine]
                seqs = pa.array(places[sketch.observe(keys)])
                nothing = [pa.nulls(len(seqs), schema.field(name).type) for name in ("shards", "payload")]
                yield pa.RecordBatch.from_arrays([seqs, *nothing], schema=schema)
            own = [
                pa.array([None], pa.int64()),
                pa.array([list(range(task, shards, tasks))], schema.types[1]),
            ]
            yield pa.RecordBatch.from_arrays([*own, pa.array([sketch.to_bytes()])], schema=schema)

    return spark.range(0, tasks, 1, tasks).mapInArrow(
        observe, "seq bigint, shards array<int>, payload binary"
    )


def _filter(spec: SketchSpec) -> StableBloom:
    sketch = spec.empty()
    assert isinstance(sketch, StableBloom)
    return sketch


def pass_through(
    spark: SparkSession,
    files: Sequence[DataFile],
    seq: tuple[int, int],
    spec: SketchSpec,
    before: StableBloom | None = None,
) -> Passed:
    """`suspects`, run once and taken apart; the caller unpersists nothing, what is kept is the suspects' seq."""
    from pyspark.sql import functions as sf

    found = suspects(spark, files, seq, spec, before).localCheckpoint()
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

    # under names of their own: frame and history may come from one table
    own = {name: f"asked_{place}" for place, name in enumerate(attributes)}
    values = [sf.col(f"`{name}`").alias(asked) for name, asked in own.items()]
    wanted = sf.broadcast(frame.join(sf.broadcast(suspected), "seq").select(*values).distinct())
    same = [sf.col(f"`{name}`").eqNullSafe(sf.col(asked)) for name, asked in own.items()]
    alike = frame.join(wanted, same, "left_semi")
    before = history.join(wanted, same, "left_semi") if history is not None else None
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

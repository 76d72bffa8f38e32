"""Sketches in Spark: tasks read the columns they need from a stream's files, keys and kernels are compiled.

`build` returns rows of the `sketches` table, one a batch and sketch, in which the number of files shows nowhere. One
small payload a file and sketch comes back and is added up. Heavy keys are then counted exactly by Spark, after all keys
in light buckets (key mod 65,536) are gone.

`suspects` passes a batch through a stable Bloom filter in stream order, shard by shard. A filter may be wrong, so it
only names rows; `confirmed` says which of them truly came before.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.sketches import binary, sql
from spillway.sketches.column_keys import keys_of
from spillway.sketches.count_min import CountMin
from spillway.sketches.dyadic import Dyadic
from spillway.sketches.hashing import key_header
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount
from spillway.sketches.query import merged
from spillway.sketches.specification import Sketch, SketchSpec, read_sketch
from spillway.sketches.stable_bloom import StableBloom, shards_of
from spillway.store.files import DataFile, RowReader, rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTIAL = "spec int, batch bigint, batch_date date, rows bigint, payload binary"
_SPARK_TYPES = {"integer": "bigint"}
_GATHERED_KIB = 256 * 1024
"""Up to here the driver adds partial sketches up itself: another stage of tasks would cost more."""
_ROWS_AT_A_TIME = 262_144
_GLOB = re.compile(r"([\\*?\[\]{}])")
"""What Spark would take for a pattern in a path."""
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


@dataclass(frozen=True)
class Tuples:
    """Rows of a stream where they lie: the files that may hold them, and the batches they are of, with their dates."""

    files: tuple[DataFile, ...]
    batches: Mapping[int, datetime.date]


def partial_sketches(
    spark: SparkSession, tuples: Tuples, specs: Sequence[SketchSpec], at_a_time: int = _ROWS_AT_A_TIME
) -> DataFrame:
    """One payload a file, batch and sketch: tasks read the columns that the sketches need, and no other."""
    specs, files = tuple(specs), tuples.files
    columns = list(dict.fromkeys(["seq", "batch", *(name for spec in specs for name in spec.attributes)]))

    def accumulate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in (files[index] for batch in batches for index in batch.column(0).to_pylist()):
            held: dict[tuple[int, int], tuple[Sketch, int]] = {}
            for rows in rows_of(file, columns, at_a_time):
                for number, part in _by_batch(rows, tuples.batches):
                    for place, spec in enumerate(specs):
                        sketch, count = held.get((place, number)) or (_part_of(spec), 0)
                        _feed(sketch, spec, part)
                        held[(place, number)] = (sketch, count + part.num_rows)
            for (place, number), (sketch, count) in held.items():
                yield _partial([(place, number, tuples.batches[number], count, sketch.to_bytes())])

    tasks = max(1, min(len(files), 4 * spark.sparkContext.defaultParallelism))
    return spark.range(0, len(files), 1, tasks).mapInArrow(accumulate, PARTIAL)


def _by_batch(rows: pa.Table, wanted: Mapping[int, datetime.date]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each wanted batch; mostly all are of one."""
    numbers = np.asarray(rows["batch"])
    for number in numbers[:1] if (numbers == numbers[0]).all() else np.unique(numbers):
        if int(number) in wanted:
            mine = numbers == number
            yield int(number), rows if mine.all() else rows.filter(pa.array(mine))


def _part_of(spec: SketchSpec) -> Sketch:
    """What a task fills: heavy keys are found later, from the counts of all tasks."""
    return _counts(spec) if spec.kind == "count_min" else spec.empty()


def _feed(sketch: Sketch, spec: SketchSpec, rows: pa.Table) -> None:
    if isinstance(sketch, Dyadic):
        sketch.update(_order_values(rows[spec.attributes[0]], spec.types[0]))
    elif isinstance(sketch, PairCount):
        columns = [
            keys_of(rows, [name], [kind], spec.seed)
            for name, kind in zip(spec.attributes, spec.types, strict=True)
        ]
        sketch.update(np.column_stack(columns), np.asarray(rows["seq"]))
    else:
        assert isinstance(sketch, CountMin)
        sketch.update(keys_of(rows, spec.attributes, spec.types, spec.seed))


def _order_values(column: pa.ChunkedArray, kind: str) -> np.ndarray:
    """The values as numbers that are ordered alike; null as NaN, which has no order either."""
    if kind in ("boolean", "date"):
        column = column.cast(pa.int32())
    elif kind == "timestamp":
        column = column.cast(pa.int64())
    return np.asarray(pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan")))


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


def _counts(spec: SketchSpec) -> CountMin:
    sketch = spec.empty()
    if isinstance(sketch, HeavyHitters):
        return sketch.counts
    assert isinstance(sketch, CountMin)
    return sketch


def heavy_keys(spark: SparkSession, tuples: Tuples, spec: SketchSpec, rows: Mapping[int, int]) -> DataFrame:
    """Every key of at least `heavy_pct` of its batch's `rows`, counted exactly, with its values as JSON."""
    from pyspark.sql import functions as sf

    least = {number: float(spec.heavy_pct or 0.0) / 100 * count for number, count in rows.items()}
    limit = reduce(
        lambda rest, item: sf.when(sf.col("batch") == item[0], sf.lit(item[1])).otherwise(rest),
        least.items(),
        sf.lit(None).cast("double"),
    )
    types = ", ".join(
        f"`{name}` {_SPARK_TYPES.get(kind, kind)}"
        for name, kind in zip(spec.attributes, spec.types, strict=True)
    )
    frame = spark.read.schema(f"batch bigint, {types}").parquet(
        *(_GLOB.sub(r"\\\1", file.path) for file in tuples.files)
    )
    frame = frame.where(sf.col("batch").isin(list(rows)))
    values = [_column(name, kind).alias(name) for name, kind in zip(spec.attributes, spec.types, strict=True)]
    key = key_column(spec.attributes, spec.types, spec.seed)
    narrow = frame.select("batch", key.alias("key"), *values)
    narrow = narrow.withColumn("bucket", sf.pmod("key", sf.lit(_BUCKETS)))
    heavy = narrow.groupBy("batch", "bucket").count().where(sf.col("count") >= limit).drop("count")
    left = narrow.join(sf.broadcast(heavy), ["batch", "bucket"], "left_semi")
    found = left.groupBy("batch", "key", *[f"`{name}`" for name in spec.attributes]).count()
    texts = [sf.to_json(sf.struct(f"`{name}`"), {"ignoreNullFields": "false"}) for name in spec.attributes]
    return found.where(sf.col("count") >= limit).select("batch", "key", sf.array(*texts).alias("labels"))


def build(
    spark: SparkSession, tuples: Tuples, stream: str, specs: Sequence[SketchSpec]
) -> list[dict[str, Any]]:
    """Rows of the `sketches` table for every batch that has rows and every sketch that merges (not stable_bloom)."""
    specs = [spec for spec in specs if spec.kind != "stable_bloom"]
    if not specs or not tuples.files:
        return []
    partials = partial_sketches(spark, tuples, specs)
    if len(tuples.files) * len(tuples.batches) * sum(spec.memory_kib for spec in specs) > _GATHERED_KIB:
        partials = merged_sketches(partials)
    found = _gathered(partials.collect())
    rows = []
    for place, spec in enumerate(specs):
        mine = [row for row in found if row.spec == place]
        heavy: dict[int, list[Any]] = {}
        if mine and isinstance(spec.empty(), HeavyHitters):
            for key in heavy_keys(spark, tuples, spec, {row.batch: row.rows for row in mine}).collect():
                heavy.setdefault(key.batch, []).append(key)
        for row in mine:
            payload = bytes(row.payload)
            if spec.kind == "count_min":
                counts = read_sketch(payload)
                assert isinstance(counts, CountMin)
                payload = _with_heavy(spec, counts, heavy.get(row.batch, [])).to_bytes()
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

    A task reads the few columns in the order of `seq` and takes what is of its shards, so that none is moved or
    sorted. Rows with a `seq` are suspected duplicates; rows with a `payload` are states, each
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

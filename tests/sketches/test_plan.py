"""In Spark: keys equal the kernel's, partitions show nowhere, batches replace their own, filters keep their order."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spillway.settings import Settings
from spillway.sketches import plan
from spillway.sketches.hashing import fingerprint
from spillway.sketches.query import load
from spillway.sketches.specification import SketchSpec
from spillway.sketches.stable_bloom import StableBloom
from spillway.sketches.types import SketchError
from spillway.store.files import RowReader, data_files
from spillway.store.tables import Lake, where

TYPES = ("string", "integer", "double", "boolean", "timestamp", "date")
NAMES = ("s", "i", "d", "b", "t", "a")
DDL = "s string, i bigint, d double, b boolean, t timestamp, a date"
NOON = datetime.datetime(2013, 1, 1, 12, 0, 0, 250, tzinfo=datetime.UTC)
RECORDS = [
    ("JFK", 1, 1.0, True, NOON, NOON.date()),
    ("1", 1, -0.0, False, NOON, NOON.date()),
    ("", 2**63 - 1, float("nan"), True, None, None),
    (None, -(2**63), 1e308, None, NOON, datetime.date(1969, 12, 31)),
    (None, None, None, None, None, None),
    ("naïve ключ that is longer than thirty-two bytes", 0, float("inf"), True, NOON, NOON.date()),
]
DAY = datetime.date(2013, 1, 1)
SPECS = [
    SketchSpec("count_min", ("origin",), ("string",), heavy_pct=1.0, memory_kib=8),
    SketchSpec("count_min", ("origin", "flight"), ("string", "integer"), heavy_pct=None, memory_kib=8),
    SketchSpec("quantiles", ("delay",), ("double",)),
    SketchSpec("pair_count", ("origin", "flight", "delay"), ("string", "integer", "double"), rate=0.5),
]


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_a_key_in_spark_is_the_fingerprint_here(spark: Any, seed: int) -> None:
    frame = spark.createDataFrame(RECORDS, DDL)
    single = [
        plan.key_column([name], [kind], seed).alias(name) for name, kind in zip(NAMES, TYPES, strict=True)
    ]
    rows = frame.select(*single, plan.key_column(NAMES, TYPES, seed).alias("all")).collect()
    for record, row in zip(RECORDS, rows, strict=True):
        assert row["all"] % 2**64 == fingerprint(record, TYPES, seed)
        for place, (name, kind) in enumerate(zip(NAMES, TYPES, strict=True)):
            assert row[name] % 2**64 == fingerprint([record[place]], [kind], seed)


def flights(spark: Any, count: int = 3000, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    origins = rng.choice(["JFK", "LGA", "EWR", None], count, p=[0.4, 0.3, 0.2, 0.1])
    numbers = rng.zipf(1.5, count) % 500
    delays = np.round(rng.normal(10, 30, count), 1)
    rows = [
        (
            seq,
            1 + seq % 2,
            DAY + datetime.timedelta(days=seq % 2),
            origin,
            int(number),
            delay if seq % 7 else None,
        )
        for seq, (origin, number, delay) in enumerate(zip(origins, numbers, delays.tolist(), strict=True))
    ]
    return spark.createDataFrame(
        rows, "seq bigint, batch bigint, batch_date date, origin string, flight bigint, delay double"
    )


def build(frame: Any, folder: Path, specs: list[SketchSpec], files: int = 2) -> list[dict[str, Any]]:
    """The frame in so many files, and what is built of them."""
    path = str(folder / f"rows-{len(list(folder.iterdir()))}")
    frame.repartition(files).write.format("delta").save(path)
    days = {1: DAY, 2: DAY + datetime.timedelta(days=1)}
    return plan.build(frame.sparkSession, plan.Tuples(tuple(data_files(path)), days), "flights", specs)


def test_the_number_of_files_shows_nowhere(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = flights(spark)
    one, many = (build(frame, tmp_path, SPECS, files) for files in (1, 5))
    monkeypatch.setattr(plan, "_GATHERED_KIB", 1)
    assert build(frame, tmp_path, SPECS, 3) == one
    assert one == many
    assert [(row["batch"], row["kind"], row["name"]) for row in one] == sorted(
        (batch, spec.kind, spec.name) for batch in (1, 2) for spec in SPECS
    )
    assert {row["rows"] for row in one} == {1500}


def test_the_plan_equals_the_kernel_and_answers_truly(spark: Any, tmp_path: Path) -> None:
    frame = flights(spark)
    rows = build(frame, tmp_path, SPECS)
    pandas = frame.toPandas()
    kernel = SPECS[1].empty()
    keys = [
        fingerprint([None if o is None else str(o), int(f)], ("string", "integer"), 1)
        for o, f in zip(pandas.origin, pandas.flight, strict=True)
    ]
    kernel.update(np.array(keys, dtype=np.uint64))  # type: ignore[union-attr, call-arg]
    assert load(rows, "flights", "origin+flight").sketch.to_bytes() == kernel.to_bytes()
    origins = load(rows, "flights", "origin")
    truth = pandas.origin.value_counts(dropna=False)
    assert [heavy.key for heavy in origins.top(4)] == [("JFK",), ("LGA",), ("EWR",), (None,)]
    assert origins.frequency("LGA").estimate == truth["LGA"]
    delays = load(rows, "flights", "delay", "quantiles")
    assert delays.sketch.unordered == pandas.delay.isna().sum()  # type: ignore[union-attr]
    median = delays.quantile(0.5)
    assert (
        median.low
        <= pandas.delay.dropna().sort_values().iloc[(len(pandas.delay.dropna()) - 1) // 2]
        <= median.high
    )


def test_no_rows_all_nulls_and_one_key_make_sketches_or_none(spark: Any, tmp_path: Path) -> None:
    frame = flights(spark, 40)
    assert build(frame.where("seq < 0"), tmp_path, SPECS) == []
    assert build(frame, tmp_path, []) == []
    none = ["string(null) origin", "bigint(null) flight", "double(null) delay"]
    nulls = frame.selectExpr("seq", "batch", "batch_date", *none)
    rows = build(nulls, tmp_path, SPECS)
    assert rows == build(frame.select("seq", "batch", "batch_date"), tmp_path, SPECS), (
        "a column not there is null"
    )
    assert load(rows, "flights", "origin").frequency(None).estimate == 40
    assert load(rows, "flights", "origin").top(1)[0].key == (None,)
    with pytest.raises(SketchError, match="40 nulls or NaN"):
        load(rows, "flights", "delay", "quantiles").quantile(0.5)


def test_a_rebuilt_batch_replaces_its_own_sketches_and_no_other(
    spark: Any, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    lake = Lake(spark, settings)
    specs = SPECS[:1]
    frame = flights(spark, 400)
    for batch in (1, 2):
        rows = build(frame.where(f"batch = {batch}"), folder, specs)
        lake.replace_rows("sketches", rows, where(stream="flights", batch=batch))
    before = {row.batch: row.digest for row in lake.read("sketches").collect()}
    changed = build(frame.where("batch = 2 and seq > 50"), folder, specs)
    lake.replace_rows("sketches", changed, where(stream="flights", batch=2))
    after = {row.batch: row.digest for row in lake.read("sketches").collect()}
    assert after[1] == before[1]
    assert after[2] != before[2]
    stored = [row.asDict() for row in lake.read("sketches").collect()]
    assert load(stored, "flights", "origin").covers.rows == 200 + changed[0]["rows"]


def test_sql_asks_the_stored_sketches(spark: Any, tmp_path: Path) -> None:
    frame = flights(spark)
    rows = build(frame, tmp_path, SPECS)
    columns = ("name", "batch", "payload")
    table = [tuple(row[column] for column in columns) for row in rows]
    spark.createDataFrame(table, "name string, batch bigint, payload binary").createOrReplaceTempView(
        "sketches"
    )
    plan.register_functions(spark)
    truth = frame.where("origin = 'JFK'").count()
    found = spark.sql(
        "SELECT spillway_frequency(whole, 'JFK') AS f, spillway_top(whole, 2) AS t, spillway_skew(whole) AS s, "
        "spillway_join_size(whole, whole) AS j FROM "
        "(SELECT spillway_merge(payload) AS whole FROM sketches WHERE name = 'origin')"
    ).first()
    assert found.f.estimate == truth
    assert found.f.low <= truth <= found.f.high
    assert [json.loads(heavy.key) for heavy in found.t] == [["JFK"], ["LGA"]]
    assert found.s.estimate > 1
    assert found.j.method == "cmm"
    both = spark.sql(
        "SELECT spillway_frequency(payload, 'JFK', 1) AS f FROM sketches WHERE name = 'origin+flight'"
    )
    answers = [row.f for row in both.collect()]
    truth = frame.where("origin = 'JFK' and flight = 1").count()
    assert sum(answer.low for answer in answers) <= truth <= sum(answer.high for answer in answers)


@pytest.mark.parametrize("shards", [1, 3])
def test_the_filter_in_spark_is_the_filter_here_across_batches(
    spark: Any, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 500)
    spec = SketchSpec(
        "stable_bloom", ("k",), ("integer",), memory_kib=1, false_positive_pct=5.0, shards=shards
    )
    values = np.random.default_rng(3).integers(0, 700, 3000)
    frame = spark.createDataFrame([(seq, int(v)) for seq, v in enumerate(values)], "seq bigint, k bigint")
    frame.repartitionByRange(4, "seq").sortWithinPartitions("seq").write.format("delta").save(str(tmp_path))
    files = data_files(str(tmp_path))
    first = plan.pass_through(spark, files, (0, 1699), spec)
    second = plan.pass_through(spark, files, (1700, 2999), spec, first.state)
    kernel = spec.empty()
    assert isinstance(kernel, StableBloom)
    keys = np.array([fingerprint([int(v)], ["integer"], 1) for v in values], dtype=np.uint64)
    expected = np.flatnonzero(kernel.observe(keys)).tolist()
    found = sorted(row.seq for passed in (first, second) for row in passed.suspected.collect())
    assert found == expected
    assert second.state.to_bytes() == kernel.to_bytes()
    frame.repartition(3).write.format("delta").mode("overwrite").save(str(tmp_path))  # rows in any order
    again = plan.pass_through(spark, data_files(str(tmp_path)), (1700, 2999), spec, first.state)
    assert again.state.digest() == second.state.digest()


def test_suspects_are_confirmed_by_values_and_exact_repeats_are_all_repeats(spark: Any) -> None:
    values = [3, None, 3, 4, None, 5, 3]
    frame = spark.createDataFrame(list(enumerate(values, 10)), "seq bigint, k bigint")
    history = spark.createDataFrame([(1, 5)], "seq bigint, k bigint")
    assert sorted(row.seq for row in plan.repeats(frame, ["k"]).collect()) == [12, 14, 16]
    with_history = plan.repeats(frame, ["k"], history).collect()
    assert sorted(row.seq for row in with_history) == [12, 14, 15, 16]
    suspected = spark.createDataFrame([(12,), (13,), (14,), (15,)], "seq bigint")
    assert sorted(row.seq for row in plan.confirmed(suspected, frame, ["k"]).collect()) == [12, 14]
    assert sorted(row.seq for row in plan.confirmed(suspected, frame, ["k"], history).collect()) == [
        12,
        14,
        15,
    ]

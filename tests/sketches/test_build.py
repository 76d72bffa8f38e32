"""Building in parts: files and pieces show nowhere, and heavy keys are counted exactly, whatever their values are."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.engine import ProcessEngine
from spillway.engine.protocol import run_alone
from spillway.engine.spark import SparkEngine
from spillway.errors import InvalidValue
from spillway.sketches import build as building
from spillway.sketches.hashing import fingerprint
from spillway.sketches.query import load_stored_sketch
from spillway.sketches.specification import SketchSpec
from spillway.store.files import DataFile
from spillway.streams.sketch_builder import build_sketch_rows

DAY = datetime.date(2013, 1, 1)
DAYS = {1: DAY, 2: DAY + datetime.timedelta(days=1)}
SPECS = [
    SketchSpec("count_min", ("origin",), ("string",), heavy_pct=1.0, memory_kib=8),
    SketchSpec("count_min", ("origin", "flight"), ("string", "integer"), heavy_pct=None, memory_kib=8),
    SketchSpec("count_min", ("flight", "origin"), ("integer", "string"), heavy_pct=0.5, memory_kib=8),
    SketchSpec("quantiles", ("delay",), ("double",)),
    SketchSpec("pair_count", ("origin", "flight", "delay"), ("string", "integer", "double"), rate=0.5),
]


def flights(count: int = 3000) -> pa.Table:
    rng = np.random.default_rng(1)
    seq = np.arange(count)
    origins = rng.choice(["JFK", "LGA", "EWR", ""], count, p=[0.4, 0.3, 0.2, 0.1])
    return pa.table(
        {
            "seq": seq,
            "batch": pa.array(1 + seq % 2, pa.int64()),
            "origin": pa.array([origin or None for origin in origins.tolist()], pa.string()),
            "flight": rng.zipf(1.5, count) % 500,
            "delay": pa.array(np.round(rng.normal(10, 30, count), 1), mask=seq % 7 == 0),
        }
    )


def stored(folder: Path, table: pa.Table, files: int) -> list[DataFile]:
    """The table in so many files, each with every so-manieth row."""
    found = []
    for place in range(files):
        path = folder / f"{files}-{len(list(folder.iterdir()))}.parquet"
        pq.write_table(table.take(np.arange(place, table.num_rows, files)), path)
        found.append(DataFile(str(path), path.stat().st_size, ()))
    return found


def built(
    folder: Path, table: pa.Table, specs: list[SketchSpec] = SPECS, files: int = 2, cores: int = 1
) -> Any:
    return run_alone(
        ProcessEngine(cores), build_sketch_rows(stored(folder, table, files), DAYS, "flights", specs)
    )


def test_neither_files_nor_pieces_nor_the_engine_show(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = flights()
    one = built(tmp_path, table, files=1)
    assert built(tmp_path, table, files=9) == one
    assert built(tmp_path, table, files=9, cores=2) == one
    files = stored(tmp_path, table, 5)
    assert run_alone(SparkEngine(lambda: spark), build_sketch_rows(files, DAYS, "flights", SPECS)) == one
    monkeypatch.setattr("spillway.streams.sketch_builder._ROWS_AT_A_TIME", 100)
    assert built(tmp_path, table, files=3) == one
    assert [(row["batch"], row["kind"], row["name"]) for row in one] == sorted(
        (batch, spec.kind, spec.name) for batch in (1, 2) for spec in SPECS
    )
    assert {row["rows"] for row in one} == {1500}


def test_what_is_built_equals_the_kernel_and_answers_truly(tmp_path: Path) -> None:
    table = flights()
    rows, records = built(tmp_path, table), table.to_pylist()
    kernel: Any = SPECS[1].empty()
    keys = [fingerprint([row["origin"], row["flight"]], ("string", "integer"), 1) for row in records]
    kernel.update(np.array(keys, dtype=np.uint64))
    assert load_stored_sketch(rows, "flights", "origin+flight").sketch.to_bytes() == kernel.to_bytes()
    origins = load_stored_sketch(rows, "flights", "origin")
    truth = Counter(row["origin"] for row in records)
    assert [heavy.key for heavy in origins.top(4)] == [(key,) for key, _ in truth.most_common()]
    assert origins.frequency("LGA").estimate == truth["LGA"]
    delays = load_stored_sketch(rows, "flights", "delay", "quantiles")
    known = sorted(row["delay"] for row in records if row["delay"] is not None)
    assert delays.sketch.n == len(known)
    median = delays.quantile(0.5)
    assert median.low <= known[(len(known) - 1) // 2] <= median.high


def test_heavy_keys_are_all_those_above_the_share_and_no_other(tmp_path: Path) -> None:
    table = flights()
    rows, records = built(tmp_path, table, files=4), table.to_pylist()
    for batch in (1, 2):
        truth = Counter((r["flight"], r["origin"]) for r in records if r["batch"] == batch)
        heavy = {key for key, count in truth.items() if count >= 0.5 / 100 * 1500}
        sketch = load_stored_sketch(rows, "flights", "flight+origin", batches=[batch]).sketch
        assert {tuple(label) for label in sketch.labels.values()} == heavy
        assert 1 < len(heavy) < len(truth)


def test_light_keys_that_share_a_heavy_bucket_are_not_heavy() -> None:
    spec = SketchSpec("count_min", ("k",), ("integer",), heavy_pct=20.0)
    keys = np.array([7, 7, 7, 7 + (1 << 16), 7 + (1 << 40), 9], dtype=np.uint64)
    wanted = np.zeros(building.BUCKETS, np.bool_)
    wanted[7] = True
    distinct, counts, firsts = building._count_keys(keys, wanted)
    assert distinct.tolist() == [7, 7 + (1 << 16), 7 + (1 << 40)]
    assert (counts.tolist(), firsts.tolist()) == ([3, 1, 1], [0, 3, 4])
    found = pa.table({"batch": [1] * 3, "key": distinct, "count": counts, "value 0": [70, 71, 72]})
    assert building.heavy_labels(spec, [found, found], {1: 12}) == {1: {7: ([70], 6)}}


KINDS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "string": (pa.string(), ["naïve", "", None], ["naïve", "", None]),
    "integer": (pa.int64(), [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
    "double": (
        pa.float64(),
        [-0.0, 0.0, float("nan"), float("inf"), float("-inf"), 1e300, None],
        [0.0, "NaN", "Infinity", "-Infinity", 1e300, None],
    ),
    "boolean": (pa.bool_(), [True, False, None], [True, False, None]),
    "date": (pa.date32(), [DAY, datetime.date(1969, 12, 31), None], ["2013-01-01", "1969-12-31", None]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
            None,
        ],
        ["2013-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z", None],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_heavy_keys_carry_their_values_as_json_does(kind: str, tmp_path: Path) -> None:
    type_, values, labels = KINDS[kind]
    many = values * 40
    table = pa.table({"seq": range(len(many)), "batch": [1] * len(many), "count": pa.array(many, type_)})
    rows = built(tmp_path, table, [SketchSpec("count_min", ("count",), (kind,), heavy_pct=1.0)])
    found = load_stored_sketch(rows, "flights", "count").top(10)
    told = [heavy.key[0] for heavy in found if heavy.key is not None]
    assert sorted(map(str, told)) == sorted(map(str, labels))
    assert {type(one) for one in told} == {type(one) for one in labels}
    counts = {heavy.key[0]: heavy.answer.estimate for heavy in found if heavy.key is not None}
    assert counts[labels[0]] == (80 if kind == "double" else 40)


def test_no_rows_all_nulls_and_one_key_make_sketches_or_none(tmp_path: Path) -> None:
    table = flights(40)
    assert built(tmp_path, table.slice(0, 0)) == []
    assert built(tmp_path, table, []) == []
    assert run_alone(ProcessEngine(), build_sketch_rows([], DAYS, "flights", SPECS)) == []
    other = table.set_column(1, "batch", pa.array([3] * 40, pa.int64()))
    assert built(tmp_path, other) == [], "rows of batches that nobody asked for"
    nulls = table.select(["seq", "batch"])
    for name in ("origin", "flight", "delay"):
        nulls = nulls.append_column(name, pa.nulls(40, table[name].type))
    rows = built(tmp_path, nulls)
    assert rows == built(tmp_path, table.select(["seq", "batch"])), "a column not there is null"
    assert load_stored_sketch(rows, "flights", "origin").frequency(None).estimate == 40
    assert load_stored_sketch(rows, "flights", "origin").top(1)[0].key == (None,)
    with pytest.raises(InvalidValue, match="got 'nulls or NaN only'"):
        load_stored_sketch(rows, "flights", "delay", "quantiles").quantile(0.5)


def test_a_filter_is_not_built_from_parts(tmp_path: Path) -> None:
    spec = SketchSpec("alternating_bloom", ("flight",), ("integer",), within=9)
    assert built(tmp_path, flights(40), [spec]) == []


def test_a_key_of_just_the_share_that_is_asked_for_is_one_of_the_heavy_ones(tmp_path: Path) -> None:
    names = ["a"] * 10 + ["b"] * 9 + [f"c{place}" for place in range(81)]
    table = pa.table({"seq": range(100), "batch": [1] * 100, "origin": names})
    spec = SketchSpec("count_min", ("origin",), ("string",), heavy_pct=10.0, memory_kib=8)
    (made,) = built(tmp_path, table, [spec])
    top = load_stored_sketch([made], "flights", "origin").top(5)
    assert [(one.key, one.answer.estimate, one.answer.method) for one in top] == [(("a",), 10.0, "exact")]

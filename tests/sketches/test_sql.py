"""Sketches in SQL: built in any GROUP BY, asked with value, interval, rows and note, in sessions of every sort."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.engine.spark_conf import defaults_file, spark_conf
from spillway.engine.sql_functions import register_functions
from spillway.errors import InvalidValue
from spillway.settings import Settings
from spillway.sketches import sql
from spillway.sketches.count_min import PURPOSES
from spillway.sketches.hashing import fingerprint
from spillway.sketches.query import load_stored_sketch, read_sketch, wrap_sketch
from spillway.sketches.specification import SketchSpec
from spillway.store.tables import Tables

HOME = Path(__file__).resolve().parents[2]
DAY = datetime.date(2020, 1, 1)
ORIGINS = ["JFK"] * 70 + ["LGA"] * 20 + ["EWR"] * 9 + [None]
MOMENT = datetime.datetime(2020, 7, 1, 4, 30, 0, 7, tzinfo=datetime.UTC)


def ask(name: str, *values: Any) -> Any:
    """The answer to one row."""
    function, _ = sql.sql_functions()[f"spillway_{name}"]
    arrays = [value if isinstance(value, pa.Array) else pa.array([value]) for value in values]
    return function(*arrays)[0].as_py()


def built(told: str, *columns: pa.Array) -> bytes:
    kinds = pa.array([told] * len(columns[0]))
    found = sql.sketch_of([column.slice(at, 7) for column in (kinds, *columns)] for at in range(0, 100, 7))
    assert found is not None
    return found


def test_every_answer_has_value_low_high_rows_and_note() -> None:
    origins = pa.array(ORIGINS)
    payload = built("count_min", origins)
    counts = Counter(ORIGINS)
    for key in ("JFK", None, "never"):
        found = ask("frequency", payload, pa.array([key], pa.string()))
        assert found["low"] <= counts[key] <= found["high"]
        assert (found["rows"], found["note"]) == (100, "cmm_order, 95 % confidence")
    squares = sum(count**2 for count in counts.values())
    assert ask("join_size", payload, payload)["value"] == pytest.approx(squares, rel=0.01)
    numbers = pa.array(range(100))
    middle = ask("quantile", built("quantiles", numbers), Decimal("0.5"))
    assert (middle["value"], middle["rows"], middle["note"]) == (49.0, 100, "kll, 95 % confidence")
    assert ask("distinct", built("distinct", origins))["value"] == pytest.approx(3)
    pairs = ask("near_duplicate_pairs", built("pair_count, at_least=1", origins, origins), 1)
    assert pairs["value"] == pytest.approx(
        sum(count * (count - 1) / 2 for count in counts.values()), rel=0.05
    )


def test_heavy_keys_are_kept_by_value_where_they_are_asked_for() -> None:
    payload = built("count_min, heavy_pct=15, memory_kib=16", pa.array(ORIGINS))
    assert [(one["key"], one["answer"]["value"]) for one in ask("top", payload, 5)] == [
        ('["JFK"]', 70.0), ('["LGA"]', 20.0),
    ]  # fmt: skip


def test_null_payloads_give_null_and_merging_leaves_them_out() -> None:
    none = pa.array([None], pa.binary())
    for name in sql.sql_functions():
        two = name in ("spillway_join_size", "spillway_near_duplicate_join")
        other = none if two else pa.array([["x"]]) if "frequencies" in name else pa.array(["x"])
        others = [pa.array(["sum"])] * name.endswith("_for")
        others += [other] * (2 if name == "spillway_between" else 1)
        assert ask(name.removeprefix("spillway_"), none, *others) is None
    payload = built("count_min", pa.array(ORIGINS))
    assert ask("join_size", payload, none) is None
    twice = sql.merge_payloads(pa.array([payload, None, payload]))
    assert ask("frequency", twice, "JFK")["value"] == 140
    assert (sql.merge_payloads(none), sql.sketch_of([])) == (None, None)


def test_many_keys_are_asked_with_one_payload() -> None:
    one, other = built("count_min", pa.array(ORIGINS)), built("count_min", pa.array(["LGA"] * 5))
    keys = pa.array([["JFK", None], None, [], ["LGA"]], pa.list_(pa.string()))
    function, _ = sql.sql_functions()["spillway_frequencies"]
    found = function(pa.array([one, one, one, other]), keys).to_pylist()
    assert [None if row is None else [answer["value"] for answer in row] for row in found] == [
        [70.0, 1.0], None, [], [5.0],
    ]  # fmt: skip
    # as many rows of different payloads at once as there are, and as one by one
    function, _ = sql.sql_functions()["spillway_frequency"]
    each = function(pa.array([one, other, None, one]), pa.array(["LGA", "LGA", "LGA", None])).to_pylist()
    assert [row and row["value"] for row in each] == [20.0, 5.0, None, 1.0]
    pairs = built("count_min", pa.array(ORIGINS), pa.array(range(100)))
    structs = pa.array([[{"a": "JFK", "b": 3}, {"a": "JFK", "b": 99}]])
    function, _ = sql.sql_functions()["spillway_frequencies"]
    assert [a["value"] for a in function(pa.array([pairs]), structs)[0].as_py()] == [1.0, 0.0]


def test_every_door_gives_the_same_answer_for_a_purpose() -> None:
    chance = np.random.default_rng(2)
    keys = [f"k{key}" for key in chance.zipf(1.3, 20_000).tolist()]
    asked = sorted(set(keys))[:300]
    for options in ("", ", heavy_pct=1"):
        payload = built("count_min, memory_kib=8" + options, pa.array(keys))
        sketch = wrap_sketch(read_sketch(payload))
        values = {}
        for purpose in PURPOSES:
            many, _ = sql.sql_functions()["spillway_frequencies_for"]
            (found,) = many(pa.array([payload]), pa.array([purpose]), pa.array([asked])).to_pylist()
            each, _ = sql.sql_functions()["spillway_frequency_for"]
            same = [pa.array([one] * len(asked)) for one in (payload, purpose)]
            assert each(*same, pa.array(asked)).to_pylist() == found
            answers = [sketch.frequency(key, purpose=purpose) for key in asked]
            assert [(one.estimate, one.low, one.high) for one in answers] == [
                (one["value"], one["low"], one["high"]) for one in found
            ]
            values[purpose] = [one["value"] for one in found]
        plain, _ = sql.sql_functions()["spillway_frequencies"]
        (default,) = plain(pa.array([payload]), pa.array([asked])).to_pylist()
        assert [one["value"] for one in default] == values["frequent"] != values["sum"]


def test_unknown_purpose_is_refused() -> None:
    payload = built("count_min", pa.array(ORIGINS))
    with pytest.raises(InvalidValue, match="`purpose` must be one of frequent, any, sum, got 'sums'"):
        ask("frequency_for", payload, pa.array(["sums"]), "JFK")
    function, _ = sql.sql_functions()["spillway_frequency_for"]
    with pytest.raises(InvalidValue, match="`purpose` must be one of frequent, any, sum for all rows"):
        function(pa.array([payload] * 2), pa.array(["any", "sum"]), pa.array(["JFK", "LGA"]))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_a_moment_is_one_key_whatever_the_zone_and_the_unit(zone: str, unit: str) -> None:
    whole = MOMENT.replace(microsecond=0)
    at = pa.array([whole], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone))
    for payload in (built("count_min", at), built("count_min", pa.array([whole], pa.timestamp("us", "UTC")))):
        assert ask("frequency", payload, at)["value"] == 1.0
        assert wrap_sketch(read_sketch(payload)).frequency(whole).estimate == 1.0


@pytest.mark.parametrize(
    ("told", "column", "said"),
    [
        ("cout_min", pa.array([1]), "`kind` must be one of count_min, .* name one of them"),
        ("count_min, memory=4", pa.array([1]), "`option` must be memory_kib=NUMBER"),
        ("count_min", pa.array([Decimal("1.5")]), "`value` must be of a type among .*; CAST it"),
        ("quantiles", pa.array(["a"]), "one ordered attribute"),
    ],
)
def test_what_cannot_be_sketched_is_refused(told: str, column: pa.Array, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        built(told, column)


def test_a_key_of_another_type_is_refused_or_read() -> None:
    numbers = built("count_min", pa.array([7, 8]))
    assert [ask("frequency", numbers, key)["value"] for key in (7, "7", Decimal(7), 9)] == [
        1.0,
        1.0,
        1.0,
        0.0,
    ]
    for payload, key in ((numbers, "seven"), (numbers, 7.5), (built("count_min", pa.array(["7"])), 7)):
        with pytest.raises(InvalidValue, match=r"`key` must be a (integer|string)"):
            ask("frequency", payload, key)
    with pytest.raises(InvalidValue, match="have 1 values"):
        ask("frequency", numbers, 7, 8)


def test_a_value_with_more_digits_than_a_double_lies_within_its_interval() -> None:
    whole = 2**53 + 1
    found = ask("quantile", built("quantiles", pa.array([whole] * 3)), 0.5)
    assert int(found["low"]) < whole < int(found["high"])
    assert found["note"].endswith("the interval holds it, and spillway ask tells all")
    assert ask("between", built("quantiles", pa.array([whole] * 3)), whole - 1, whole - 1)["value"] == 0.0


DAYS = pa.array([MOMENT + datetime.timedelta(days=day) for day in range(9)], pa.timestamp("us", "UTC"))
WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("top", (-1,), "`count` must be a whole number of at least 1, got -1"),
    ("top", (2.5,), "`count` must be a whole number"),
    ("top", ("many",), "`count` must be a whole number of at least 1, got 'many'"),
    ("top", ([1],), "`value` must be of a type among .* CAST it"),
    ("top", (), "`spillway_top` must be given payload, count, \\[confidence\\], got 'payload'"),
    ("top", (1, 0.9, 3), "`spillway_top` must be given payload"),
    ("top", (1, "high"), "`confidence` must lie between 0 and 1, got 'high'"),
    ("quantile", ("half",), "`share` must lie from 0 to 1, got 'half'"),
    ("quantile", (float("nan"),), "`share` must lie from 0 to 1"),
    ("quantile", (1.5,), "`share` must lie from 0 to 1, got 1.5"),
    ("between", (1,), "must be given payload, low, high"),
    ("between", (DAY, DAY), "`value` must be of type timestamp, .* CAST it to TIMESTAMP"),
    ("near_duplicate_pairs", (0.5,), "`at_least` must be a whole number"),
    ("near_duplicate_pairs", (9,), "`at_least` must lie from"),
    ("frequencies", ("JFK",), "`keys` must be an array of keys, got 'string'; write array"),
    ("join_size", (7,), "`spillway_join_size` must be given sketches, which are BINARY, got 'int64'"),
    ("distinct", (True,), "`confidence` must lie between 0 and 1"),
]


@pytest.mark.parametrize(("name", "values", "told"), WRONG)
def test_a_wrong_argument_is_refused_by_name_with_what_to_do(
    name: str, values: tuple[Any, ...], told: str
) -> None:
    payload = {
        "top": lambda: built("count_min, heavy_pct=1", pa.array(ORIGINS)),
        "quantile": lambda: built("quantiles", pa.array(range(9))),
        "between": lambda: built("quantiles", DAYS),
        "near_duplicate_pairs": lambda: built("pair_count", pa.array(ORIGINS), pa.array(ORIGINS)),
        "distinct": lambda: built("distinct", pa.array(ORIGINS)),
    }.get(name, lambda: built("count_min", pa.array(ORIGINS)))()
    with pytest.raises(InvalidValue, match=told):
        ask(name, payload, *values)


def test_what_is_no_sketch_or_of_another_kind_is_refused_by_name() -> None:
    numbers, days = built("quantiles", pa.array(range(9))), built("quantiles", DAYS)
    with pytest.raises(InvalidValue, match="`spillway_quantile` must be given sketches, which are BINARY"):
        ask("quantile", "text", 0.5)
    with pytest.raises(InvalidValue, match="to be combined"):
        sql.merge_payloads(pa.array([numbers, days]))
    with pytest.raises(InvalidValue, match="`spillway_merge` must be given sketches"):
        sql.merge_payloads(pa.array([7]))
    with pytest.raises(InvalidValue, match="`kind` must be count_min for this question"):
        ask("join_size", built("count_min", pa.array(ORIGINS)), built("pair_count", pa.array(ORIGINS)))
    with pytest.raises(InvalidValue, match="`memory_kib` must be at most 1,048,576"):
        built("count_min, memory_kib=100000000000", pa.array(ORIGINS))
    assert ask("between", days, None, MOMENT) is None


BUILT = (
    "SELECT g, spillway_sketch('count_min, heavy_pct=1', k) AS c, spillway_sketch('quantiles', x) AS q, "
    "spillway_sketch('count_min', at) AS a FROM keyed GROUP BY g"
)
KEYED = (
    "SELECT id % 3 AS g, CAST(id % 7 AS STRING) AS k, CAST(id AS DOUBLE) AS x, "
    "timestamp_micros(1593577800000007 + id * 1000000) AS at FROM range(1000)"
)
JOINED = (
    "WITH whole AS (SELECT spillway_merge(c) AS payload FROM sketched), "
    "asked AS (SELECT collect_set(k) AS keys FROM keyed GROUP BY pmod(hash(k), 2)) "
    "SELECT inline(arrays_zip(keys, spillway_frequencies(payload, keys))) AS (key, found) FROM whole CROSS JOIN asked"
)
"""Keys in groups: a payload for each group, not for each key."""


def asked_in(spark: Any) -> None:
    """The same in any session."""
    register_functions(spark)
    spark.sql(KEYED).createOrReplaceTempView("keyed")
    spark.sql(BUILT).createOrReplaceTempView("sketched")
    found = {row.key: row.found for row in spark.sql(JOINED).collect()}
    truth = Counter(str(place % 7) for place in range(1000))
    assert {key: found[key].value for key in found} == truth
    assert {found[key].rows for key in found} == {1000}
    at = "timestamp_micros(1593577800000007 + 3 * 1000000)"
    row = spark.sql(
        f"SELECT spillway_quantile(q, 0.5) AS q, spillway_top(c, 1) AS t, spillway_frequency(a, {at}).value AS a, "
        "a AS payload FROM sketched WHERE g = 0"
    ).first()
    assert row.q.low <= 498 <= row.q.high
    assert row.t[0].answer.rows == 334
    moment = MOMENT + datetime.timedelta(seconds=3)
    assert (row.a, wrap_sketch(read_sketch(bytes(row.payload))).frequency(moment).estimate) == (1.0, 1.0)


def test_they_are_built_merged_and_asked_in_a_session_of_pyspark(spark: Any) -> None:
    asked_in(spark)


@pytest.mark.long
def test_they_are_in_a_session_of_spark_connect_whatever_the_zone_of_its_workers() -> None:
    script = (
        "from pyspark.sql import SparkSession\nfrom tests.sketches.test_sql import asked_in\n"
        "spark = SparkSession.builder.remote('local[1]').config('spark.sql.session.timeZone', 'Asia/Kolkata')"
        ".getOrCreate()\nassert 'connect' in type(spark).__module__\nasked_in(spark)\nspark.stop()\n"
    )
    env = {**os.environ, "TZ": "America/New_York", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=HOME, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


IN_SQL = """
CREATE TEMPORARY VIEW two AS SELECT name, spillway_sql_sum(collect_list(counters)) AS counters,
  any_value(parameters) AS parameters FROM delta.`{lake}/sketches` WHERE kind = 'count_min' GROUP BY name;
SELECT to_json(named_struct(
  'top', spillway_sql_frequency(counters, parameters, spillway_sql_key_of_string('k1', 1)),
  'never', spillway_sql_frequency(counters, parameters, spillway_sql_key_of_string('never', 1)),
  'null', spillway_sql_frequency(counters, parameters, spillway_sql_key_of_string(NULL, 1)),
  'moments', (SELECT spillway_sql_frequency(counters, parameters,
      spillway_sql_key_of_timestamp(TIMESTAMP '2020-07-01 04:30:00.000007Z', 1)) FROM two WHERE name = 'at'),
  'self_join', spillway_sql_self_join(counters, parameters),
  'join', spillway_sql_join(counters, counters, parameters),
  'integer', spillway_sql_key_of_integer(-7, 1), 'double', spillway_sql_key_of_double(-0.0D, 1),
  'date', spillway_sql_key_of_date(DATE '2020-07-01', 1),
  'both', xxhash64(spillway_sql_header('string|integer', 1) ^ 1L, CAST(NULL AS STRING), 5L),
  'median', (SELECT kll_sketch_get_quantile_bigint(kll_merge_agg_bigint(payload), 0.5D)
    FROM delta.`{lake}/sketches` WHERE kind = 'quantiles'),
  'different', (SELECT hll_sketch_estimate(hll_union_agg(payload)) FROM delta.`{lake}/sketches` WHERE kind = 'distinct')
)) FROM two WHERE name = 'k';
"""


@pytest.mark.long
def test_a_plain_shell_of_sql_answers_without_python(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    tables = Tables(Settings.from_environment({"SPILLWAY_HOME": str(HOME), "SPILLWAY_LAKE": str(tmp_path)}))
    specs = [
        SketchSpec("count_min", ("k",), ("string",), heavy_pct=None, memory_kib=16),
        SketchSpec("count_min", ("at",), ("timestamp",), heavy_pct=None, memory_kib=2),
        SketchSpec("quantiles", ("n",), ("integer",)),
        SketchSpec("distinct", ("n",), ("integer",)),
    ]
    rows, all_keys = [], []
    for batch in (1, 2):
        keys = [None if key > 4000 else f"k{key}" for key in chance.zipf(1.3, 3000).tolist()]
        table = pa.table(
            {"k": keys, "n": range(3000), "at": pa.array([MOMENT] * 3000, pa.timestamp("us", "UTC"))}
        )
        all_keys += keys
        for spec in specs:
            part: Any = spec.kind_object.empty_part(spec)
            spec.kind_object.add_rows(part, spec, table)
            whole = spec.kind_object.finish(spec, part, {})
            counters = spec.kind_object.counters(whole)
            rows.append(spec.row("s", batch, DAY, 3000, whole.to_bytes(), counters=counters))
    for spec in specs:
        mine = [row for row in rows if (row["kind"], row["name"]) == (spec.kind, spec.name)]
        tables.at("sketches").replace(mine, stream="s", kind=spec.kind, name=spec.name)
    conf = {**spark_conf(), "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
    (tmp_path / "spark.conf").write_text(defaults_file(conf))
    (tmp_path / "questions.sql").write_text(IN_SQL.format(lake=tmp_path))
    functions = HOME / "lib" / "spillway" / "sketches" / "functions.sql"
    done = subprocess.run(
        [
            "spark-sql", "--master", "local[1]", "--properties-file", str(tmp_path / "spark.conf"),
            "-i", str(functions), "-f", str(tmp_path / "questions.sql"),
        ],
        cwd=tmp_path, env={**os.environ, "TZ": "America/New_York", "PYSPARK_PYTHON": "/no/python"},
        capture_output=True, text=True,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"top"')]
    assert lines, done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(lines[-1])
    counts = Counter(all_keys)
    ours = load_stored_sketch(rows, "s", "k")
    for name, key in (("top", "k1"), ("never", "never"), ("null", None)):
        theirs, mine = found[name], ours.frequency(key, estimator="cm")
        assert (theirs["low"], theirs["high"], theirs["rows"]) == (mine.low, mine.high, 6000)
        assert theirs["low"] <= counts[key] <= theirs["high"]
        corrected = ours.frequency(key, estimator="cmm_mean").estimate
        assert theirs["value"] == pytest.approx(min(max(corrected, mine.low), mine.high))
    assert found["moments"]["value"] == 6000
    # SQL bounds what ours reckons of heavy keys
    for name, mine in (("self_join", ours.self_join_size()), ("join", ours.join_size(ours))):
        theirs = found[name]
        assert theirs["value"] == pytest.approx(mine.estimate)
        assert theirs["low"] <= mine.low <= mine.high <= theirs["high"]
    signed = np.array(
        [
            fingerprint([-7], ["integer"], 1), fingerprint([-0.0], ["double"], 1),
            fingerprint([MOMENT.date()], ["date"], 1), fingerprint([None, 5], ["string", "integer"], 1),
        ],
        np.uint64,
    ).view(np.int64)  # fmt: skip
    assert [found[name] for name in ("integer", "double", "date", "both")] == signed.tolist()
    assert found["median"] == pytest.approx(1500, abs=30)
    assert found["different"] == pytest.approx(3000, rel=0.06)

"""Questions to stored sketches: ranges of days, keys by value, refusals that say what can answer."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import InvalidValue
from spillway.sketches.hashing import fingerprint
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.kinds.distinct import DistinctKind
from spillway.sketches.query import load_stored_sketch, merge_sketches, read_sketch, wrap_sketch
from spillway.sketches.specification import SketchSpec
from spillway.sketches.values import as_value, coerce, ordinal

DAY = datetime.date(2013, 1, 1)
ORIGIN = SketchSpec("count_min", ("origin",), ("string",))
CARRIER = SketchSpec("count_min", ("carrier",), ("string",))
TEMP = SketchSpec("quantiles", ("temp",), ("double",))
PAIRS = SketchSpec("pair_count", ("a", "b", "c"), ("string",) * 3)
NAMES = ("JFK", "LGA", None)


def row(spec: SketchSpec, batch: int, values: list[Any]) -> dict[str, Any]:
    sketch: Any = spec.empty()
    if spec.kind == "count_min":
        keys = np.array([fingerprint([v], spec.types, spec.seed) for v in values], dtype=np.uint64)
        sketch.update(keys)
        if isinstance(sketch, HeavyHitters):
            sketch.label(keys, [[value] for value in values])
    elif spec.kind == "pair_count":
        keys = [[fingerprint([v], ["string"], spec.seed) for v in record] for record in values]
        sketch.update(np.array(keys, dtype=np.uint64), np.arange(len(values)) + 1000 * batch)
    else:
        sketch.update(values)
    date = DAY + datetime.timedelta(days=batch - 1)
    return spec.row("weather", batch, date, len(values), sketch.to_bytes())


DAYS = [list(np.random.default_rng(day).choice(NAMES, 300, p=[0.5, 0.3, 0.2])) for day in (1, 2, 3)]
ROWS = [row(ORIGIN, day, values) for day, values in enumerate(DAYS, 1)]
ROWS += [row(TEMP, day, list(np.arange(100.0) + 100 * day)) for day in (1, 2)]
ROWS += [row(PAIRS, 1, [["x", "y", "z"], ["x", "y", "w"], ["q", "r", None], ["q", "r", None]])]


def test_days_merge_into_any_range_and_the_answer_says_which() -> None:
    for first, last in ((1, 1), (2, 3), (1, 3)):
        dates = [DAY + datetime.timedelta(days=day - 1) for day in (first, last)]
        origins = load_stored_sketch(ROWS, "weather", "origin", from_date=dates[0], to_date=dates[1])
        truth = Counter(value for day in DAYS[first - 1 : last] for value in day)
        for name in NAMES:
            answer = origins.frequency(name)
            assert answer.low <= truth[name] <= answer.high
            assert answer.estimate == truth[name]
            assert (answer.covers.from_date, answer.covers.to_date) == (str(dates[0]), str(dates[1]))
            assert answer.covers.rows == 300 * (last - first + 1)
    assert load_stored_sketch(ROWS, "weather", "origin", batches=[2]).covers.batches == 1


def test_the_top_keys_come_with_their_values_and_null_is_one_of_them() -> None:
    top = load_stored_sketch(ROWS, "weather", "origin").top(3)
    truth = Counter(value for day in DAYS for value in day).most_common()
    assert [heavy.key for heavy in top] == [(name,) for name, _ in truth]
    assert [heavy.answer.estimate for heavy in top] == [count for _, count in truth]
    assert "complete above 0.1 %" in str(top[0].answer)


def test_counts_are_asked_without_a_compiler() -> None:
    """It takes a second and 60 MB to load; the answers are those of a process that has counted."""
    sent = [
        {**one, "payload": one["payload"].hex(), "batch_date": str(one["batch_date"])} for one in ROWS[:3]
    ]
    code = (
        "import datetime, json, sys\n"
        "import spillway.cli.read, spillway.streams.stored_sketches\n"
        "from spillway.sketches.query import load_stored_sketch\n"
        "day = datetime.date.fromisoformat\n"
        "rows = json.load(sys.stdin)\n"
        "rows = [{**r, 'payload': bytes.fromhex(r['payload']), 'batch_date': day(r['batch_date'])} for r in rows]\n"
        "origin = load_stored_sketch(rows, 'weather', 'origin')\n"
        "print([str(origin.frequency(name)) for name in ('JFK', 'LGA', None, 'EWR')])\n"
        "print([str(heavy.answer) for heavy in origin.top(3)], origin.self_join_size(), origin.skew())\n"
        "print(sorted({'numba', 'pyspark', 'datasketches'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(sent), capture_output=True, text=True, check=True
    )
    origin = load_stored_sketch(ROWS, "weather", "origin")
    assert found.stdout.splitlines() == [
        str([str(origin.frequency(name)) for name in (*NAMES, "EWR")]),
        f"{[str(one.answer) for one in origin.top(3)]} {origin.self_join_size()} {origin.skew()}",
        "[]",
    ]


def test_joins_skew_distinct_quantiles_and_pairs_are_answered() -> None:
    origins = load_stored_sketch(ROWS, "weather", "origin")
    counts = Counter(value for day in DAYS for value in day)
    squares = sum(count**2 for count in counts.values())
    assert origins.self_join_size().estimate == pytest.approx(squares, rel=0.01)
    assert origins.skew().estimate == pytest.approx(900**2 / squares, rel=0.01)
    other = wrap_sketch(
        load_stored_sketch([row(CARRIER, 1, ["JFK", "JFK", "UA"])], "weather", "carrier").sketch
    )
    answer = origins.join_size(other)
    assert answer.low <= 2 * counts["JFK"] <= answer.high
    assert "weather/origin x" in answer.note
    temps = load_stored_sketch(ROWS, "weather", "temp", "quantiles")
    median, middle = temps.quantile(0.5), temps.between(150.0, 249.0)
    assert median.low <= 199.0 <= median.high
    assert middle.low <= 100 <= middle.high
    pairs = load_stored_sketch(ROWS, "weather", "a+b+c", "pair_count")
    found, a_row = pairs.near_duplicate_pairs(), pairs.near_duplicates_per_row()
    assert found.low <= 2 <= found.high
    assert a_row.low <= 2 / 4 <= a_row.high


def test_questions_a_sketch_cannot_answer_name_the_kind_that_can() -> None:
    origin, temps = (
        load_stored_sketch(ROWS, "weather", "origin"),
        load_stored_sketch(ROWS, "weather", "temp", "quantiles"),
    )
    plain = wrap_sketch(origin.sketch.counts)  # type: ignore[union-attr]
    for question, kind in (
        (lambda: temps.frequency("JFK"), "count_min"),
        (lambda: temps.top(3), "count_min"),
        (lambda: plain.top(3), "heavy_pct"),
        (lambda: origin.quantile(0.5), "quantiles"),
        (lambda: origin.near_duplicate_pairs(), "pair_count"),
    ):
        with pytest.raises(InvalidValue, match=kind):
            question()
    seeded = wrap_sketch(SketchSpec("count_min", ("origin",), ("string",), seed=2).empty())
    with pytest.raises(InvalidValue, match="`seed` must be 1 for both"):
        origin.join_size(seeded)
    with pytest.raises(InvalidValue, match="have 1 values"):
        origin.frequency("JFK", "LGA")
    with pytest.raises(InvalidValue, match="be a string"):
        origin.frequency(7)


def two(kind: str, *made: tuple[str, str]) -> SketchSpec:
    return SketchSpec(kind, tuple(name for name, _ in made), tuple(types for _, types in made), memory_kib=32)


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ([("k", "integer")], [("k", "double")], "of the types integer.*got 'k double'.*from attribute 1 on"),
        (
            [("a", "string"), ("k", "integer")],
            [("a", "string"), ("k", "double")],
            "got 'a string, k double'.*from attribute 2 on",
        ),
        ([("k", "integer")], [("k", "integer"), ("x", "integer")], "from attribute 2 on"),
        ([("k", "integer"), ("x", "integer")], [("x", "integer"), ("k", "integer")], "in the order of k.x"),
    ],
)
@pytest.mark.parametrize("kind", ["count_min", "pair_count"])
def test_sketches_that_cannot_meet_are_refused_and_what_differs_is_said(
    kind: str, one: list[tuple[str, str]], other: list[tuple[str, str]], told: str
) -> None:
    mine, theirs = (wrap_sketch(two(kind, *made).empty()) for made in (one, other))
    with pytest.raises(InvalidValue, match=told):
        mine.join_size(theirs) if kind == "count_min" else mine.near_duplicate_join(theirs)


def test_a_join_over_attributes_of_other_names_says_which_meet() -> None:
    sketched = ([("k", "integer"), ("x", "date")], [("k", "integer"), ("day", "date")])
    mine, theirs = (wrap_sketch(two("pair_count", *made).empty()) for made in sketched)
    assert mine.near_duplicate_join(theirs).note.endswith(", x with day")


def test_streams_sketched_at_a_lower_rate_draw_apart_and_so_can_be_joined() -> None:
    entry = SimpleNamespace(
        kind="pair_count", attributes=["a", "b", "c"], rate=0.5, at_least=1, memory_kib=256
    )
    kinds = dict.fromkeys("abc", "string")
    values = [[f"{i % 40}", f"{i % 7}", f"{i % 3}"] for i in range(400)]
    spec, again = (SketchSpec.from_contract(entry, kinds, stream) for stream in ("left", "right"))
    assert (spec.side, SketchSpec.from_contract(entry, kinds, "left").side) != (again.side, again.side)
    mine, theirs = (wrap_sketch(read_sketch(row(one, 1, values)["payload"])) for one in (spec, again))
    truth = sum(sum(x == y for x, y in zip(one, two, strict=True)) >= 2 for one in values for two in values)
    answer = mine.near_duplicate_join(theirs, 2)
    assert answer.low <= truth <= answer.high
    with pytest.raises(InvalidValue, match="of one stream, ask for its near-duplicates"):
        mine.near_duplicate_join(mine)


def test_missing_sketches_and_dates_are_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidValue, match="be one that the stream has: count_min of origin,"):
        load_stored_sketch(ROWS, "weather", "dest")
    with pytest.raises(InvalidValue, match="touch 2013-01-01 to 2013-01-03"):
        load_stored_sketch(ROWS, "weather", "origin", from_date=datetime.date(2014, 1, 1))
    with pytest.raises(InvalidValue, match="at least one"):
        merge_sketches([])
    with pytest.raises(InvalidValue, match="one for all that is merged"):
        merge_sketches([ORIGIN.empty(), TEMP.empty()])


def test_values_from_sql_and_command_lines_take_the_attributes_type() -> None:
    assert coerce("7", "integer") == 7
    assert coerce("7.5", "double") == 7.5
    assert coerce(7, "double") == 7.0
    assert coerce(Decimal(7), "integer") == 7
    assert coerce("2013-01-01", "date") == DAY
    assert coerce("2013-01-01T00:00:00", "timestamp") == datetime.datetime(2013, 1, 1)
    assert coerce("true", "boolean") is True
    assert coerce("seven", "integer") == "seven"
    assert coerce(None, "integer") is None
    assert ordinal(DAY) == 15706.0
    assert ordinal(datetime.datetime(1970, 1, 1, 0, 0, 1)) == 1e6


def test_a_method_that_no_kind_has_is_no_attribute() -> None:
    assert not hasattr(load_stored_sketch(ROWS, "weather", "origin"), "median")


def distinct_of(spec: SketchSpec, batch: int, table: pa.Table) -> dict[str, Any]:
    sketch: Any = spec.empty()
    spec.kind_object.add_rows(sketch, spec, table)
    date = DAY + datetime.timedelta(days=batch - 1)
    return spec.row("weather", batch, date, table.num_rows, sketch.to_bytes())


def test_a_contracts_seed_is_none_of_the_librarys_and_doubles_no_key() -> None:
    table = pa.table({"a": [f"{i}" for i in range(200)], "b": np.arange(200.0)})
    for names, types in ((("b",), ("double",)), (("a", "b"), ("string", "double")), (("a",), ("string",))):
        made = [SketchSpec("distinct", names, types, seed=seed) for seed in (1, 7)]
        rows = [distinct_of(spec, batch, table) for batch, spec in enumerate(made, 1)]
        assert [row["seed"] for row in rows] == [1, 1]
        found = load_stored_sketch(rows, "weather", "+".join(names), "distinct").distinct()
        assert (found.estimate, found.note) == (pytest.approx(200, rel=0.05), "")


def test_keys_that_were_hashed_apart_are_counted_from_the_most_to_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DistinctKind, "seeded", True)  # as it once was
    tables = [pa.table({"b": np.arange(200.0)}), pa.table({"b": np.arange(150.0, 250.0)})]
    made = [SketchSpec("distinct", ("b",), ("double",), seed=seed) for seed in (1, 7)]
    rows = [
        distinct_of(spec, batch, table)
        for batch, (spec, table) in enumerate(zip(made, tables, strict=True), 1)
    ]
    found = load_stored_sketch(rows, "weather", "b", "distinct").distinct()
    assert 190 < found.low <= 200 < 250 < 300 <= found.high < 320
    assert found.low < found.estimate < found.high
    assert "over 2 ranges whose keys are hashed apart" in found.note
    # that all ranges hold at 95 %, each is asked at 97.5 %: three standard errors, where two do for one
    surely = [load_stored_sketch([row], "weather", "b", "distinct").distinct(0.975) for row in rows]
    assert (found.low, found.high) == (max(one.low for one in surely), sum(one.high for one in surely))
    # texts are counted as they are: every seed's unite
    texts = [SketchSpec("distinct", ("a",), ("string",), seed=seed) for seed in (1, 7)]
    rows = [distinct_of(spec, batch, pa.table({"a": ["x", "y"]})) for batch, spec in enumerate(texts, 1)]
    assert load_stored_sketch(rows, "weather", "a", "distinct").distinct().estimate == pytest.approx(2)


def test_an_empty_text_is_a_value_and_null_is_none() -> None:
    spec = SketchSpec("distinct", ("a",), ("string",))
    rows = [
        distinct_of(spec, 1, pa.table({"a": ["", "", None, "x"]})),
        distinct_of(spec, 2, pa.table({"a": [""]})),
    ]
    assert load_stored_sketch(rows, "weather", "a", "distinct").distinct().estimate == pytest.approx(2)
    assert load_stored_sketch(rows[1:], "weather", "a", "distinct").distinct().estimate == pytest.approx(1)


def ordered(kind: str, values: list[Any]) -> Any:
    spec = SketchSpec("quantiles", ("v",), (kind,))
    part: Any = spec.kind_object.empty_part(spec)
    spec.kind_object.add_rows(part, spec, pa.table({"v": pa.array(values)}))
    # bytes alone tell of which type the values were
    return wrap_sketch(read_sketch(spec.kind_object.finish(spec, part, {}).to_bytes()))


MOMENTS = [datetime.datetime(2013, 1, day, 12, tzinfo=datetime.UTC) for day in range(1, 11)]


@pytest.mark.parametrize(
    ("kind", "values", "ends", "told"),
    [
        ("timestamp", MOMENTS, (DAY, DAY), "be of type timestamp, .* CAST it to TIMESTAMP"),
        ("timestamp", MOMENTS, (0, 10**18), "be of type timestamp"),
        ("date", [DAY], (MOMENTS[0], MOMENTS[1]), "be of type date, .* CAST it to DATE"),
        ("integer", [1, 2], (DAY, DAY), "be of type integer, .* give a number"),
        ("double", [1.0], (True, True), "be of type double"),
        ("boolean", [True], (0, 1), "be of type boolean"),
        ("integer", [1, 2], ("one", "two"), "be of type integer, got 'one'"),
        ("double", [1.0], (None, 1.0), "be of type double, got None"),
    ],
)
def test_a_range_of_another_type_is_refused_by_name(
    kind: str, values: list[Any], ends: Any, told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        ordered(kind, values).between(*ends)


def test_a_range_is_counted_on_the_axis_of_its_attribute() -> None:
    moments, numbers = ordered("timestamp", MOMENTS), ordered("integer", [1, 2, 3])
    assert moments.between("2013-01-02T12:00", MOMENTS[3]).estimate == 3
    assert ordered("date", [DAY]).between(DAY, "2013-01-01").estimate == 1
    assert [
        numbers.between(low, high).estimate for low, high in ((0.5, 2.5), (1.5, 1.75), (2, Decimal(9)))
    ] == [2, 0, 2]
    assert numbers.between(float("-inf"), 10**30).estimate == 3
    assert ordered("double", [0.5, 2.0**53]).between(2**53 + 1, 2**60).estimate == 0
    with pytest.raises(InvalidValue, match="NaN has no order"):
        numbers.between(float("nan"), 1)


def test_a_range_holds_no_fewer_values_than_none_and_no_more_than_there_are() -> None:
    many = ordered("integer", list(range(50_000)))
    nothing, everything = many.between(60_000, 70_000), many.between(0, 50_000)
    assert nothing.low == nothing.estimate == 0 < nothing.high
    assert everything.low < everything.estimate == everything.high == 50_000


@pytest.mark.parametrize("kind", ["integer", "timestamp"])
def test_no_digit_of_a_whole_number_is_lost(kind: str) -> None:
    far = datetime.datetime(9999, 1, 1, 0, 0, 0, 123457, tzinfo=datetime.UTC)
    values = [2**53 + 1, 2**53 + 3, 2**62 + 1] if kind == "integer" else [far]
    whole = values if kind == "integer" else [ordinal(far)]
    sketch = ordered(kind, values)
    for share, truth in ((0.0, whole[0]), (0.5, whole[len(whole) // 2]), (1.0, whole[-1])):
        found = sketch.quantile(share)
        assert (found.estimate, type(found.low), type(found.high)) == (truth, int, int)
        assert found.low <= truth <= found.high
    assert as_value(sketch.quantile(0.0).estimate, kind) == values[0]
    if kind == "integer":
        assert sketch.between(2**53 + 2, 2**62).estimate == 1


def test_a_filter_is_asked_by_its_newest_state_and_a_no_is_certain_only_when_it_is() -> None:
    spec = SketchSpec("alternating_bloom", ("k",), ("integer",), within=100)
    states, sketch = [], spec.empty()
    for batch, day in ((1, 3), (2, 1)):
        keys = [fingerprint([10 * batch + i], spec.types, spec.seed) for i in range(5)]
        sketch.observe(np.array(keys, dtype=np.uint64))  # type: ignore[attr-defined]
        states.append(spec.row("weather", batch, DAY.replace(day=day), 5, sketch.to_bytes()))
    found: Any = load_stored_sketch(states, "weather", "k", "alternating_bloom")
    # the later batch is of an earlier date
    assert found.sketch.digest() == sketch.digest()
    assert [found.seen(key).estimate for key in (10, 21, "22", Decimal(23))] == [1.0] * 4
    assert (found.seen(99).estimate, found.seen(99).high) == (0.0, 0.0)
    found = load_stored_sketch(states, "weather", "k", "alternating_bloom", missing=2)
    assert (found.seen(99).estimate, found.seen(99).high) == (0.0, 1.0)
    assert "not certain: 2 batches came that the filter has not seen" in found.seen(99).note
    with pytest.raises(InvalidValue, match="`dates` must be omitted"):
        load_stored_sketch(states, "weather", "k", "alternating_bloom", from_date=DAY)


def test_sparks_own_functions_read_what_is_stored_and_unite_with_it(spark: Any) -> None:
    values = list(range(2000))
    made = {
        "doubles": SketchSpec("quantiles", ("d",), ("double",), memory_kib=2),
        "integers": SketchSpec("quantiles", ("d",), ("integer",), memory_kib=2),
        "distinct": SketchSpec("distinct", ("d",), ("integer",)),
        "texts": SketchSpec("distinct", ("d",), ("string",)),
    }
    payloads = {}
    for name, spec in made.items():
        column = pa.array(values).cast({"doubles": pa.float64(), "texts": pa.string()}.get(name, pa.int64()))
        part = spec.kind_object.empty_part(spec)
        spec.kind_object.add_rows(part, spec, pa.table({"d": column}))
        payloads[name] = spec.kind_object.finish(spec, part, {}).to_bytes()
    spark.createDataFrame([payloads]).createOrReplaceTempView("library_sketches")
    found = spark.sql(
        "SELECT kll_sketch_get_quantile_double(doubles, 0.5D) AS middle, kll_sketch_get_n_bigint(integers) AS n, "
        "kll_sketch_get_quantile_bigint(integers, 0.25D) AS quarter, hll_sketch_estimate(distinct) AS different, "
        "hll_sketch_estimate(hll_union(distinct, (SELECT hll_sketch_agg(id) FROM range(1000, 3000)))) AS all, "
        "hll_sketch_estimate(hll_union(texts, (SELECT hll_sketch_agg(CAST(id AS STRING)) FROM range(3000)))) AS both "
        "FROM library_sketches"
    ).first()
    assert (found.n, found.middle) == (2000, pytest.approx(1000, abs=20))
    assert found.quarter == pytest.approx(500, abs=20)
    assert found.different == pytest.approx(2000, rel=0.06)
    assert [found["all"], found.both] == pytest.approx([3000, 3000], rel=0.06)


def test_a_counted_key_is_answered_as_counted_but_where_the_tables_estimate_is_asked_for() -> None:
    sketch: Any = ORIGIN.empty()
    sketch.context = ORIGIN.context
    (key,) = keys = np.array([fingerprint(["JFK"], ORIGIN.types, ORIGIN.seed)], dtype=np.uint64)
    sketch.update(np.repeat(keys, 30))
    sketch.label(keys, [["JFK"]])
    sketch.exact = {int(key): 29}
    asked = wrap_sketch(sketch)
    assert [asked.frequency("JFK", estimator=by).estimate for by in ("auto", "cm")] == [29, 30]
    assert asked.frequencies([pa.array(["JFK", "LGA"])]).estimate.tolist() == [29, 0]
    assert asked.frequencies([pa.array(["JFK"])]).low.tolist() == [29]


def test_of_ranges_with_other_shares_the_top_is_complete_above_the_largest() -> None:
    rows = [ROWS[0], row(replace(ORIGIN, heavy_pct=5.0, memory_kib=16), 2, DAYS[1])]
    top = load_stored_sketch(rows, "weather", "origin").top(1)
    assert top[0].answer.note == "complete above 5 % of the rows; added up over 2 ranges"
    both, truth = (
        load_stored_sketch(rows, "weather", "origin").frequency("JFK"),
        sum(day.count("JFK") for day in DAYS[:2]),
    )
    assert both.low <= both.estimate == truth <= both.high


def test_a_skew_lies_within_its_interval() -> None:
    found = load_stored_sketch(ROWS, "weather", "origin").skew()
    assert found.low < found.estimate < found.high


def test_keys_of_other_types_are_none_of_the_same_sketch() -> None:
    texts, numbers = ORIGIN.empty(), replace(ORIGIN, types=("integer",)).empty()
    texts.context, numbers.context = ORIGIN.context, replace(ORIGIN, types=("integer",)).context
    alike = ORIGIN.kind_object.merge_key
    assert alike(texts) == alike(texts.merge(texts))
    assert alike(texts) != alike(numbers)


def test_batches_that_cannot_be_read_are_missing_as_many_as_they_were_and_a_day_is_as_many_as_it_sums_up() -> (
    None
):
    torn = {**ROWS[1], "payload": b"torn", "batches": 7}
    day = {**ROWS[2], "batches": 5}
    covers = load_stored_sketch([ROWS[0], torn, day], "weather", "origin", missing=2).covers
    assert (covers.batches, covers.missing) == (6, 9)

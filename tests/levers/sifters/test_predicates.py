"""Predicates as boxes: they hold what SQL's WHERE holds, row for row, and refuse the rest by name."""

from __future__ import annotations

import math
from datetime import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.predicates import compared_words, named_columns, parse_predicate, parse_sql

NUMBERS = (-math.inf, -2.5, -0.0, 0.0, 1.0, 1.0000000000000002, 3.0, 7.25, math.inf, math.nan, None)
WORDS = ("a", "b", "ö", "", "zz", None)
ROWS = pa.table(
    {
        "x": pa.array([NUMBERS[i % 11] for i in range(660)], pa.float64()),
        "n": pa.array([(None, -3, 0, 1, 2, 5)[i % 6] for i in range(660)], pa.int64()),
        "s": pa.array([WORDS[(i // 6) % 6] for i in range(660)], pa.string()),
        "f": pa.array([(None, True, False)[(i // 36) % 3] for i in range(660)], pa.bool_()),
    }
)
BASE = {
    "x": Dimension("x", "double"),
    "n": Dimension("n", "integer"),
    "s": Dimension("s", "string"),
    "f": Dimension("f", "boolean"),
}


def parsed(text: str):  # type: ignore[no-untyped-def]
    words = compared_words(parse_sql(text), ["s"])
    return parse_predicate(
        text, {name: one.with_words(sorted(words.get(name, ()))) for name, one in BASE.items()}
    )


negated = st.sampled_from(["", "not "])
column = st.sampled_from("xn")
number = st.sampled_from(["-2.5", "0", "1", "1.0", "1.5", "3", "7.25", "-3", "2 + 3", "1e0", "-(3)"])
compare = st.sampled_from(["<", "<=", "=", "!=", "<>", ">", ">="])
word = st.sampled_from(["'a'", "'b'", "'ö'", "''", "'never'"])
leaf = st.one_of(
    st.builds(lambda c, o, v: f"{c} {o} {v}", st.sampled_from("xn"), compare, number),
    st.builds(lambda c, o, v: f"{v} {o} {c}", st.sampled_from("xn"), compare, number),
    st.builds(lambda c, n, a, b: f"{c} {n}between {a} and {b}", column, negated, number, number),
    st.builds(lambda c, n, a, b: f"{c} {n}in ({a}, {b})", column, negated, number, number),
    st.builds(lambda o, v: f"s {o} {v}", st.sampled_from(["=", "!="]), word),
    st.builds(lambda n, a, b: f"s {n}in ({a}, {b})", negated, word, st.one_of(word, st.just("null"))),
    st.builds(lambda c, n: f"{c} is {n}null", st.sampled_from("xnsf"), st.sampled_from(["", "not "])),
    st.sampled_from(["f", "f = true", "f != true", "f is true", "true", "false"]),
)  # fmt: skip
predicate = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.builds(lambda a: f"not ({a})", inner),
        st.builds(lambda a, o, b: f"({a} {o} {b})", inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=6,
)


def assert_impossible(text: str, expected: np.ndarray) -> None:
    assert not expected.any(), f"refused though rows satisfy it: {text}"


@settings(max_examples=100, deadline=None)
@given(predicate)
def test_boxes_hold_the_rows_of_which_a_where_is_true(text: str) -> None:
    """DuckDB judges: it orders NaN and treats nulls as Spark does."""
    ROWS_ = ROWS  # noqa: F841 - the query reads it
    true = duckdb.sql(f"SELECT coalesce({text}, false) AS it FROM ROWS_").arrow()
    expected = np.asarray(pa.table(true)["it"])
    try:
        found = parsed(text)
    except InvalidValue:
        assert_impossible(text, expected)
        return
    keys = [one.keys_of(ROWS[one.name]) for one in found.dimensions]
    assert found.matches(keys).tolist() == expected.tolist()
    boxes = found.boxes
    inside = np.stack(
        [((boxes[:, d, 0, None] <= k) & (k < boxes[:, d, 1, None])) for d, k in enumerate(keys)]
    )
    assert (
        inside.all(axis=0).sum(axis=0).tolist() == expected.astype(int).tolist()
    )  # each row in one box at most


def test_null_safe_equality_holds_nulls_too() -> None:
    keys = BASE["n"].keys_of(ROWS["n"])
    absent = np.asarray(ROWS["n"].combine_chunks().is_null())
    found = parse_predicate("n <=> null", {"n": BASE["n"]})
    assert found.matches([keys]).tolist() == absent.tolist()
    assert parse_predicate("not (n <=> 2)", {"n": BASE["n"]}).matches([keys])[absent].all()


def test_an_order_that_the_contract_lists_is_the_order_of_comparisons() -> None:
    severity = Dimension("severity", "string", ("INFO", "WARN", "ERROR", "FATAL"), ordered=True)
    keys = severity.keys_of(pa.chunked_array([["FATAL", "WARN", "INFO", "odd", None, "ERROR"]]))
    at_least = parse_predicate("severity >= 'ERROR'", {"severity": severity})
    assert at_least.matches([keys]).tolist() == [True, False, False, False, False, True]
    below = parse_predicate("not severity >= 'ERROR'", {"severity": severity})
    assert below.matches([keys]).tolist() == [False, True, True, False, False, False]


def test_times_and_days_are_read_on_the_clock_of_the_contract() -> None:
    at = Dimension("at", "timestamp", timezone="America/New_York")
    micros = pa.array([1_577_854_800_000_000 - 1, 1_577_854_800_000_000], pa.int64()).cast(
        pa.timestamp("us", "UTC")
    )
    found = parse_predicate("at >= timestamp '2020-01-01 00:00:00'", {"at": at})
    assert found.matches([at.keys_of(pa.chunked_array([micros]))]).tolist() == [False, True]
    assert parse_predicate("at >= '2020-01-01T05:00:00Z'", {"at": at}).products == found.products
    day = Dimension("day", "date")
    days = pa.chunked_array([pa.array([18_261, 18_262], pa.int32()).cast(pa.date32())])
    assert parse_predicate("day < date'2020-01-01'", {"day": day}).matches([day.keys_of(days)]).tolist() == [
        True,
        False,
    ]


def test_whole_numbers_are_exact_beyond_what_a_float_holds() -> None:
    keys = BASE["n"].keys_of(pa.chunked_array([[2**53, 2**53 + 1]]))
    assert parse_predicate(f"n > {2**53}", {"n": BASE["n"]}).matches([keys]).tolist() == [False, True]


LARGEST = 2**63 - 1
LINES = {
    "x": ("double", pa.float64(), [0.1, 0.3, 0.1 * 3, 0.6, 0.1 + 0.2 + 0.3]),
    "n": ("integer", pa.int64(), [2**53, 2**53 + 1, LARGEST, LARGEST - 2, -LARGEST - 1, -LARGEST + 1, None]),
    "at": ("timestamp", pa.timestamp("us", "UTC"), [datetime(2020, 1, 1, hour) for hour in (0, 11, 13)]),
}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("x = 0.1 * 3", [1]),
        ("x = 0.1 * 3e0", [2]),
        ("x = 0.1e0 + 0.2e0 + 0.3e0", [4]),
        ("x = cast(0.1 as double)", [0]),
        ("x = 0.1BD", [0]),
        ("x = cast(-0.1 as double) * -1", [0]),
        ("n > 9007199254740992e0", [2, 3]),  # whole numbers are compared with a double as doubles
        ("n > 9007199254740992", [1, 2, 3]),
        ("n in (9007199254740992, 5e-1)", [0, 1]),  # so is a list with a double in it
        ("n in (9007199254740992, 0.5)", [0]),
        ("n >= 9223372036854775807e0", [2, 3]),
        ("n <= cast('nan' as double)", [0, 1, 2, 3, 4, 5]),
        ("n < cast('inf' as double)", [0, 1, 2, 3, 4, 5]),
        ("n = 9223372036854775807", [2]),  # so much stands where somebody means none
        ("n <> 9223372036854775807", [0, 1, 3, 4, 5]),
        ("n < -9223372036854775806", [4]),
        ("n = -9223372036854775808", [4]),
        ("at >= date '2020-01-01'", [0, 1, 2]),
        ("at >= timestamp_ntz '2020-01-01 12:00:00'", [2]),
    ],
)
def test_constants_are_what_spark_makes_of_them(text: str, rows: list[int]) -> None:
    """By Spark 4.2, row for row."""
    name = text.split()[0]
    kind, type_, values = LINES[name]
    of = Dimension(name, kind)
    found = parse_predicate(text, {name: of}).matches(
        [of.keys_of(pa.chunked_array([pa.array(values, type_)]))]
    )
    assert np.flatnonzero(found).tolist() == rows


@pytest.mark.parametrize(
    "text",
    [
        "x > 0.1F",
        "x < cast(2.7 as int)",
        "x < cast(2.5 as decimal)",
        "x < cast('0.1' as double)",
        "x < 1e400",
        f"x < 1{'0' * 400}",
        "at > cast('2020-01-01 12:30:00' as date)",
        "at > date '2020-01-01 12:30:00'",
        "at > timestamp_ntz '2020-01-01 12:30:00+02:00'",
    ],
)
def test_a_constant_that_spark_rounds_or_cuts_is_refused(text: str) -> None:
    name = text.split()[0]
    with pytest.raises(InvalidValue, match="compare a dimension with a constant"):
        parse_predicate(text, {name: Dimension(name, LINES[name][0])})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x > 3 and y < 2", "declared dimensions \\(x, n, s, f\\), got 'y < 2'; name y"),
        ("x + 1 > 3", "got 'x \\+ 1 > 3'"),
        ("abs(x) > 3", "got 'ABS\\(x\\) > 3'"),
        ("x > n", "compare a dimension with a constant, got 'x > n'"),
        ("s like 'a%'", "got \"s LIKE 'a%'\""),
        ("s > 'a'", "have an order to be compared by.*list its values from least to most"),
        ("x > 'abc'", "be compared with a number"),
        ("n in (select 1)", "got 'n IN \\(SELECT 1\\)'"),
        ("x >", "must be a Spark SQL condition"),
        ("x > 1 order by x", "must be one condition"),
        ("", "write e.g."),
        ("x > 3 and x < 2", "possible to satisfy"),
        ("n > 2 and n < 3", "possible to satisfy"),
        ("x", "got 'x'"),
        ("x > current_date()", "got"),
    ],
)
def test_what_is_no_comparison_of_a_dimension_is_refused_with_its_part(text: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        parsed(text)


def test_a_list_of_everything_is_refused_as_one() -> None:
    lists = " and ".join(f"{name} in ({', '.join(str(2 * i) for i in range(100))})" for name in ("x", "n"))
    with pytest.raises(InvalidValue, match="at most 4096 boxes, got 10000"):
        _ = parsed(lists).boxes


def test_columns_are_named_once_and_found_whatever_their_case() -> None:
    assert named_columns(parse_sql("X > 1 and x < 3 or S = 'a'")) == ["X", "x", "S"]
    keys = [BASE["x"].keys_of(ROWS["x"])]
    assert parse_predicate("X > 1", {"x": BASE["x"]}).matches(keys).any()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("s = 'O''Brien'", "O'Brien"),  # Spark 4; before, the two side by side
        ("s = 'ab' 'cd'", "abcd"),
        ("s = 'x''''y'", "x''y"),
        ("s = 'q' || 'r'", "qr"),
        ("s in ('never', 'it''s')", "it's"),
        ('s = "x""y"', 'x"y'),
    ],
)
def test_texts_are_read_as_spark_4_reads_them(text: str, word: str) -> None:
    """By Spark 4.2: `select 'O''Brien', 'ab' 'cd'` gives O'Brien and abcd."""
    words = sorted(compared_words(parse_sql(text), ["s"])["s"])
    dimension = BASE["s"].with_words(words)
    rows = pa.chunked_array([[word, "O", "ab", "x", "other", None]])
    found = parse_predicate(text, {"s": dimension}).matches([dimension.keys_of(rows)])
    assert found.tolist() == [True, False, False, False, False, False]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("s like 'b%'", r"patterns are not supported: list the values \(in \('a', 'b'\)\)"),
        ("s rlike 'b+'", "patterns are not supported"),
        ("lower(s) = 'x'", r"the result of lower\(\) is not an attribute: compare the attribute itself"),
        ("x + n > 3", "compare one attribute with a constant"),
    ],
)
def test_what_is_no_comparison_is_refused_with_what_can_be_done(text: str, remedy: str) -> None:
    with pytest.raises(InvalidValue, match=remedy):
        parsed(text)


@pytest.mark.parametrize("text", ["x >", "(x > 3", "s = 'a", "x ==== 3", "x > 3 4"])
def test_what_cannot_be_read_is_refused_without_the_parsers_words(text: str) -> None:
    with pytest.raises(InvalidValue, match="must be") as refused:
        parsed(text)
    assert "sqlglot" not in str(refused.value)
    assert "<class" not in str(refused.value)

"""Records: every rule trips, every record is in exactly one of the two tables, lines are physical lines."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spillway.contracts import StreamContract, read_stream
from spillway.records import REJECTED_SCHEMA, ParsedRecords, count_records, parse_records, table_schema

ATTRIBUTES = [
    {"name": "router", "type": "string", "role": "key"},
    {"name": "at", "type": "timestamp", "role": "order"},
    {"name": "delay", "field": "Delay (ms)", "type": "double"},
    {"name": "count", "type": "integer"},
    {"name": "up", "type": "boolean"},
    {"name": "since", "type": "date"},
    {"name": "note", "type": "string", "role": "protected"},
]
NAMES = ["router", "at", "Delay (ms)", "count", "up", "since", "note"]
GOOD = ["r1", "2026-03-02T08:00:00Z", "1.5", "7", "true", "2004-08-19", "fine"]
HEADER = ",".join(NAMES)


STRICT = {"unknown_fields": "refuse", "non_finite": "reject"}


def contract(form: str, **source: Any) -> StreamContract:
    """The contract that refuses what it may."""
    return read_stream(
        {"stream": "net", "channel": "c", "source": {"format": form, **source}, "attributes": ATTRIBUTES}
        | STRICT
    )


def csv_parsed(*lines: str | bytes, end: str = "\n", header: str = HEADER, **options: Any) -> ParsedRecords:
    raw = [line.encode() if isinstance(line, str) else line for line in (header, *lines)]
    return parse_records(contract("csv", options=options), "a.csv", end.encode().join(raw) + end.encode())


def csv_with(**changes: str) -> str:
    return ",".join(
        changes.get(name.split(" ")[0].lower(), value) for name, value in zip(NAMES, GOOD, strict=True)
    )


def json_parsed(*lines: str | bytes) -> ParsedRecords:
    raw = [line.encode() if isinstance(line, str) else line for line in lines]
    return parse_records(contract("json"), "a.json", b"\n".join(raw) + b"\n")


def json_with(**changes: str) -> str:
    """The good record with values put in as JSON text."""
    fields = {
        "router": '"r1"', "at": '"2026-03-02T08:00:00Z"', "Delay (ms)": "1.5", "count": "7", "up": "true",
        "since": '"2004-08-19"', "note": '"fine"',
    }  # fmt: skip
    fields |= {("Delay (ms)" if name == "delay" else name): value for name, value in changes.items()}
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def told(parsed: ParsedRecords) -> list[tuple[int, str, str]]:
    return [(r["line"], r["field"], r["rule"]) for r in parsed.rejected.to_pylist()]


def lines_of(parsed: ParsedRecords) -> list[int]:
    return list(parsed.table.column("line").to_pylist())


EXPECTED = {
    "router": "r1",
    "at": datetime(2026, 3, 2, 8, tzinfo=UTC),
    "delay": 1.5,
    "count": 7,
    "up": True,
    "since": date(2004, 8, 19),
    "note": "fine",
}


@pytest.mark.parametrize(
    "parsed", [csv_parsed(csv_with()), csv_parsed(csv_with(note='"fine"')), json_parsed(json_with())]
)
def test_a_good_record_is_typed_in_every_text_format(parsed: ParsedRecords) -> None:
    assert parsed.rejected.num_rows == 0
    assert parsed.table.schema == table_schema(contract("csv"))
    assert [{k: v for k, v in row.items() if k != "line"} for row in parsed.table.to_pylist()] == [EXPECTED]


@pytest.mark.parametrize("quotes", [False, True])
@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"delay": "fast"}, "Delay (ms)", "be a finite number"),
        ({"delay": "nan"}, "Delay (ms)", "be a finite number"),
        ({"delay": "-Infinity"}, "Delay (ms)", "be a finite number"),
        ({"delay": "1e999"}, "Delay (ms)", "be a finite number"),
        ({"delay": "1_000"}, "Delay (ms)", "be a finite number"),
        ({"count": "7.0"}, "count", "be a whole number of 64 bits"),
        ({"count": "9223372036854775808"}, "count", "be a whole number of 64 bits"),
        ({"count": "0x1F"}, "count", "be a whole number of 64 bits"),
        ({"up": "yes"}, "up", "be true or false"),
        ({"since": "2004-02-30"}, "since", "be an ISO 8601 date"),
        ({"since": "19/08/2004"}, "since", "be an ISO 8601 date"),
        ({"since": "0000-01-01"}, "since", "be an ISO 8601 date"),
        ({"at": "noon"}, "at", "be an ISO 8601 date and time"),
        ({"at": "2026-03-02T24:00:00Z"}, "at", "be an ISO 8601 date and time"),
        ({"at": "0000-01-01T00:00:00Z"}, "at", "be an ISO 8601 date and time"),
        ({"at": "0001-01-01T00:00:00+01:00"}, "at", "be an ISO 8601 date and time"),
        ({"at": ""}, "at", "be there"),
        ({"router": ""}, "router", "be there"),
        ({"note": "a,b"}, "the record", "have 7 fields"),
    ],
)
def test_csv_values_that_break_a_rule_reject_their_record(
    changes: dict[str, str], field: str, rule: str, quotes: bool
) -> None:
    first = csv_with(note='"quoted"') if quotes else csv_with()
    parsed = csv_parsed(first, csv_with(**changes), csv_with())
    assert told(parsed) == [(3, field, rule)]
    assert lines_of(parsed) == [2, 4]
    assert parsed.rejected.column("original").to_pylist() == [csv_with(**changes).encode()]


@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"delay": '"1.5"'}, "Delay (ms)", "be a finite number"),
        ({"delay": "true"}, "Delay (ms)", "be a finite number"),
        ({"delay": "{}"}, "Delay (ms)", "be a finite number"),
        ({"delay": "[1]"}, "Delay (ms)", "be a finite number"),
        ({"delay": "1e999"}, "Delay (ms)", "be a finite number"),
        ({"delay": "1" + "0" * 400}, "Delay (ms)", "be a finite number"),
        ({"delay": "NaN"}, "Delay (ms)", "be a finite number"),
        ({"delay": "-Infinity"}, "Delay (ms)", "be a finite number"),
        ({"delay": "Inf"}, "the line", "be one JSON object"),
        ({"delay": "+1"}, "the line", "be one JSON object"),
        ({"count": "7.0"}, "count", "be a whole number of 64 bits"),
        ({"count": "9223372036854775808"}, "count", "be a whole number of 64 bits"),
        ({"up": "1"}, "up", "be true or false"),
        ({"note": "5"}, "note", "be text"),
        ({"note": '"\\ud800"'}, "note", "be text"),
        ({"at": "1772438400"}, "at", "be an ISO 8601 date and time"),
        ({"at": '"noon"'}, "at", "be an ISO 8601 date and time"),
        ({"at": "null"}, "at", "be there"),
        ({"router": "null"}, "router", "be there"),
        ({"extra": "1"}, "extra", "be an attribute of the contract"),
        ({"extra": "null"}, "extra", "be an attribute of the contract"),
    ],
)
def test_json_values_that_break_a_rule_reject_their_record(
    changes: dict[str, str], field: str, rule: str
) -> None:
    parsed = json_parsed(json_with(), json_with(**changes), json_with())
    assert told(parsed) == [(2, field, rule)]
    assert lines_of(parsed) == [1, 3]
    assert parsed.rejected.column("original").to_pylist() == [json_with(**changes).encode()]


@pytest.mark.parametrize(
    "line",
    [
        "null", "[1]", "7", '"x"', "{", "}", "{}{}", json_with() + json_with(), json_with() + " null", "{} null {}",
        json_with()[:-1], json_with()[:30], "not json", "{'a':1}", json_with() + ",", "\x00", "[" * 5000,
    ],
)  # fmt: skip
def test_a_line_that_is_not_one_json_object_is_rejected_alone(line: str) -> None:
    # a bare null brings Arrow's JSON reader down, and it would read two objects of a line as two records
    parsed = json_parsed(json_with(), line, json_with(), json_with())
    assert [row[0] for row in told(parsed)] == [2]
    assert lines_of(parsed) == [1, 3, 4]


def test_two_lines_that_make_one_object_together_are_two_bad_lines() -> None:
    whole = json_with()
    parsed = json_parsed(whole, whole[:40], whole[40:], whole + whole, whole)
    assert lines_of(parsed) == [1, 5]
    assert [row[0] for row in told(parsed)] == [2, 3, 4]


def test_a_json_name_that_stands_twice_rejects_the_record() -> None:
    parsed = json_parsed(json_with(), '{"router":"r1","router":"r2","at":"2026-03-02"}')
    assert told(parsed) == [(2, "router", "stand once in a record")]


def test_braces_inside_text_are_no_defect() -> None:
    parsed = json_parsed(json_with(note='"{a}"'), json_with(note='"}"'), json_with(note='"{"'), json_with())
    assert parsed.table.column("note").to_pylist() == ["{a}", "}", "{", "fine"]


def test_absent_and_null_measures_are_null() -> None:
    parsed = json_parsed(
        '{"router":"r1","at":"2026-03-02"}', '{"router":"r1","at":"2026-03-02","Delay (ms)":null}'
    )
    assert parsed.rejected.num_rows == 0
    assert parsed.table.column("delay").to_pylist() == [None, None]
    assert parsed.table.column("up").to_pylist() == [None, None]
    shorter = csv_parsed("r1,2026-03-02,", header="router,at,note")
    assert shorter.table.to_pylist()[0]["delay"] is None
    assert shorter.table.to_pylist()[0]["note"] is None


def test_a_measure_declared_not_nullable_is_required() -> None:
    strict = [*ATTRIBUTES[:2], {"name": "delay", "type": "double", "nullable": False}]
    one = read_stream({"stream": "n", "channel": "c", "source": {"format": "json"}, "attributes": strict})
    parsed = parse_records(one, "a", b'{"router":"r1","at":"2026-03-02"}\n')
    assert told(parsed) == [(1, "delay", "be there")]
    assert parsed.table.num_rows == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-02T08:00:00Z", datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ("2026-03-02T08:00:00", datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ("2026-03-02 08:00", datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ("2026-03-02", datetime(2026, 3, 2, tzinfo=UTC)),
        ("2026-03-02T08:00:00+02:00", datetime(2026, 3, 2, 8, tzinfo=timezone(timedelta(hours=2)))),
        ("2026-03-02T08:00:00.5-0330", datetime(2026, 3, 2, 11, 30, 0, 500_000, tzinfo=UTC)),
        ("2026-03-02T08:00:00.123456789Z", datetime(2026, 3, 2, 8, 0, 0, 123456, tzinfo=UTC)),
        ("1066-10-14T09:00:00Z", datetime(1066, 10, 14, 9, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
)
def test_timestamps_are_utc_microseconds(text: str, expected: datetime) -> None:
    # beside one that has an offset and one that has none, so that the vectors are mixed
    around = (csv_with(), csv_with(at="2026-03-02T08:00:00"))
    assert csv_parsed(*around, csv_with(at=text)).table.column("at").to_pylist()[2] == expected
    assert json_parsed(json_with(at=json.dumps(text))).table.column("at").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"count": " 7 "}, "count", 7),
        ({"count": "+7"}, "count", 7),
        ({"count": "-9223372036854775808"}, "count", -(2**63)),
        ({"delay": " +.5e1"}, "delay", 5.0),
        ({"delay": "5."}, "delay", 5.0),
        ({"delay": ""}, "delay", None),
        ({"up": "FALSE"}, "up", False),
        ({"up": "1"}, "up", True),
        ({"note": " kept as it is "}, "note", " kept as it is "),
        ({"note": "NA"}, "note", "NA"),
        ({"note": "ü€😀"}, "note", "ü€😀"),
    ],
)
def test_csv_forgives_blanks_and_plus_signs_in_all_but_text(
    changes: dict[str, str], name: str, expected: object
) -> None:
    for first in (csv_with(), csv_with(note='"x"')):
        parsed = csv_parsed(first, csv_with(**changes))
        assert parsed.rejected.num_rows == 0
        assert parsed.table.column(name).to_pylist()[1] == expected


def test_null_values_of_csv_are_those_of_the_contract_quoted_or_not() -> None:
    for note in ("NA", '"NA"'):
        parsed = csv_parsed(csv_with(delay="NA", note=note), null_values=["", "NA"])
        assert parsed.table.to_pylist()[0]["delay"] is None
        assert parsed.table.to_pylist()[0]["note"] is None


def test_carriage_returns_a_byte_order_mark_and_blank_lines_are_nothing() -> None:
    content = b"\xef\xbb\xbf" + f"{HEADER}\r\n\r\n{csv_with()}\r\n   \r\n{csv_with()}".encode()
    parsed = parse_records(contract("csv"), "a.csv", content)
    assert (lines_of(parsed), parsed.rejected.num_rows) == ([3, 5], 0)
    content = b"\xef\xbb\xbf" + f"{json_with()}\r\n\r\n \t\r\n{json_with()}\r".encode()
    parsed = parse_records(contract("json"), "a.json", content)
    assert (lines_of(parsed), parsed.rejected.num_rows) == ([1, 4], 0)
    assert parsed.table.column("note").to_pylist() == ["fine", "fine"]


@pytest.mark.parametrize("name", ["count", "Delay (ms)", "up"])
def test_a_number_that_json_has_in_quotes_is_to_be_sent_without(name: str) -> None:
    record = json.loads(json_with())
    parsed = parse_records(contract("json"), "a", json.dumps({**record, name: str(record[name])}).encode())
    (rejected,) = parsed.rejected.to_pylist()
    assert (rejected["field"], rejected["value"]) == (name, str(record[name]))
    assert rejected["remedy"].startswith("send it without quotes")


def test_a_quoted_record_may_span_lines_and_is_named_by_its_first() -> None:
    parsed = csv_parsed(
        csv_with(note='"one\n\ntwo, ""three"""'), csv_with(), csv_with(count='"x\ny"'), csv_with()
    )
    assert lines_of(parsed) == [2, 5, 8]
    assert parsed.table.column("note").to_pylist()[0] == 'one\n\ntwo, "three"'
    assert told(parsed) == [(6, "count", "be a whole number of 64 bits")]
    assert parsed.rejected.column("original").to_pylist() == [csv_with(count='"x\ny"').encode()]


def test_a_quote_that_never_closes_costs_its_own_line() -> None:
    parsed = csv_parsed(csv_with(), csv_with(note='"open'), csv_with(), csv_with(router='"r"1'), csv_with())
    assert lines_of(parsed) == [2, 4, 6]
    assert told(parsed) == [(3, "the record", "be readable CSV"), (5, "the record", "be readable CSV")]


def test_a_quote_inside_an_unquoted_field_is_text() -> None:
    assert csv_parsed(csv_with(note='5" pipe')).table.column("note").to_pylist() == ['5" pipe']


def test_a_lone_carriage_return_rejects_its_line_alone() -> None:
    parsed = csv_parsed(csv_with(), csv_with(note="a\rb"), csv_with())
    assert (lines_of(parsed), [row[0] for row in told(parsed)]) == ([2, 4], [3])


def test_a_field_is_held_to_its_length() -> None:
    parsed = csv_parsed(csv_with(), csv_with(note="x" * 131_073), csv_with(note="x" * 131_072))
    assert (lines_of(parsed), told(parsed)) == ([2, 4], [(3, "the record", "be readable CSV")])


@pytest.mark.parametrize("quote", ["", '"'])
def test_bytes_that_are_not_utf8_reject_their_line_alone(quote: str) -> None:
    bad = csv_with(note=f"{quote}caf~{quote}").encode().replace(b"~", b"\xe9")
    parsed = csv_parsed(csv_with(note="café"), bad, csv_with())
    assert (lines_of(parsed), told(parsed)) == ([2, 4], [(3, "the record", "be UTF-8 text")])
    assert parsed.rejected.column("original").to_pylist() == [bad]
    bad = json_with(note='"caf~"').encode().replace(b"~", b"\xe9")
    parsed = json_parsed(json_with(note='"café"'), bad, json_with())
    assert (lines_of(parsed), told(parsed)) == ([1, 3], [(2, "the line", "be UTF-8 text")])


@pytest.mark.parametrize(
    ("header", "field", "rule"),
    [
        ("router,at,speed", "speed", "be an attribute of the contract"),
        ("router,at,at", "at", "stand once in the header"),
        ("router,note", "at", "be a column"),
        ('router,"at', "the header", "be readable"),
    ],
)
def test_a_header_that_does_not_fit_refuses_the_file(header: str, field: str, rule: str) -> None:
    parsed = csv_parsed("r1,2026-03-02,x", header=header)
    assert (told(parsed), parsed.table.num_rows) == ([(1, field, rule)], 0)


def test_columns_may_come_in_any_order_and_without_a_header() -> None:
    parsed = csv_parsed("x,2026-03-02,r1", header="note,at,router")
    assert parsed.table.column("router").to_pylist() == ["r1"]
    headless = contract("csv", options={"header": False, "delimiter": ";"})
    parsed = parse_records(headless, "a", csv_with().replace(",", ";").encode())
    assert (lines_of(parsed), parsed.table.column("note").to_pylist()) == ([1], ["fine"])


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_an_empty_file_is_no_defect(form: str) -> None:
    parsed = parse_records(contract(form), "a", b"")
    assert (parsed.table.num_rows, parsed.rejected.num_rows) == (0, 0)
    assert parsed.table.schema == table_schema(contract(form))
    assert parsed.rejected.schema == REJECTED_SCHEMA
    assert count_records(contract(form), b"") == 0


def test_the_first_problem_in_contract_order_is_told_in_a_sentence() -> None:
    parsed = csv_parsed(csv_with(delay="x", count="y"))
    assert parsed.rejected.column("reason").to_pylist() == [
        "a.csv:2: `Delay (ms)` must be a finite number, got 'x'; send a number, or null for none"
    ]


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.table({name.replace("delay", "Delay (ms)"): values for name, values in columns.items()}), sink
    )
    return sink.getvalue()


AT = pa.array([1_772_438_400] * 3, pa.timestamp("s"))
ROUTER = pa.array(["r1", "r2", "r3"])
DECIMALS = [Decimal("-0.5"), Decimal(100), None]


@pytest.mark.parametrize(
    ("columns", "name", "expected"),
    [
        ({"count": pa.array([1, 2, None], pa.uint8())}, "count", [1, 2, None]),
        ({"delay": pa.array([1, 2, None], pa.int32())}, "delay", [1.0, 2.0, None]),
        ({"delay": pa.array([0.5, 2, None], pa.float32())}, "delay", [0.5, 2.0, None]),
        ({"delay": pa.array(DECIMALS, pa.decimal128(9, 2))}, "delay", [-0.5, 100.0, None]),
        ({"delay": pa.array(DECIMALS, pa.decimal256(60, 30))}, "delay", [-0.5, 100.0, None]),
        ({"count": pa.array([*DECIMALS[1:], None], pa.decimal128(38, 0))}, "count", [100, None, None]),
        ({"note": pa.array(["a", "b", None]).dictionary_encode()}, "note", ["a", "b", None]),
        ({"note": pa.array(["a", "b", None], pa.large_string())}, "note", ["a", "b", None]),
        ({"note": pa.nulls(3)}, "note", [None, None, None]),
        ({"since": pa.array([0, 1, None], pa.date32())}, "since", [date(1970, 1, 1), date(1970, 1, 2), None]),
        ({"up": pa.array([True, False, None])}, "up", [True, False, None]),
    ],
)
def test_parquet_columns_of_any_width_are_taken(
    columns: dict[str, pa.Array], name: str, expected: list[Any]
) -> None:
    parsed = parse_records(contract("parquet"), "a", parquet(router=ROUTER, at=AT, **columns))
    assert told(parsed) == []
    assert parsed.table.column(name).to_pylist() == expected
    assert parsed.table.schema == table_schema(contract("parquet"))


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ms"), pa.timestamp("us", tz="Europe/Berlin"), pa.timestamp("ns")]
)
def test_parquet_timestamps_of_any_unit_and_zone_are_utc_microseconds(kind: pa.DataType) -> None:
    at = pa.array([datetime(2026, 3, 2, 8, tzinfo=UTC)] * 3, pa.timestamp("us", tz="UTC")).cast(pa.int64())
    per_us = {"ms": 1000, "us": 1, "ns": 1}[kind.unit]
    scaled = pa.array([v // per_us * (1000 if kind.unit == "ns" else 1) for v in at.to_pylist()], pa.int64())
    parsed = parse_records(contract("parquet"), "a", parquet(router=ROUTER, at=scaled.cast(kind)))
    assert parsed.table.column("at").to_pylist() == [datetime(2026, 3, 2, 8, tzinfo=UTC)] * 3


@pytest.mark.parametrize(
    ("columns", "field", "rule"),
    [
        ({"router": ROUTER, "at": AT, "delay": ROUTER}, "Delay (ms)", "be a column of double"),
        ({"router": ROUTER, "at": ROUTER}, "at", "be a column of timestamp"),
        ({"router": pa.array([1, 2, 3]), "at": AT}, "router", "be a column of string"),
        ({"router": ROUTER, "at": AT, "count": pa.array([1.0, 2.0, 3.0])}, "count", "be a column of integer"),
        ({"router": ROUTER, "at": AT, "jitter": AT}, "jitter", "be an attribute of the contract"),
        ({"router": ROUTER}, "at", "be a column"),
    ],
)
def test_a_parquet_schema_that_does_not_fit_refuses_the_file(
    columns: dict[str, pa.Array], field: str, rule: str
) -> None:
    content = parquet(**columns)
    parsed = parse_records(contract("parquet"), "a", content)
    assert (told(parsed), parsed.table.num_rows) == ([(0, field, rule)], 0)
    assert parsed.rejected.column("original").to_pylist() == [content]


@pytest.mark.parametrize("content", [b"PAR1", b"x" * 50, parquet(router=ROUTER, at=AT)[:-20], b"PAR1" * 9])
def test_a_corrupt_parquet_file_is_refused_and_counts_as_one(content: bytes) -> None:
    parsed = parse_records(contract("parquet"), "a", content)
    assert told(parsed) == [(0, "the file", "be readable Parquet")]
    assert count_records(contract("parquet"), content) == 1


def test_parquet_rows_that_break_a_rule_are_rejected_with_their_values() -> None:
    content = parquet(
        router=pa.array(["r1", None, "r3", "r4", "r5"]),
        at=pa.array([1, 1, None, 1, 1], pa.timestamp("s")),
        delay=pa.array([1.0, 1.0, 1.0, float("nan"), 2.0]),
        count=pa.array([1, 2, 3, 4, 2**63], pa.uint64()),
    )
    parsed = parse_records(contract("parquet"), "a", content)
    assert lines_of(parsed) == [1]
    assert told(parsed) == [
        (2, "router", "be there"),
        (3, "at", "be there"),
        (4, "Delay (ms)", "be a finite number"),
        (5, "count", "be a whole number of 64 bits"),
    ]
    assert json.loads(parsed.rejected.column("original").to_pylist()[0])["count"] == 2


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**12), max_value=10**12))
@example(Decimal("123456.789012345"))
@example(Decimal("123456.7890123456"))
@example(Decimal("-0.000000001"))
def test_a_decimal_is_taken_where_no_other_of_as_many_digits_is_the_same_double(value: Decimal) -> None:
    content = parquet(router=ROUTER, at=AT, delay=pa.array([value, None, None], pa.decimal128(38, 10)))
    parsed = parse_records(contract("parquet"), "a", content)
    if len(value.normalize().as_tuple().digits) <= 15:
        assert told(parsed) == []
        assert Decimal(repr(parsed.table.column("delay")[0].as_py())) == value
    else:
        assert told(parsed) == [(1, "Delay (ms)", "be a finite number")]


def test_parquet_text_that_is_not_utf8_rejects_its_row() -> None:
    buffers = pa.array([b"r1", b"r\xff", b"r3"], pa.binary()).buffers()
    text = pa.Array.from_buffers(pa.string(), 3, buffers)
    parsed = parse_records(contract("parquet"), "a", parquet(router=text, at=AT))
    assert (lines_of(parsed), told(parsed)) == ([1, 3], [(2, "router", "be text")])


BERLIN = {"timezone": "Europe/Berlin"}
SKIPPED = "2026-03-29T02:30:00"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01T08:00:00", datetime(2026, 1, 1, 7, tzinfo=UTC)),
        ("2026-07-01 08:00", datetime(2026, 7, 1, 6, tzinfo=UTC)),
        ("2026-07-01", datetime(2026, 6, 30, 22, tzinfo=UTC)),
        ("2026-07-01T08:00:00Z", datetime(2026, 7, 1, 8, tzinfo=UTC)),
        ("2026-07-01T08:00:00-04:00", datetime(2026, 7, 1, 12, tzinfo=UTC)),
        # shown twice: the earlier
        ("2026-10-25T02:30:00", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_time_without_an_offset_is_read_on_the_contracts_clocks(
    form: str, text: str, value: datetime
) -> None:
    there = read_stream({**plain_contract(form), **BERLIN})
    if form == "parquet":
        moment = datetime.fromisoformat(text)
        kind = pa.timestamp("us", tz="+00:00" if moment.tzinfo else None)
        content = io.BytesIO()
        pq.write_table(pa.table({"router": ["r1"], "at": pa.array([moment], kind)}), content)
        parsed = parse_records(there, "a.parquet", content.getvalue())
    elif form == "csv":
        parsed = parse_records(there, "a.csv", f"router,at\nr1,{text}\n".encode())
    else:
        parsed = parse_records(there, "a.json", f'{{"router": "r1", "at": "{text}"}}\n'.encode())
    assert parsed.rejected["reason"].to_pylist() == []
    assert parsed.table["at"].to_pylist() == [value]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_time_that_no_clock_there_shows_is_refused_by_name(form: str) -> None:
    there = read_stream({**plain_contract(form), **BERLIN})
    times = [SKIPPED, "2026-03-29T03:30:00"]
    if form == "csv":
        content = "router,at\n" + "".join(f"r1,{time}\n" for time in times)
        parsed = parse_records(there, "a.csv", content.encode())
    else:
        sink = io.BytesIO()
        moments = pa.array([datetime.fromisoformat(time) for time in times], pa.timestamp("ms"))
        pq.write_table(pa.table({"router": ["r1", "r1"], "at": moments}), sink)
        parsed = parse_records(there, "a.parquet", sink.getvalue())
    (reason,) = parsed.rejected["reason"].to_pylist()
    assert "`at` must be a time that clocks in Europe/Berlin show, got" in reason
    assert (
        "clocks are set forward and skip this hour: send the time with an offset, e.g. 2026-03-29T02:30"
        in reason
    )
    assert parsed.table["at"].to_pylist() == [datetime(2026, 3, 29, 1, 30, tzinfo=UTC)]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_times_of_a_repeated_hour_are_counted_where_they_have_no_offset(form: str) -> None:
    """Newcomer B6: the autumn hour was put an hour early without a count."""
    there = read_stream({**plain_contract(form), **BERLIN})
    times = ["2026-10-25T02:30:00", "2026-10-25T02:59:59", "2026-10-25T03:00:00", "2026-10-25T01:59:59"]
    if form == "parquet":
        sink = io.BytesIO()
        moments = pa.array([datetime.fromisoformat(time) for time in times], pa.timestamp("us"))
        pq.write_table(pa.table({"router": ["r1"] * 4, "at": moments}), sink)
        content = sink.getvalue()
    else:
        times += ["2026-10-25T02:30:00+01:00", "2026-10-25T00:30:00Z"]
        rows = [{"router": "r1", "at": time} for time in times]
        lines = {
            "csv": ["router,at", *(",".join(row.values()) for row in rows)],
            "json": [json.dumps(row) for row in rows],
        }[form]
        content = "".join(f"{line}\n" for line in lines).encode()
    found = parse_records(there, f"a.{form}", content)
    assert found.table.num_rows == len(times)
    assert dict(found.notes) == {"at in an hour that clocks show twice, read as the earlier": 2}
    utc = parse_records(read_stream(plain_contract(form)), f"a.{form}", content)
    assert dict(utc.notes) == {}


@pytest.mark.parametrize(
    ("form", "content", "remedy"),
    [
        ("csv", b"router;at;delay\nr1;2026-03-02T08:00:00Z;1\n", "; the delimiter is ';': write options: "),
        ("csv", b"router\tat\nr1\t2026-03-02T08:00:00Z\n", "; the delimiter is '\\t': write options: "),
        ("csv", b"rtr,at\nr1,2026-03-02T08:00:00Z\n", "; add the column"),
        ("csv", "router,at,größe\n".encode("latin-1"), "iconv -f LATIN1 -t UTF-8"),
        ("csv", b"router,at\nr\xfc,2026-03-02T08:00:00Z\n", "iconv -f LATIN1 -t UTF-8"),
        ("json", b'{"router": "r\xfc"}\n', "iconv -f LATIN1 -t UTF-8"),
        ("json", b'[{"router": "r1", "at": "2026-03-02T08:00:00Z"}]\n', "jq -c '.[]'"),
        ("json", b"[\n", "jq -c '.[]'"),
        ("json", b'{"router": "r1"},\n', "jq -c '.[]'"),
        ("json", b'{"router": "r1"\n', "a last line cut short is sent again"),
    ],
)
def test_a_remedy_fits_the_mistake(form: str, content: bytes, remedy: str) -> None:
    (reason,) = (
        parse_records(read_stream(plain_contract(form)), f"a.{form}", content).rejected["reason"].to_pylist()
    )
    assert remedy in reason


def plain_contract(form: str) -> dict[str, Any]:
    """Routers and times, as a document."""
    return {"stream": "net", "channel": "c", "source": {"format": form}, "levers": []} | {
        "attributes": ATTRIBUTES[:2]
    }


def test_a_field_whose_name_is_half_a_letter_is_noted_and_its_records_are_taken() -> None:
    lax = read_stream(
        {"stream": "net", "channel": "c", "source": {"format": "json"}, "attributes": ATTRIBUTES}
    )
    good = {"router": "r1", "at": "2026-03-02T08:00:00Z"}
    content = b"".join(json.dumps(good | {"\ud800": n}).encode() + b"\n" for n in range(3000))
    found = parse_records(lax, "a.json", content)
    assert (found.table.num_rows, found.rejected.num_rows) == (3000, 0)
    (note,) = [one for one in found.notes if one.endswith("unknown")]
    assert found.notes[note] == 3000
    assert note.encode()

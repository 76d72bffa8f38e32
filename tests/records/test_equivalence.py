"""The fast paths against the exact ones: one bad line anywhere must not change what is read of the others."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.records.test_parse import HEADER, NAMES, contract, csv_with, json_with, lines_of

from spillway.records import count_records, parse_records
from spillway.records.wrapper import WRAPPERS

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
NUMBERS = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.none())
ANY = st.one_of(
    NUMBERS, TEXTS, st.booleans(), st.sampled_from(["2026-03-02", "2026-03-02T08:00:00+01:00", "r1"])
)
RECORDS = st.fixed_dictionaries({}, optional=dict.fromkeys([*NAMES, "extra"], ANY))
GOOD = st.just(json.loads(json_with()))
LINES = st.lists(
    st.one_of(
        st.one_of(GOOD, RECORDS).map(lambda r: json.dumps(r, ensure_ascii=False).encode()),
        st.one_of(GOOD, RECORDS).map(lambda r: json.dumps(r)[:-3].encode()),
        st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"")),
        st.sampled_from([b"", b"null", b"{}{}", b"  ", b"\r", b"[]"]),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(LINES)
def test_json_lines_are_judged_one_by_one(lines: list[bytes]) -> None:
    # the oracle: every line in a file of its own
    assume(not b"\n".join(lines).startswith(tuple(WRAPPERS)))
    net = contract("json")
    whole = parse_records(net, "a", b"\n".join(lines))
    kept: list[dict[str, Any]] = []
    refused = []
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        # a line feed before it keeps a byte order mark inside a line from being one at its start
        alone = parse_records(net, "a", b"\n" + line)
        kept += [{**row, "line": number} for row in alone.table.to_pylist()]
        refused += [(number, row["field"], row["rule"]) for row in alone.rejected.to_pylist()]
    assert whole.table.to_pylist() == kept
    assert [(r["line"], r["field"], r["rule"]) for r in whole.rejected.to_pylist()] == refused
    assert count_records(net, b"\n".join(lines)) >= max([0, *lines_of(whole)])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(GOOD, RECORDS), min_size=1, max_size=8))
def test_json_is_read_as_the_standard_library_reads_it(records: list[dict[str, Any]]) -> None:
    net = contract("json")
    parsed = parse_records(net, "a", "\n".join(map(json.dumps, records)).encode())
    assert parsed.table.num_rows + parsed.rejected.num_rows == len(records)
    for row in parsed.table.to_pylist():
        record = records[row["line"] - 1]
        for attribute in net.attributes:
            sent, read = record.get(attribute.source_name), row[attribute.name]
            if attribute.type in ("double", "integer", "string", "boolean"):
                assert read == sent
                assert read is None or isinstance(
                    read, {"double": float, "integer": int}.get(attribute.type, object)
                )
    for row in parsed.rejected.to_pylist():
        assert not acceptable(records[row["line"] - 1])


def acceptable(record: dict[str, Any]) -> bool:
    kinds = {
        "router": str,
        "at": str,
        "Delay (ms)": (int, float),
        "count": int,
        "up": bool,
        "since": str,
        "note": str,
    }
    for name, value in record.items():
        if name not in kinds or (value is not None and not isinstance(value, kinds[name])):
            return False
        if isinstance(value, bool) and name != "up":
            return False
        if name == "count" and value is not None and not -(2**63) <= value < 2**63:
            return False
        if name == "Delay (ms)" and value is not None and not math.isfinite(float(value)):
            return False
        if name == "since" and value not in ("2026-03-02", "2004-08-19", None):
            return False
    return record.get("router") is not None and str(record.get("at"))[:8] == "2026-03-"


CELLS = st.one_of(
    st.sampled_from(
        ["", "1.5", " 7", "x", "true", "2026-03-02", "nan", "1e400", "99999999999999999999", "r1"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\x00\r\n,"'), max_size=5),
)
ROWS = st.lists(
    st.one_of(st.just(csv_with().split(",")), st.lists(CELLS, min_size=6, max_size=8)), max_size=10
)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.booleans())
def test_csv_reads_the_same_with_and_without_quotes(rows: list[list[str]], windows: bool) -> None:
    net = contract("csv")
    end = "\r\n" if windows else "\n"
    plain = HEADER + end + "".join(",".join(row) + end for row in rows)
    sink = io.StringIO()
    csv.writer(sink, quoting=csv.QUOTE_ALL, lineterminator=end).writerows([NAMES, *rows])
    fast, exact = parse_records(net, "a", plain.encode()), parse_records(net, "a", sink.getvalue().encode())
    assert fast.table.equals(exact.table)
    assert fast.rejected.drop(["original"]).equals(exact.rejected.drop(["original"]))
    assert fast.table.num_rows + fast.rejected.num_rows == len(rows)


@pytest.mark.parametrize("bad", [1, 700, 1999, 2000])
def test_one_bad_line_costs_only_itself_wherever_it_stands(bad: int) -> None:
    lines = [json_with(count=str(n)) for n in range(1, 2001)]
    lines[bad - 1] = "null"
    parsed = parse_records(contract("json"), "a", "\n".join(lines).encode())
    assert parsed.rejected.column("line").to_pylist() == [bad]
    assert parsed.table.column("count").to_pylist() == [n for n in range(1, 2001) if n != bad]
    rows = [csv_with(count=str(n)) for n in range(1, 2001)]
    rows[bad - 1] = "1,2"
    parsed = parse_records(contract("csv"), "a", "\n".join([HEADER, *rows]).encode())
    assert parsed.rejected.column("line").to_pylist() == [bad + 1]
    assert parsed.table.column("count").to_pylist() == [n for n in range(1, 2001) if n != bad]

"""Lines that carry parity: every flipped bit of what was delivered is corrected or refused by name."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.batch import REPLAYED, LandingFile
from spillway.contracts import StreamContract, read_stream
from spillway.errors import ContractError, InvalidValue
from spillway.intake.rejected_rows import content_of, contract_of_originals
from spillway.records import ParsedRecords, parse_records
from spillway.records.parity import (
    CORRECTED,
    MOST_PAYLOAD_BYTES,
    check_file,
    check_lines,
    file_with_parity,
    line_with_parity,
    lines_with_parity,
)

ATTRIBUTES = [
    {"name": "router", "type": "string", "role": "key"},
    {"name": "at", "type": "integer", "role": "order"},
    {"name": "delay", "type": "double"},
    {"name": "note", "type": "string"},
]


def contract(format_: str, **source: Any) -> StreamContract:
    source = {"format": format_, "parity": "secded", **source}
    return read_stream({"stream": "net", "channel": "up", "source": source, "attributes": ATTRIBUTES})


def records(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"router": f"r{i % 7:02}", "at": i, "delay": round(float(rng.uniform(1, 100)), 2), "note": f"n{i} Jö"}
        for i in range(count)
    ]


def written(format_: str, rows: list[dict[str, Any]]) -> bytes:
    if format_ == "json":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    return "".join(line + "\n" for line in lines).encode()


def sent(content: bytes) -> bytes:
    return b"".join(file_with_parity(pa.BufferReader(content)))


def parsed(format_: str, content: bytes) -> ParsedRecords:
    return parse_records(contract(format_), "a", content)


def flipped(content: bytes, *bits: int) -> bytes:
    damaged = bytearray(content)
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_protected_lines_are_read_as_they_were_written(format_: str) -> None:
    rows = records(300)
    found = parsed(format_, sent(written(format_, rows)))
    assert found.table.select(["router", "at", "delay", "note"]).to_pylist() == rows
    assert (found.rejected.num_rows, dict(found.notes)) == (0, {})


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=8), st.booleans())
def test_any_lines_come_back_from_any_single_flip_in_them(lines: list[bytes], last_feed: bool) -> None:
    content = b"\n".join(lines) + b"\n" * (last_feed and bool(lines))
    whole = sent(content)
    there = whole.split(b"\n")[: len(content.split(b"\n")) - (not content.split(b"\n")[-1])]
    assert [one.payload for one in check_lines(there)] == content.split(b"\n")[: len(there)]
    for line in there[:2]:
        for bit in range(8 * len(line)):
            (one,) = check_lines([flipped(line, bit)])
            assert (one.payload, one.corrected) == (check_lines([line])[0].payload, True)


def test_two_flips_in_a_line_are_never_corrected() -> None:
    line = line_with_parity(b"r1,5,81.77")
    pairs = list(combinations(range(8 * len(line)), 2))
    assert {one.payload for one in check_lines([flipped(line, *pair) for pair in pairs])} == {None}


@pytest.mark.long
@pytest.mark.parametrize("format_", ["csv", pytest.param("json", marks=pytest.mark.long)])
def test_no_flipped_bit_of_a_delivered_file_is_accepted_wrong(format_: str) -> None:
    """Every bit of a delivered file, line feeds included: what is read was sent, and what is missing is refused."""
    rows = records(6, seed=3)
    content = sent(written(format_, rows))
    outcomes: Counter[str] = Counter()
    header = content.index(b"\n") if format_ == "csv" else -1
    for bit in range(8 * len(content)):
        damaged = flipped(content, bit)
        found = parsed(format_, damaged)
        got = found.table.select(["router", "at", "delay", "note"]).to_pylist()
        assert all(row in rows for row in got), "a wrong value was accepted"
        lost, refused = len(rows) - len(got), found.rejected.num_rows
        if damaged.count(b"\n") == content.count(b"\n"):
            assert (got, refused, dict(found.notes)) == (rows, 0, {CORRECTED: 1}), bit
            outcomes["corrected"] += 1
        elif bit // 8 <= header:
            assert found.rejected["field"].to_pylist() == ["the header"]
            outcomes["header"] += 1
        else:
            assert 0 < lost <= 2
            assert refused in (1, 2)
            assert set(found.rejected["rule"].to_pylist()) == {"have at most one flipped bit, by its parity"}
            outcomes["refused"] += 1
    assert outcomes["corrected"] > 20 * outcomes["refused"] > 0


def test_flipped_bits_of_numbers_are_corrected_where_parity_of_values_accepted_them_wrong() -> None:
    """One flipped bit in the digits of a number, 2,000 times: of those that still parsed, a third was read wrongly."""
    rng = np.random.default_rng(0)
    rows = records(2000, seed=1)
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    damaged, parses = [], 0
    for row, line, whole in zip(rows, lines, lines_with_parity(lines), strict=True):
        digits = repr(row["delay"]).encode()
        at = 8 * (line.index(digits) + int(rng.integers(len(digits)))) + int(rng.integers(8))
        damaged.append(flipped(whole, at))
        with contextlib.suppress(ValueError):
            parses += json.loads(flipped(line, at))["delay"] != row["delay"]
    assert parses > 300, "the trap is set: flips that make another number"
    found = check_lines(damaged)
    assert (
        sum(one.payload is not None and one.payload != line for one, line in zip(found, lines, strict=True))
        == 0
    )
    assert all(one.corrected for one in found)


def test_refused_line_is_named_and_kept_as_it_was_delivered() -> None:
    rows = records(3)
    lines = sent(written("csv", rows)).split(b"\n")
    lines[2] = flipped(lines[2], 0, 1)
    found = parsed("csv", b"\n".join(lines))
    assert found.table["at"].to_pylist() == [0, 2]
    (refused,) = found.rejected.to_pylist()
    assert (refused["line"], refused["field"], refused["rule"]) == (
        3,
        "the line",
        "have at most one flipped bit, by its parity",
    )
    assert refused["original"] == lines[2]
    assert refused["reason"].endswith("send it again as `spillway parity add` writes it")


def test_line_without_parity_is_refused() -> None:
    rows = records(4)
    found = parsed("json", written("json", rows))
    assert found.table.num_rows == 0
    assert found.rejected["rule"].to_pylist() == ["have at most one flipped bit, by its parity"] * 4


def test_quoted_record_with_a_refused_line_is_refused_whole() -> None:
    content = sent(b'router,at,delay,note\nr1,0,1.5,"one\ntwo\nthree"\nr1,1,2.5,four\n').split(b"\n")
    assert parsed("csv", b"\n".join(content)).table["note"].to_pylist() == ["one\ntwo\nthree", "four"]
    content[2] = flipped(content[2], 0, 1)
    found = parsed("csv", b"\n".join(content))
    assert found.table["note"].to_pylist() == ["four"]
    assert set(found.rejected["rule"].to_pylist()) >= {"have at most one flipped bit, by its parity"}


def test_rest_of_a_record_whose_first_line_is_refused_is_no_record() -> None:
    """It was one, of a key that nobody sent: a quote that opens in the refused line closes behind it."""
    content = sent(b'router,at,delay,note\n"r\n1",0,1.5,one\nr1,1,2.5,two\n"r1",2,3.5,"three"\n').split(b"\n")
    assert parsed("csv", b"\n".join(content)).table["router"].to_pylist() == ["r\n1", "r1", "r1"]
    content[1] = flipped(content[1], 0, 1)
    found = parsed("csv", b"\n".join(content))
    assert found.table["note"].to_pylist() == ["two", "three"]
    assert found.rejected["line"].to_pylist() == [2, 3]
    assert found.rejected["original"].to_pylist() == content[1:3]


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_blank_lines_are_nothing(format_: str) -> None:
    """A replay puts records on their lines, with blank lines between them; each of those was refused once more."""
    rows = records(3)
    lines = sent(written(format_, rows)).split(b"\n")
    found = parsed(format_, b"\n".join([b"", lines[0], b"", b"", *lines[1:], b""]))
    assert found.table.select(["router", "at", "delay", "note"]).to_pylist() == rows
    assert found.rejected.num_rows == 0
    lines[0] = flipped(lines[0], 0, 1)
    if format_ == "csv":
        with_header = parsed(format_, b"\n".join([b"", *lines]))
        assert with_header.table.num_rows == 0
        assert with_header.rejected["field"].to_pylist() == ["the header"]


def test_record_refused_for_another_reason_is_read_again_with_its_parity() -> None:
    """A replay reads original bytes as a delivery: with their parity, under the header as it was delivered."""
    content = sent(b"router,at,delay,note\nr1,0,fast,x\n")
    found = parsed("csv", content)
    (refused,) = found.rejected.to_pylist()
    assert (refused["field"], refused["original"]) == ("delay", content.split(b"\n")[1])
    as_text = read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv", "parity": "secded"},
            "attributes": [{**a, "type": "string"} if a["name"] == "delay" else a for a in ATTRIBUTES],
        }
    )
    header = content.split(b"\n")[0].decode()
    entry = LandingFile("a", 0, "", records=2, base_seq=0, status=REPLAYED, replays=1, header=header)
    again = content_of(as_text, entry, [(2, refused["original"])])
    assert parse_records(contract_of_originals(as_text, entry), "a", again).table["delay"].to_pylist() == [
        "fast"
    ]


def test_check_counts_corrected_lines_and_names_refused_ones() -> None:
    lines = lines_with_parity([b"one", b"two", b"", b"four"])
    damaged = [flipped(lines[0], 3), lines[1], flipped(lines[2], 3, 9), lines[3]]
    found = check_file(pa.BufferReader(b"\n".join(damaged) + b"\n"))
    assert (found.lines, found.corrected, found.refused) == (4, 1, (3,))


def test_line_too_long_to_protect_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="`the line` must be at most 65,536 bytes long"):
        line_with_parity(b"x" * (MOST_PAYLOAD_BYTES + 1))
    (longest,) = check_lines([flipped(line_with_parity(b"x" * MOST_PAYLOAD_BYTES), 77)])
    assert longest.corrected


@pytest.mark.parametrize("size", [0, 3, 4, 10, 11, 27, 28, 250, 4091, 4092])
def test_length_of_a_line_tells_the_length_of_its_payload(size: int) -> None:
    assert check_lines([line_with_parity(b"a" * size)])[0].payload == b"a" * size


def test_parquet_has_no_lines_to_protect() -> None:
    with pytest.raises(ContractError, match=r"source.parity.* must be none if the format is parquet"):
        contract("parquet")


@pytest.mark.parametrize("training", [{"parity": "secded", "parity_attribute": "note"}, {"parity": "none"}])
def test_parity_of_values_in_an_old_contract_is_refused_with_its_remedy(training: dict[str, str]) -> None:
    with pytest.raises(
        ContractError, match=r"training.parity.* must be absent: .*`spillway parity add FILE`"
    ):
        read_stream(
            {
                "stream": "net",
                "channel": "up",
                "source": {"format": "csv"},
                "attributes": ATTRIBUTES,
                "levers": [{"lever": "attributes", "training": training}],
            }
        )

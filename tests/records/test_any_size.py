"""However a file is read, in blocks, in pieces, by Arrow or record by record: the same records, in bounded memory."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.records.test_parse import HEADER, contract, csv_with, json_with

from spillway.contracts import StreamContract
from spillway.records import (
    WHOLE,
    ParsedRecords,
    csv_lines,
    file_slices,
    lines,
    measure_file,
    parse_blocks,
    parse_records,
    split_file,
)
from spillway.records import csv_lines as csv_quotes
from spillway.records.csv_lines import QuoteIndex

SOUP = st.lists(
    st.sampled_from(['"', '"', '""', ",", ",", "\n", "\n", "\r\n", "\r", "a", "7", " ", "é", "r1,2026-03-02,1,,,,x\n",
                     'r1,2026-03-02,1,,,,"x"\n', 'r1,2026-03-02,1,,,,"x\n\ny, ""z"""\r\n', "nan", "\x00", "\ufeff"]),
    max_size=40,
)  # fmt: skip


def in_parts(net: StreamContract, content: bytes, piece_bytes: int | None = None) -> ParsedRecords:
    """Every part of every piece, one after the other."""
    source = pa.BufferReader(content)
    wanted = (WHOLE,) if piece_bytes is None else split_file(net, source, piece_bytes)
    parts = [part for piece in wanted for part in parse_blocks(net, "a", source, piece)]
    if not parts:
        return parse_records(net, "a", b"")
    table = pa.concat_tables([part.table for part in parts])
    return ParsedRecords(table, pa.concat_tables([part.rejected for part in parts]))


def same(one: ParsedRecords, other: ParsedRecords) -> bool:
    return one.table.equals(other.table) and one.rejected.equals(other.rejected)


class _NoStretch(QuoteIndex):
    """Every record is for the exact reader."""

    def next_range(self, start: int) -> Any:
        found = super().next_range(start)
        return type(found)(found.first[:0], found.last[:0], found.fields[:0])


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(SOUP, st.integers(1, 40), st.integers(1, 5), st.booleans())
@example(["\ufeff"], 8, 3, True)
def test_csv_is_the_same_in_blocks_in_pieces_and_record_by_record(
    soup: list[str], block: int, block_lines: int, headless: bool
) -> None:
    net = contract("csv", options={"header": not headless})
    content = ("" if headless else HEADER + "\n").encode() + "".join(soup).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_lines, "QuoteIndex", _NoStretch)
        exact = parse_records(net, "a", content)
    assert same(parse_records(net, "a", content), exact)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        patch.setattr(lines, "BLOCK_LINES", block_lines)
        assert same(in_parts(net, content), exact)
        patch.setattr(file_slices, "BLOCK_BYTES", max(block, 80))
        assert same(in_parts(net, content, piece_bytes=block), exact)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([json_with(), "null", "", "{}",
                                 json_with()[:-4], '{"a": [1', " ", json_with(extra="1")]),
                max_size=12), st.integers(1, 90), st.integers(1, 4))  # fmt: skip
def test_json_is_the_same_in_blocks_and_in_pieces(rows: list[str], block: int, block_lines: int) -> None:
    net, content = contract("json"), "\n".join(rows).encode()
    whole = parse_records(net, "a", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        patch.setattr(lines, "BLOCK_LINES", block_lines)
        patch.setattr(file_slices, "BLOCK_BYTES", block)
        assert same(in_parts(net, content), whole)
        assert same(in_parts(net, content, piece_bytes=block), whole)


def test_a_line_or_record_longer_than_a_record_may_be_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "RECORD_BYTES", 500)
    monkeypatch.setattr(csv_lines, "RECORD_BYTES", 500)
    monkeypatch.setattr(csv_quotes, "FIELD_CHARACTERS", 400)
    for form, good, long, head in (
        ("json", json_with(), json_with(note='"' + "x" * 5000 + '"'), ""),
        ("csv", csv_with(), csv_with(note="x" * 5000), HEADER + "\n"),
        ("csv", csv_with(), csv_with(note='"' + "x" * 5000 + '"'), HEADER + "\n"),
    ):
        content = (head + f"{good}\n{long}\n{good}\n").encode()
        for block in (40, 600, 1 << 20):
            monkeypatch.setattr(lines, "BLOCK_BYTES", block)
            found = in_parts(contract(form), content)
            first = 2 if head else 1
            assert found.table.column("line").to_pylist() == [first, first + 2]
            assert found.rejected.column("rule").to_pylist() == ["be at most 500 bytes long"]
    many = f"{HEADER}\n{csv_with()}\n" + csv_with(note='"' + "x\n" * 300 + '"') + f"\n{csv_with()}\n"
    whole = None
    for block in (40, 600, 1 << 20):
        monkeypatch.setattr(lines, "BLOCK_BYTES", block)
        found = in_parts(contract("csv"), many.encode())
        assert found.table.column("line").to_pylist() == [2, 304]
        assert whole is None or same(whole, found)
        whole = found


def quoted_rows(count: int, stray: int | None = None) -> bytes:
    """CSV in which every line has quotes, some have line feeds in them, and one may have a stray quote."""
    draw = random.Random(1)
    rows = [
        csv_with(count=str(n), note='"' + draw.choice(["a", "b, c", 'say ""hi""', "two\nlines"]) + '"')
        for n in range(count)
    ]
    if stray is not None:
        rows[stray] = csv_with(note='5" pipe')
    return "\n".join([HEADER, *rows, ""]).encode()


@pytest.mark.parametrize(("stray", "at_least"), [(None, 4), (5000, 2), (0, 1)])
def test_a_quoted_file_is_cut_as_far_as_its_quotes_stand_right(stray: int | None, at_least: int) -> None:
    net, content = contract("csv"), quoted_rows(6000, stray)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_slices, "BLOCK_BYTES", 20_000)
        found = split_file(net, pa.BufferReader(content), 60_000)
        assert len(found) >= at_least
        assert same(in_parts(net, content, 60_000), parse_records(net, "a", content))
    assert found == tuple(sorted(found, key=lambda piece: piece.start))
    assert parse_records(net, "a", content).table.num_rows == 6000


def test_quoted_lines_are_split_by_arrow_and_only_odd_ones_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    slow = csv_lines._Block._slow

    def counted(self: Any, names: tuple[str, ...], rows: list[Any]) -> list[pa.Table]:
        read.append(len(rows))
        return slow(self, names, rows)

    monkeypatch.setattr(csv_lines._Block, "_slow", counted)
    net = contract("csv")
    assert parse_records(net, "a", quoted_rows(5000)).table.num_rows == 5000
    assert read == []
    assert parse_records(net, "a", quoted_rows(5000, stray=2500)).table.num_rows == 5000
    assert read == [64]


def test_what_is_measured_is_what_is_read() -> None:
    net = contract("csv")
    for content in (b"", b"\n", b"a", b"a\n", b"a\nb", quoted_rows(100)):
        found = measure_file(net, pa.BufferReader(content))
        assert found.records == content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))

"""Footers are rewritten by hand: nothing but optional fields is left out, and a wrong footer is never written."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from spillway import parquet
from spillway.errors import WrongFooter
from spillway.parquet import ShortFooterSink, best_encodings, parquet_writer, short_footer
from spillway.store.file_writer import write_file

Field = tuple[int, Any]


def decoded(data: bytes, at: int = 0) -> tuple[dict[int, Field], int]:
    """Decode a struct of Thrift's compact protocol: by number of a field its type and value, and where it ends."""

    def varint() -> int:
        nonlocal at
        found = shift = 0
        while True:
            one = data[at]
            at += 1
            found |= (one & 127) << shift
            shift += 7
            if one < 128:
                return found

    def value(kind: int) -> Any:
        nonlocal at
        if kind in (4, 5, 6):
            number = varint()
            return -(number // 2) - 1 if number % 2 else number // 2
        if kind == 12:
            found, at = decoded(data, at)
            return found
        size = {3: 1, 7: 8}.get(kind) or (varint() if kind == 8 else None)
        if size is not None:
            at += size
            return data[at - size : at]
        assert kind in (9, 10), kind
        head = data[at]
        at += 1
        count = head // 16 if head < 240 else varint()
        if head % 16 in (1, 2):
            at += count
            return list(data[at - count : at])
        return [value(head % 16) for _ in range(count)]

    fields: dict[int, Field] = {}
    number = 0
    while data[at]:
        head = data[at]
        at += 1
        step = varint() if head < 16 else 0
        number = number + head // 16 if head >= 16 else -(step // 2) - 1 if step % 2 else step // 2
        assert number not in fields
        fields[number] = (head % 16, head % 16 == 1 if head % 16 in (1, 2) else value(head % 16))
    return fields, at + 1


def encoded(fields: Mapping[int, Field]) -> bytes:
    """Encode a struct, every field with its number in full: no file of Arrow's has that form."""

    def varint(number: int) -> bytes:
        found = bytearray()
        while number > 127:
            found.append(number % 128 + 128)
            number //= 128
        return bytes([*found, number])

    def value(kind: int, it: Any) -> Any:
        if kind in (1, 2):
            return b""
        if kind in (4, 5, 6):
            return varint(2 * it if it >= 0 else -2 * it - 1)
        if kind == 12:
            return encoded(it)
        if kind == 8:
            return varint(len(it)) + it
        if kind in (3, 7):
            return bytes(it)
        inside, values = it
        head = (
            bytes([len(values) * 16 + inside])
            if len(values) < 15
            else bytes([240 + inside]) + varint(len(values))
        )
        if inside in (1, 2):
            return head + bytes(values)
        return head + b"".join(value(inside, one) for one in values)

    body = b"".join(
        bytes([kind]) + varint(2 * number) + value(kind, it) for number, (kind, it) in fields.items()
    )
    return body + b"\0"


def without_lists_kind(kind: int, it: Any) -> Any:
    """A value of `encoded` as `decoded` returns it."""
    if kind == 12:
        return {number: (one, without_lists_kind(one, what)) for number, (one, what) in it.items()}
    if kind in (9, 10):
        return list(it[1]) if it[0] in (1, 2) else [without_lists_kind(it[0], one) for one in it[1]]
    return kind == 1 if kind in (1, 2) else it


def by_kind(kind: int, deeper: some.SearchStrategy[Any]) -> some.SearchStrategy[Any]:
    if kind in (4, 5, 6):
        return some.integers(-(2**63), 2**63 - 1)
    if kind in (1, 2):
        return some.integers(1, 2)
    return {
        3: some.binary(min_size=1, max_size=1),
        7: some.binary(min_size=8, max_size=8),
        8: some.binary(max_size=200),
        12: deeper,
    }[kind]


def structs(depth: int) -> some.SearchStrategy[dict[int, Field]]:
    """Structs of any fields."""
    deeper = structs(depth - 1) if depth else some.just({})
    scalar = some.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12]).flatmap(
        lambda kind: some.tuples(some.just(kind), by_kind(kind, deeper))
    )
    inside = some.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12])
    lists = some.tuples(
        some.sampled_from([9, 10]),
        inside.flatmap(
            lambda kind: some.tuples(some.just(kind), some.lists(by_kind(kind, deeper), max_size=20))
        ),
    )
    numbers = some.integers(1, 40) | some.integers(1, 2**15 - 1)
    return some.dictionaries(numbers, scalar | lists, max_size=8)


@given(structs(2), some.binary(max_size=30), some.sets(some.integers(1, 40), max_size=20))
def test_any_struct_loses_the_fields_that_are_omitted_and_nothing_else(
    fields: dict[int, Field], before: bytes, left_out: set[int]
) -> None:
    footer = encoded(fields)
    end = short_footer(
        before + footer + struct.pack("<I", len(footer)) + b"PAR1", dict.fromkeys(left_out, True)
    )
    length = struct.unpack("<I", end[-8:-4])[0]
    assert end[-4:] == b"PAR1"
    assert end[: len(end) - 8 - length] == before
    found, ends_at = decoded(end, len(before))
    assert ends_at == len(end) - 8
    assert found == {
        number: (kind, without_lists_kind(kind, it))
        for number, (kind, it) in fields.items()
        if number not in left_out
    }


TEXT = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
NAMES = some.lists(
    TEXT.map(lambda text: text[:30]) | some.text("ab", min_size=120, max_size=300).map(lambda text: text),
    min_size=1,
    max_size=24,
    unique_by=str.lower,
)
KINDS = {
    "int": pa.int64(),
    "short": pa.int32(),
    "moment": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "double": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "logical": pa.bool_(),
    "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
    "map": pa.map_(pa.string(), pa.float64()),
}
VALUES: dict[str, list[Any]] = {
    "int": [2**63 - 1, -(2**63), None, 0],
    "short": [2**31 - 1, -(2**31), None],
    "moment": [-(2**55), 2**55, None],
    "day": [-700_000, 2_900_000, None],
    "double": [-0.0, None, 1.5, float("nan"), float("inf")],
    "text": ["", "ß", None, "long" * 50],
    "bytes": [b"", None, b"\0\xff"],
    "logical": [True, None, False],
    "list": [[1, None], [], None],
    "struct": [{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}],
    "map": [[("k", 1.0)], [], None],
}


@some.composite
def tables(draw: some.DrawFn) -> tuple[pa.Table, int | None]:
    """Rows of any columns, and the rows in a row group (None: all)."""
    names = draw(NAMES)
    kinds = draw(some.lists(some.sampled_from(list(KINDS)), min_size=len(names), max_size=len(names)))
    rows = draw(some.integers(0, 40))
    columns = [
        pa.array([VALUES[kind][i % len(VALUES[kind])] for i in range(rows)], KINDS[kind]) for kind in kinds
    ]
    return pa.table(columns, names=names), draw(some.none() | some.integers(1, 10))


def written(rows: pa.Table, group: int | None, keys: list[str]) -> tuple[bytes, bytes]:
    """A file as Spillway writes it, and as Arrow does with the same options."""
    files = []
    for shortens in (True, False):
        sink = io.BytesIO()
        with pytest.MonkeyPatch.context() as patch:
            if not shortens:
                patch.setattr(parquet, "short_footer", lambda end, omitted: end)
                patch.setattr(parquet, "footer_difference", lambda *_: "")
            with parquet_writer(
                sink, rows.schema, best_encodings(rows), group is not None, None, keys
            ) as writer:
                if rows.num_rows:
                    writer.write_table(rows, row_group_size=group or 1 << 19)
        files.append(sink.getvalue())
    return files[0], files[1]


def footer(file: bytes) -> tuple[bytes, dict[int, Field]]:
    """What comes before the footer, and its fields."""
    start = len(file) - 8 - struct.unpack("<I", file[-8:-4])[0]
    fields, end = decoded(file, start)
    assert end == len(file) - 8
    return file[:start], fields


def shape(rows: pa.Table) -> pa.Table:
    """Rows whose nested columns have Parquet's own names of their fields."""
    return pq.read_table(pa.BufferReader(_plain(rows)), use_threads=False)


def _plain(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False)
    return sink.getvalue()


WIDE = pa.table({f"c{i}": pa.array([i, None, -i], pa.int64()) for i in range(40)})


@settings(max_examples=60)
@given(tables(), some.lists(TEXT, max_size=3))
@example((WIDE, 1), ["ß" * 200])
@example((pa.table({"c": pa.array(range(40), pa.int64())}), 1), [])
def test_any_file_has_the_same_footer_but_for_what_is_omitted(
    given: tuple[pa.Table, int | None], keys: list[str]
) -> None:
    rows, group = given
    short, full = written(rows, group, keys)
    (before, found), (same, wanted) = footer(short), footer(full)
    assert before == same
    for row_group in wanted[4][1]:
        for column in row_group[1][1]:
            for number in (13, 16):
                column[3][1].pop(number, None)
    if group is None:
        wanted.pop(7, None)
    else:
        assert len(found[7][1]) == pq.ParquetFile(io.BytesIO(short)).metadata.num_columns
    assert found == wanted
    assert pq.read_table(io.BytesIO(short)).equals(shape(rows)) or repr(
        pq.read_table(io.BytesIO(short)).to_pylist()
    ) == repr(shape(rows).to_pylist())


@settings(max_examples=25, deadline=None)
@given(tables())
def test_other_programs_read_any_file(tmp_path_factory: pytest.TempPathFactory, given: Any) -> None:
    rows, group = given
    short, full = written(rows, group, [])
    folder = tmp_path_factory.mktemp("footers")
    found, wanted = folder / "short.parquet", folder / "full.parquet"
    found.write_bytes(short)
    wanted.write_bytes(full)
    with duckdb.connect() as connection:
        read = [
            repr(
                connection.sql("SELECT * FROM read_parquet(?)", params=[str(one)])
                .to_arrow_table()
                .to_pylist()
            )
            for one in (found, wanted)
        ]
    assert read[0] == read[1]
    if not any(pa.types.is_map(kind) for kind in rows.schema.types):
        here, there = (repr(polars.read_parquet(one).to_dicts()) for one in (found, wanted))
        assert here == there


def broken(number: int) -> Any:
    """The end of a file, with one byte of its footer changed."""

    def changed(end: bytes, omitted: parquet.Omitted) -> bytes:
        right = bytearray(short_footer(end, omitted))
        at = len(right) - 8 - struct.unpack("<I", right[-8:-4])[0] + number
        right[at] ^= 2
        return bytes(right)

    return changed


@pytest.mark.parametrize("group", [None, 50], ids=["one row group", "several"])
def test_a_footer_with_any_byte_changed_is_refused_and_no_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int | None
) -> None:
    rows = pa.table({"seq": range(100), "key": ["a"] * 100, "v": [0.5] * 100})
    short, _ = written(rows, group, [])
    length = struct.unpack("<I", short[-8:-4])[0]
    for number in range(length):
        monkeypatch.setattr(parquet, "short_footer", broken(number))
        with pytest.raises(WrongFooter, match="footer"):
            write_file(str(tmp_path), {}, rows.schema, [rows], rows_in_a_group=group)
        assert not list(tmp_path.iterdir()), number


def test_a_field_that_is_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"seq": range(100), "v": [0.5] * 100})
    for left_out in (
        {3: True},
        {6: True},
        {4: {1: {3: {9: True}}}},
        {4: {1: {3: {11: True}}}},
        {4: {5: True}},
    ):
        monkeypatch.setattr(
            parquet, "short_footer", lambda end, omitted, left_out=left_out: short_footer(end, left_out)
        )
        with pytest.raises(WrongFooter):
            write_file(str(tmp_path), {}, rows.schema, [rows])


def test_a_footer_that_cannot_be_shortened_is_refused() -> None:
    sink = io.BytesIO()
    shortened = ShortFooterSink(sink, False)
    shortened.finish()
    shortened.write(bytes([0x1B, 1, 0]) + struct.pack("<I", 3) + b"PAR1")
    whole = pq.read_metadata(pa.BufferReader(_plain(WIDE)))
    with pytest.raises(WrongFooter, match="type 11"):
        shortened.close(whole)
    assert sink.getvalue() == b""

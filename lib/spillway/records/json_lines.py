"""Read JSON lines, one object per line. NaN, Infinity and -Infinity are accepted as numbers.

Arrow's reader parses a block of lines at a time. If it refuses a block, the block is split into smaller ones. Blocks of
at most 64 lines that it refuses are parsed line by line, by exact rules. Arrow's reader sees a stream of values, not
lines, and a bare `null` crashes the process. So it gets only blocks in which every line has exactly one opening brace,
at its start, and one closing brace, at its end. Then each line is one object.

A field that the contract does not know is counted and left out, or refuses its record (`unknown_fields`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from spillway.contracts.fields import suggest
from spillway.contracts.stream import Attribute, StreamContract
from spillway.records.convert import ParsedRecords, assemble, no_records, remedy_for_value, type_rule
from spillway.records.lines import LineReader, Lines, refuse_long
from spillway.records.rejects import OTHERS, TO_UTF8, Rejects, unknown_column
from spillway.records.wrapper import ByteReader

_SMALLEST_BLOCK = 64
_MOST_UNKNOWN = 16
_AS_READ = {"boolean": pa.bool_(), "integer": pa.int64(), "double": pa.float64()}


class _RefusedRecord(Exception):
    """A record that breaks a rule: field, rule, value, remedy."""

    def __init__(self, name: str, rule: str, value: object, remedy: str) -> None:
        super().__init__(name)
        self.why = (name, rule, value, remedy)


def json_blocks(
    contract: StreamContract, file_name: str, plain: ByteReader, lines_before: int = 0
) -> Iterator[ParsedRecords]:
    """Yield the records of JSON lines in blocks."""
    reader, before = LineReader(plain), lines_before
    fields = JsonFields(contract)
    while not reader.done:
        lines = Lines.of(reader.next(), before)
        before += lines.count
        yield _parse_block(fields, lines, Rejects(file_name))


def _parse_block(fields: JsonFields, lines: Lines, rejects: Rejects) -> ParsedRecords:
    contract = fields.contract
    bad_text, long = lines.lacking_utf8(), lines.too_long()
    for i in np.flatnonzero(long).tolist():
        refuse_long(lines, i, rejects)
    for i in np.flatnonzero(bad_text & ~long).tolist():
        original = lines.bytes_of(i)
        shown = original[:60].decode("utf-8", "backslashreplace")
        rejects.add(lines.number(i), "the line", "be UTF-8 text", shown, TO_UTF8, original)
    # A line that was rejected above is never part of a block; it splits blocks.
    bad = bad_text | long
    wanted = np.flatnonzero(~lines.blank & ~bad)
    if not len(wanted):
        return no_records(contract, rejects)
    reader = _Reader(fields, lines, bad, rejects)
    tables = reader.read(wanted)
    kept = np.concatenate(reader.kept)
    table = pa.concat_tables(tables).combine_chunks()
    columns = {a.name: _array(table.column(i)) for i, a in enumerate(contract.attributes)}
    numbers = kept + lines.before + 1
    taken = assemble(contract, numbers, columns, lambda i: lines.bytes_of(int(kept[i])), rejects)
    return ParsedRecords(taken, rejects.table(), reader.notes | rejects.notes)


def _of_array(line: bytes) -> str:
    """Return the remedy for a line of a JSON array; empty for any other line.

    >>> [bool(_of_array(line)) for line in (b"[", b'[{"a": 1},', b'{"a": 1},', b"]", b'{"a": 1', b"7")]
    [True, True, True, True, False, False]
    """
    text = line.strip()
    if text[:1] == b"[" or text in (b"]", b"],") or (text[:1] == b"{" and text[-2:] in (b"},", b"}]")):
        return "the file is a JSON array: send one object per line, e.g. with: jq -c '.[]' FILE"
    return ""


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


class JsonFields:
    """The types with which a record's fields are read, and the types of unknown fields that were seen so far."""

    def __init__(self, contract: StreamContract) -> None:
        self.contract = contract
        self.attributes = {a.source_name: a for a in contract.attributes}
        self.schema = pa.schema(
            [(a.source_name, _AS_READ.get(a.type, pa.string())) for a in contract.attributes]
        )
        self.doubles = [name for name, a in self.attributes.items() if a.type == "double"]
        self.strict = contract.unknown_fields == "refuse"
        self.finite = contract.non_finite == "reject"
        self.unknown: dict[str, pa.DataType] = {}

    @property
    def all_fields(self) -> pa.Schema:
        """The fields of the contract, followed by the unknown fields, which are only noted."""
        return pa.schema([*self.schema, *(pa.field(name, kind) for name, kind in self.unknown.items())])

    def notice(self, name: str, value: object) -> None:
        """Store the type of an unknown field, so that Arrow can read records with it in blocks."""
        kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
        kind = kinds.get(type(value))
        if name != name.encode("utf-8", "replace").decode("utf-8"):
            return  # a lone surrogate cannot be in a column name: records with it are read one by one
        if kind is not None and name not in self.unknown and len(self.unknown) < _MOST_UNKNOWN:
            self.unknown[name] = kind


class _Reader:
    def __init__(
        self, fields: JsonFields, lines: Lines, bad_text: npt.NDArray[np.bool_], rejects: Rejects
    ) -> None:
        self.fields = fields
        self.lines = lines
        self.rejects = rejects
        self.notes: dict[str, int] = {}
        self.kept: list[npt.NDArray[np.int64]] = []
        data = np.frombuffer(lines.content, dtype=np.uint8)
        self._opens = np.flatnonzero(data == ord("{"))
        self._closes = np.flatnonzero(data == ord("}"))
        self._nul = np.flatnonzero(data == 0)
        self._bad = np.flatnonzero(bad_text)
        last = lines.ends - 1
        last = np.where((last >= lines.starts) & (data[np.maximum(last, 0)] == 13), last - 1, last)
        self._last = last

    def read(self, wanted: npt.NDArray[np.int64]) -> list[pa.Table]:
        """Return the records of these lines; add refused records to the rejects."""
        table = self._fast(wanted)
        if table is not None:
            self.kept.append(wanted)
            return [table]
        if len(wanted) <= _SMALLEST_BLOCK:
            return self._exact(wanted)
        step = max(_SMALLEST_BLOCK, len(wanted) // 8)
        return [t for start in range(0, len(wanted), step) for t in self.read(wanted[start : start + step])]

    def _fast(self, wanted: npt.NDArray[np.int64]) -> pa.Table | None:
        first, last = int(wanted[0]), int(wanted[-1])
        start, end = int(self.lines.starts[first]), int(self.lines.ends[last])
        opens, closes = (
            _positions_between(self._opens, start, end),
            _positions_between(self._closes, start, end),
        )
        if not (
            np.array_equal(opens, self.lines.starts[wanted])
            and np.array_equal(closes, self._last[wanted])
            and not len(_positions_between(self._nul, start, end))
            and not len(_positions_between(self._bad, first, last + 1))
        ):
            return None
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(memoryview(self.lines.content)[start:end]),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=end - start + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self.fields.all_fields, unexpected_field_behavior="error"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None
        if table.num_rows != len(wanted) or any(
            self._odd(table.column(name)) for name in self.fields.doubles
        ):
            return None
        many = len(self.fields.schema)
        for name in table.column_names[many:]:
            self._note(name, table.num_rows - table.column(name).null_count)
        return table.select(range(many))

    def _odd(self, numbers: pa.ChunkedArray) -> bool:
        """Return whether the exact rules must decide about a number: Arrow accepts Inf, 1e999 and -NaN."""
        if pc.all(pc.is_finite(numbers)).as_py() is not False:
            return False
        found = np.asarray(numbers.drop_null())
        found = found[~np.isfinite(found)]
        return self.fields.finite or bool((np.isinf(found) | np.signbit(found)).any())

    def _note(self, name: str, count: int) -> None:
        if count:
            many = len(self.notes) < _MOST_UNKNOWN or unknown_column(name) in self.notes
            note = unknown_column(name) if many else OTHERS
            self.notes[note] = self.notes.get(note, 0) + count

    def _exact(self, wanted: npt.NDArray[np.int64]) -> list[pa.Table]:
        rows: list[dict[str, Any]] = []
        kept = []
        for i in wanted.tolist():
            original = self.lines.bytes_of(i)
            try:
                rows.append(self._one(original))
                kept.append(i)
            except _RefusedRecord as refused:
                self.rejects.add(self.lines.number(i), *refused.why, original)
        self.kept.append(np.array(kept, dtype=np.int64))
        return [pa.Table.from_pylist(rows, schema=self.fields.schema)]

    def _one(self, original: bytes) -> dict[str, Any]:
        try:
            record = _DECODER.decode(original.decode())
        except (ValueError, RecursionError) as error:
            problem = f"{_end(original)} ({error})"
            remedy = (
                _of_array(original) or "send one whole object a line; a last line cut short is sent again"
            )
            raise _RefusedRecord("the line", "be one JSON object", problem, remedy) from None
        if not isinstance(record, dict):
            remedy = _of_array(original) or "send {name: value, ...}"
            raise _RefusedRecord("the line", "be one JSON object", _shown(record), remedy)
        fields = self.fields
        unknown = [name for name in record if name not in fields.attributes]
        if unknown and fields.strict:
            remedy = suggest(unknown[0], fields.attributes) + ", or add it to the contract"
            got = _shown(record[unknown[0]])
            raise _RefusedRecord(unknown[0], "be an attribute of the contract", got, remedy)
        row: dict[str, Any] = {}
        for name, attribute in fields.attributes.items():
            value = record.get(name)
            if value is not None and not _has_type(attribute, value, fields.finite):
                rule, remedy = type_rule(attribute.type, non_finite=fields.contract.non_finite)
                if isinstance(value, str) and attribute.type in _BARE:
                    remedy = "send it without quotes, which make it text, or declare the attribute string"
                remedy = remedy_for_value(value, attribute.type, is_csv=False) or remedy
                raise _RefusedRecord(name, rule, _shown(value), remedy)
            row[name] = float(value) if value is not None and attribute.type == "double" else value
        for name in unknown:
            fields.notice(name, record[name])
            self._note(name, record[name] is not None)
        return row


def _positions_between(positions: npt.NDArray[np.int64], start: int, end: int) -> npt.NDArray[np.int64]:
    return positions[np.searchsorted(positions, start) : np.searchsorted(positions, end)]


class _NoNumber(float):
    """NaN or an infinity that was written as such, as opposed to a number that is too large for a double."""


_BARE = ("boolean", "integer", "double")
"""Types that JSON writes without quotes."""


def _has_type(attribute: Attribute, value: object, finite: bool) -> bool:
    if attribute.type == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if attribute.type == "integer":
        return isinstance(value, int) and -(1 << 63) <= value < 1 << 63
    if attribute.type == "double":
        try:
            if not isinstance(value, int | float):
                return False
            return math.isfinite(float(value)) or (not finite and isinstance(value, _NoNumber))
        except OverflowError:
            return False
    # a lone surrogate is not valid text: it cannot be written as UTF-8
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _end(original: bytes) -> str:
    """Return the end of a line, which shows where it was truncated."""
    text = original.decode("utf-8", "backslashreplace").strip()
    return text if len(text) <= 60 else "..." + text[-60:]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) == len(pairs):
        return record
    names = [name for name, _ in pairs]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise _RefusedRecord(name, "stand once in a record", name, "send it once")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_NoNumber)

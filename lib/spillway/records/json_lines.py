"""JSON, one object a line.

Arrow's reader takes a block of lines at a time; a block it refuses is cut into smaller ones, and the last few
lines are read one by one by the exact rules. Arrow's reader sees a stream of values, not lines, and brings
the process down on a bare `null`; so it is only given blocks in which every line has one brace that opens
it and one that closes it: then lines and objects are the same thing.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from spillway.contracts.model import Attribute, StreamContract
from spillway.contracts.shapes import suggest
from spillway.records.assemble import Parsed, assemble, nothing
from spillway.records.convert import RULES
from spillway.records.lines import Lines
from spillway.records.rejects import Rejects

_BLOCK_LINES = 1 << 16
_SMALLEST_BLOCK = 64
_AS_READ = {"boolean": pa.bool_(), "integer": pa.int64(), "double": pa.float64()}


class _Refused(Exception):
    """A record that breaks a rule: field, rule, value, remedy."""

    def __init__(self, name: str, rule: str, value: object, remedy: str) -> None:
        super().__init__(name)
        self.why = (name, rule, value, remedy)


def parse_json(contract: StreamContract, file_name: str, content: bytes) -> Parsed:
    """The records of a file of JSON lines."""
    rejects = Rejects(file_name)
    lines = Lines.of(content)
    bad_text = lines.lacking_utf8()
    for i in np.flatnonzero(bad_text):
        original = lines.bytes_of(int(i))
        rejects.add(
            int(i) + 1,
            "the line",
            "be UTF-8 text",
            original[:60].decode("utf-8", "backslashreplace"),
            "send it as UTF-8",
            original,
        )
    # A line that is not UTF-8 can only split blocks, never go into one.
    wanted = np.flatnonzero(~lines.blank & ~bad_text)
    if not len(wanted):
        return nothing(contract, rejects)
    reader = _Reader(contract, lines, bad_text, rejects)
    tables = [
        table
        for start in range(0, len(wanted), _BLOCK_LINES)
        for table in reader.read(wanted[start : start + _BLOCK_LINES])
    ]
    kept = np.concatenate(reader.kept) if reader.kept else np.empty(0, dtype=np.int64)
    table = pa.concat_tables(tables).combine_chunks() if tables else reader.schema.empty_table()
    columns = {a.name: _array(table.column(i)) for i, a in enumerate(contract.attributes)}
    return assemble(contract, kept + 1, columns, lambda i: lines.bytes_of(int(kept[i])), rejects)


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


class _Reader:
    def __init__(
        self, contract: StreamContract, lines: Lines, bad_text: npt.NDArray[np.bool_], rejects: Rejects
    ) -> None:
        self.lines = lines
        self.rejects = rejects
        self.attributes = {a.source_name: a for a in contract.attributes}
        self.schema = pa.schema(
            [(name, _AS_READ.get(a.type, pa.string())) for name, a in self.attributes.items()]
        )
        self.doubles = [name for name, a in self.attributes.items() if a.type == "double"]
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
        """The records of these lines; what is refused goes to the rejects."""
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
        opens, closes = _between(self._opens, start, end), _between(self._closes, start, end)
        if not (
            np.array_equal(opens, self.lines.starts[wanted])
            and np.array_equal(closes, self._last[wanted])
            and not len(_between(self._nul, start, end))
            and not len(_between(self._bad, first, last + 1))
        ):
            return None
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(memoryview(self.lines.content)[start:end]),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=end - start + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self.schema, unexpected_field_behavior="error"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None
        # to Arrow NaN and Inf are numbers; whoever refuses them must be the exact rules, always
        finite = all(pc.all(pc.is_finite(table.column(name))).as_py() is not False for name in self.doubles)
        return table if finite and table.num_rows == len(wanted) else None

    def _exact(self, wanted: npt.NDArray[np.int64]) -> list[pa.Table]:
        rows: list[dict[str, Any]] = []
        kept = []
        for i in wanted.tolist():
            original = self.lines.bytes_of(i)
            try:
                rows.append(self._one(original))
                kept.append(i)
            except _Refused as refused:
                self.rejects.add(i + 1, *refused.why, original)
        self.kept.append(np.array(kept, dtype=np.int64))
        return [pa.Table.from_pylist(rows, schema=self.schema)]

    def _one(self, original: bytes) -> dict[str, Any]:
        try:
            record = _DECODER.decode(original.decode())
        except (ValueError, RecursionError) as error:
            problem = f"{_end(original)} ({error})"
            remedy = "send one whole object a line; a last line cut short is sent again"
            raise _Refused("the line", "be one JSON object", problem, remedy) from None
        if not isinstance(record, dict):
            raise _Refused("the line", "be one JSON object", _shown(record), "send {name: value, ...}")
        for name in record:
            if name not in self.attributes:
                remedy = suggest(name, self.attributes) + ", or add it to the contract"
                raise _Refused(name, "be an attribute of the contract", _shown(record[name]), remedy)
        row: dict[str, Any] = {}
        for name, attribute in self.attributes.items():
            value = record.get(name)
            if value is not None and not _is(attribute, value):
                rule, remedy = RULES[attribute.type]
                raise _Refused(name, rule, _shown(value), remedy)
            row[name] = float(value) if value is not None and attribute.type == "double" else value
        return row


def _between(positions: npt.NDArray[np.int64], start: int, end: int) -> npt.NDArray[np.int64]:
    return positions[np.searchsorted(positions, start) : np.searchsorted(positions, end)]


def _is(attribute: Attribute, value: object) -> bool:
    if attribute.type == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if attribute.type == "integer":
        return isinstance(value, int) and -(1 << 63) <= value < 1 << 63
    if attribute.type == "double":
        try:
            return isinstance(value, int | float) and math.isfinite(float(value))
        except OverflowError:
            return False
    # half of a surrogate pair is no text: it cannot be written as UTF-8
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _end(original: bytes) -> str:
    """Where a line breaks off is what tells how it broke."""
    text = original.decode("utf-8", "backslashreplace").strip()
    return text if len(text) <= 60 else "..." + text[-60:]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) == len(pairs):
        return record
    names = [name for name, _ in pairs]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise _Refused(name, "stand once in a record", name, "send it once")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=float)

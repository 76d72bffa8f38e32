"""Columns and frames: the arrays that the synopsis kernels work on.

A `Column` has the values of one attribute over the rows of a frame: one numpy array and a validity mask. Three kinds
cover every type of a contract: ``real`` (float64), ``integer`` (int64; booleans, dates and timestamps are integers in
their stored unit) and ``text`` (int64 codes into a dictionary of its own). The value of a null is zero, so that equal
columns are equal arrays.

A `Frame` is the unit of recovery (specs/attributes.md section 6, *key frames*): rows in strictly increasing `seq`, a
key code per row, and the columns *as the destination sees them*. At the rows where an attribute is shed, its own column
has the true values at the source and nulls at the destination. Every other column must be the same on both sides, with
nulls where it is shed and rounded values where it is rounded. Otherwise the two ends would predict differently.
`Frame.as_transmitted` makes such a frame.

>>> column = Column.real([29.91, None, 30.08])
>>> column.valid.tolist(), column.values.tolist()
([True, False, True], [29.91, 0.0, 30.08])
>>> Column.from_arrow(column.to_arrow()).to_list()
[29.91, None, 30.08]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import InvalidValue

KINDS = ("real", "integer", "text")


def _zero_under_null(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    return values if bool(valid.all()) else np.where(valid, values, values.dtype.type(0))


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one attribute over rows in `seq` order; only kind text has a `dictionary`."""

    kind: str
    values: np.ndarray
    valid: np.ndarray
    dictionary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidValue("kind", f"be one of {', '.join(KINDS)}", self.kind, "see Column.from_arrow")
        wanted = np.float64 if self.kind == "real" else np.int64
        values = np.ascontiguousarray(self.values, dtype=wanted)
        valid = np.ascontiguousarray(self.valid, dtype=np.bool_)
        if values.shape != valid.shape or values.ndim != 1:
            raise InvalidValue(
                "valid", f"have one flag per value of {values.shape}", valid.shape, "pass equal lengths"
            )
        object.__setattr__(self, "values", _zero_under_null(values, valid))
        object.__setattr__(self, "valid", valid)

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def real(values: Sequence[float | None] | np.ndarray) -> Column:
        """Return a column of floats; None is null, NaN stays NaN."""
        if isinstance(values, np.ndarray) and values.dtype != object:
            return Column("real", values, np.ones(len(values), np.bool_))
        valid = np.array([value is not None for value in values], np.bool_)
        return Column("real", np.array([0.0 if v is None else v for v in values], np.float64), valid)

    @staticmethod
    def integer(values: Sequence[int | None] | np.ndarray) -> Column:
        """Return a column of integers; None is null."""
        if isinstance(values, np.ndarray) and values.dtype != object:
            return Column("integer", values, np.ones(len(values), np.bool_))
        valid = np.array([value is not None for value in values], np.bool_)
        return Column("integer", np.array([0 if v is None else v for v in values], np.int64), valid)

    @staticmethod
    def text(values: Sequence[str | None]) -> Column:
        """Return a column of strings; None is null."""
        codes: dict[str, int] = {}
        numbered = [0 if v is None else codes.setdefault(v, len(codes)) for v in values]
        valid = np.array([value is not None for value in values], np.bool_)
        return Column("text", np.array(numbered, np.int64), valid, tuple(codes))

    @staticmethod
    def nulls(kind: str, rows: int) -> Column:
        """Return a column of only nulls."""
        dtype = np.float64 if kind == "real" else np.int64
        return Column(kind, np.zeros(rows, dtype), np.zeros(rows, np.bool_))

    @staticmethod
    def from_arrow(array: pa.Array | pa.ChunkedArray) -> Column:
        """Return an Arrow array as a column: floats are real; integers, booleans, dates, timestamps integer; strings
        text."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
            if isinstance(array, pa.ChunkedArray):
                array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        kind = kind_of_arrow(array.type)
        valid = np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_)
        if kind == "text":
            if pa.types.is_null(array.type):
                return Column.nulls("text", len(array))
            coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
            words = tuple(coded.dictionary.to_pylist())
            codes = np.asarray(pc.fill_null(coded.indices, 0)).astype(np.int64)
            return Column("text", codes, valid, words)
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        elif pa.types.is_date32(array.type):
            array = array.cast(pa.int32())
        elif pa.types.is_timestamp(array.type) or pa.types.is_date64(array.type):
            array = array.cast(pa.int64())
        if array.null_count:
            array = pc.fill_null(array, 0)
        return Column(kind, np.asarray(array), valid)

    def to_arrow(self, type: pa.DataType | None = None) -> pa.Array:
        """Return an Arrow array of `type` (default: double, int64 or string)."""
        missing = None if bool(self.valid.all()) else ~self.valid
        if self.kind == "text":
            words = pa.array(self.dictionary or ("",), pa.string())
            array = pa.DictionaryArray.from_arrays(pa.array(self.values, mask=missing), words)
            return array.dictionary_decode() if type is None else array.cast(pa.string()).cast(type)
        if type is not None and pa.types.is_boolean(type):
            return pa.array(self.values != 0, mask=missing)
        array = pa.array(self.values, mask=missing)
        if type is None or type == array.type:
            return array
        return array.cast(pa.int32()).cast(type) if pa.types.is_date32(type) else array.cast(type)

    def to_list(self) -> list[Any]:
        """Return Python values, None for null."""
        if self.kind == "text":
            return [self.dictionary[v] if ok else None for v, ok in zip(self.values, self.valid, strict=True)]
        return [v if ok else None for v, ok in zip(self.values.tolist(), self.valid.tolist(), strict=True)]

    def take(self, rows: np.ndarray) -> Column:
        """Return the rows of an index array or a mask, in its order."""
        return Column(self.kind, self.values[rows], self.valid[rows], self.dictionary)

    def hide(self, rows: np.ndarray) -> Column:
        """Return the column with nulls where the mask `rows` is true."""
        return Column(self.kind, self.values, self.valid & ~rows, self.dictionary)

    def with_dictionary(self, dictionary: tuple[str, ...]) -> Column:
        """Return the same text with codes into a larger dictionary, which must have every word."""
        if dictionary == self.dictionary:
            return self
        place = {word: code for code, word in enumerate(dictionary)}
        mapping = np.array([place[word] for word in self.dictionary] or [0], np.int64)
        return Column("text", mapping[self.values], self.valid, dictionary)

    def same(self, other: Column) -> np.ndarray:
        """Return for each row whether both values are equal: null equals null, NaN equals NaN, 0.0 equals -0.0."""
        if self.kind == "text":
            both = shared_dictionary(self, other)
            left, right = self.with_dictionary(both).values, other.with_dictionary(both).values
            equal = left == right
        else:
            equal = self.values == other.values
            if self.kind == "real":
                equal |= np.isnan(self.values) & np.isnan(other.values)
        return np.asarray((self.valid == other.valid) & (equal | ~self.valid))


def shared_dictionary(left: Column, right: Column) -> tuple[str, ...]:
    """Return every word of two text columns; the codes of the left column stay valid."""
    known = set(left.dictionary)
    return left.dictionary + tuple(word for word in right.dictionary if word not in known)


def kind_of_arrow(type: pa.DataType) -> str:
    """Return the kind of column that holds an Arrow type."""
    if pa.types.is_floating(type) or pa.types.is_decimal(type):
        return "real"
    is_text = pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_dictionary(type)
    if is_text or pa.types.is_null(type):
        return "text"
    whole = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp)
    if any(test(type) for test in whole):
        return "integer"
    raise InvalidValue(
        "type", "be a string, boolean, integer, double, date or timestamp", str(type), "cast it"
    )


@dataclass(frozen=True, eq=False)
class Frame:
    """Rows of one frame: strictly increasing `seq`, a `key` code per row, and columns by attribute.

    >>> frame = Frame(np.array([10, 11, 12]), np.array([0, 1, 0]), {"temp": Column.real([1.0, 2.0, 3.0])})
    >>> frame.as_transmitted({"temp": np.array([True, False, False])}).columns["temp"].to_list()
    [None, 2.0, 3.0]
    """

    seq: np.ndarray
    key: np.ndarray
    columns: Mapping[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seq = np.ascontiguousarray(self.seq, dtype=np.int64)
        object.__setattr__(self, "seq", seq)
        object.__setattr__(self, "key", dense_codes(np.asarray(self.key)))
        if len(seq) > 1 and bool((seq[1:] <= seq[:-1]).any()):
            row = int(np.argmax(seq[1:] <= seq[:-1])) + 1
            raise InvalidValue(
                "seq", f"be strictly increasing after {seq[row - 1]}", int(seq[row]), "sort the frame"
            )
        for name, column in self.columns.items():
            if len(column) != len(seq):
                raise InvalidValue(name, f"have {len(seq)} rows", len(column), "cut it like the frame")
        if len(self.key) != len(seq):
            raise InvalidValue("key", f"have {len(seq)} rows", len(self.key), "cut it like the frame")

    def __len__(self) -> int:
        return len(self.seq)

    def rows(self, start: int, stop: int | None = None) -> Frame:
        """Return a slice of the frame; key codes may be renumbered, which has no effect."""
        part = slice(start, stop)
        columns = {
            name: Column(c.kind, c.values[part], c.valid[part], c.dictionary)
            for name, c in self.columns.items()
        }
        return Frame(self.seq[part], self.key[part], columns)

    def take(self, rows: np.ndarray) -> Frame:
        """Return the rows of an ascending index array."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return Frame(self.seq[rows], self.key[rows], columns)

    def with_columns(self, columns: Mapping[str, Column]) -> Frame:
        """Return the same rows with some columns added or replaced."""
        return Frame(self.seq, self.key, {**self.columns, **columns})

    def as_transmitted(self, is_shed: Mapping[str, np.ndarray]) -> Frame:
        """Return the frame as the destination sees it: the shed values of each attribute are null."""
        return self.with_columns({name: self.columns[name].hide(rows) for name, rows in is_shed.items()})


def dense_codes(codes: np.ndarray) -> np.ndarray:
    """Return key codes as small integers; equal codes stay equal. Codes that are already small are not changed.

    >>> dense_codes(np.array([7_000_000_000, 5, 7_000_000_000])).tolist()
    [1, 0, 1]
    """
    if len(codes) == 0:
        return np.zeros(0, np.int64)
    small = codes.dtype.kind in "iu" and int(codes.min()) >= 0 and int(codes.max()) <= 4 * len(codes) + 1024
    if not small:
        codes = np.unique(codes, return_inverse=True)[1]
    return np.ascontiguousarray(codes, dtype=np.int64)

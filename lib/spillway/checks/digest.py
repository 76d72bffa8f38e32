"""Summarise the tables of a stream (`raw`, `transmitted`, `recovered`) as one row per batch.

A summary has the number of rows, the nulls in keys and in required columns, the first and last `seq`, and the
schemes. It also has the number of rows without a scheme, if the files have that column. Checksums are:

- of (seq, keys): the exclusive or of a hash of each row. It does not depend on the order of rows or files. Equal
  counts and checksums mean the same tuples. A test for uniqueness over all rows would need a shuffle and prove less.
- of each requested column: the sum modulo 2^64 of a 64-bit hash of each value, keyed by the column's name and the
  row's `seq`. If a value changes, moves to another row, becomes null, or becomes a NaN with other bits, the checksum
  changes, except with probability 2^-64. It does not depend on the order of rows or files either.

The engine reads these columns directly from the table's files, once, one file per task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.sketches.kernels import mix64
from spillway.store.files import DataFile, as_date, rows_of

SUMMARY = pa.schema(
    [
        ("stream", pa.string()),
        ("batch", pa.int64()),
        ("batch_date", pa.date32()),
        ("row_count", pa.int64()),
        ("null_keys", pa.int64()),
        ("null_columns", pa.int64()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("checksum", pa.int64()),
        ("without_scheme", pa.int64()),
        ("schemes", pa.list_(pa.int64())),
        ("columns", pa.list_(pa.struct([("name", pa.string()), ("checksum", pa.int64())]))),
    ]
)
"""The schema of the summaries."""

_NULL = 0x9E3779B97F4A7C15
_ROWS_AT_A_TIME = 262_144
_NO_SCHEME = -1


@dataclass(frozen=True)
class StoredRows:
    """The stored batches of a stream's table: the types of its columns, and the files that may contain the batches."""

    types: Mapping[str, str]
    files: tuple[DataFile, ...]
    batches: frozenset[int]
    columns: tuple[str, ...] = ()
    """Columns for which a checksum is computed."""


@dataclass(frozen=True)
class ExaminedRows:
    """The results of a join or a query as their lever examined them: their column types, and one row per window."""

    types: Mapping[str, str]
    found: pa.Table


@dataclass(frozen=True)
class Digest:
    """A request for a summary: the stream, its stored rows, its keys, and the columns that must not be null."""

    stream: str
    rows: StoredRows
    keys: tuple[str, ...]
    required: tuple[str, ...]


@dataclass(frozen=True)
class UnreadableTable:
    """Why a table cannot be summarised; other tables still are."""

    problem: str


def summarise_tables(engine: Engine, asked: Sequence[Digest]) -> list[pa.Table | UnreadableTable]:
    """Return a table of schema `SUMMARY` for each request, or the reason why it cannot be read.

    All files are read in one call of the engine.
    """
    units = [(place, file) for place, one in enumerate(asked) for file in one.rows.files]
    found: dict[int, list[dict[str, Any]]] = {}
    unread: dict[int, UnreadableTable] = {}
    for (place, _), parts in zip(
        units, engine.map(partial(_of_unit, asked), units, "summarise"), strict=True
    ):
        if isinstance(parts, UnreadableTable):
            unread.setdefault(place, parts)
        else:
            found.setdefault(place, []).extend(parts)
    return [
        unread.get(place)
        or pa.Table.from_pylist(
            [{"stream": one.stream, **row} for row in _added_up(found.get(place, []))], schema=SUMMARY
        )
        for place, one in enumerate(asked)
    ]


def _of_unit(asked: Sequence[Digest], unit: tuple[int, DataFile]) -> list[dict[str, Any]] | UnreadableTable:
    place, file = unit
    try:
        return summarise_file(asked[place], file)
    except Exception as problem:
        text = str(problem).partition("\n")[0]
        return UnreadableTable(
            text if isinstance(problem, SpillwayError) else f"{type(problem).__name__}: {text}"
        )


def summarise_file(asked: Digest, file: DataFile) -> list[dict[str, Any]]:
    """Return the summaries of the rows of one file, by batch and scheme."""
    day = as_date(file.value("batch_date"))
    found: dict[tuple[int, int], dict[str, Any]] = {}
    summed = asked.rows.columns
    columns = list(dict.fromkeys(["seq", "batch", "scheme", *asked.keys, *asked.required, *summed]))
    for rows in rows_of(file, columns, _ROWS_AT_A_TIME):
        for part in _runs_of(rows, asked):
            if part["batch"] in asked.rows.batches:
                place = (part["batch"], part["scheme"])
                found[place] = _sum(found[place], part) if place in found else part
    for part in found.values():
        part["batch_date"] = day
        part["scheme"] = None if part["scheme"] == _NO_SCHEME else part["scheme"]
    return list(found.values())


def _runs_of(rows: pa.Table, asked: Digest) -> Iterator[dict[str, Any]]:
    """Yield a summary for each run of consecutive rows with the same batch and scheme."""
    if not rows.num_rows:
        return
    batch = _whole_numbers(rows, "batch", _NO_SCHEME)
    scheme = _whole_numbers(rows, "scheme", _NO_SCHEME)
    seq = _whole_numbers(rows, "seq", 0)
    edges = np.flatnonzero((np.diff(batch) != 0) | (np.diff(scheme) != 0)) + 1
    starts = np.concatenate([[0], edges])
    counts = np.diff(np.append(starts, rows.num_rows))
    sums = {
        "null_keys": np.add.reduceat(_nulls(rows, asked.keys), starts),
        "null_columns": np.add.reduceat(_nulls(rows, asked.required), starts),
        "first_seq": np.minimum.reduceat(seq, starts),
        "last_seq": np.maximum.reduceat(seq, starts),
        "checksum": np.bitwise_xor.reduceat(row_hashes(rows, ["seq", *asked.keys]).view(np.int64), starts),
    }
    keys = row_hashes(rows, ["seq"])
    for name in asked.rows.columns:
        sums[_column(name)] = _keyed_sums(rows[name], keys, _salt(name), starts)
    for at, start in enumerate(starts.tolist()):
        yield {
            "batch": int(batch[start]),
            "scheme": int(scheme[start]),
            "row_count": int(counts[at]),
            "without_scheme": int(counts[at]) if scheme[start] == _NO_SCHEME else 0,
            **{name: int(values[at]) for name, values in sums.items()},
        }


def _whole_numbers(rows: pa.Table, name: str, null: int) -> np.ndarray:
    return np.asarray(pc.fill_null(rows[name].cast(pa.int64()), null), np.int64)


def _nulls(rows: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return, for each row, how many of the columns are null."""
    count = np.zeros(rows.num_rows, np.int64)
    for name in names:
        if rows[name].null_count:
            count += np.asarray(rows[name].is_null(), np.int64)
    return count


def row_hashes(rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """Return a hash of these columns for each row; null hashes like a separate value.

    >>> rows = pa.table({"seq": [1, 2], "site": ["a", None]})
    >>> len(set(row_hashes(rows, ["seq", "site"]).tolist()))
    2
    >>> (row_hashes(rows, ["site"]) == row_hashes(rows, [])).any().item()
    False
    """
    state = np.zeros(rows.num_rows, np.uint64)
    for name in columns:
        _mix_in(state, _bits(rows[name]))
    return state


def _column(name: str) -> str:
    return f"column {name}"


def _salt(name: str) -> np.uint64:
    """Return a hash of the column's name, which distinguishes the values of different columns."""
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def _keyed_sums(column: pa.ChunkedArray, keys: np.ndarray, salt: np.uint64, starts: np.ndarray) -> np.ndarray:
    """Return, for each run of rows, the sum of the hashes of its values, each keyed by its row."""
    missing = np.asarray(column.is_null()) if column.null_count else np.zeros(1, np.bool_)
    bits = _bits(column)
    return np.asarray(_sum_up(bits, missing, keys, salt, np.append(starts, len(bits)))).view(np.int64)


@njit(cache=True)
def _sum_up(bits, missing, keys, salt, edges):  # type: ignore[no-untyped-def]
    found = np.zeros(len(edges) - 1, np.uint64)
    some = len(missing) == len(bits)
    for stretch in range(len(edges) - 1):
        total = np.uint64(0)
        for i in range(edges[stretch], edges[stretch + 1]):
            key = keys[i] ^ salt
            if some and missing[i]:
                key = ~key  # a null differs from every value, whatever bits its slot holds
            total += mix64(bits[i], key)
        found[stretch] = total
    return found


@njit(cache=True)
def _mix_in(state, values):  # type: ignore[no-untyped-def]
    for i in range(len(state)):
        state[i] = mix64(values[i], state[i])


def _bits(column: pa.ChunkedArray) -> np.ndarray:
    """Return 64 bits for each value; equal values of one type have equal bits."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL, np.uint64)
    missing = np.asarray(column.is_null()) if column.null_count else None
    if pa.types.is_floating(kind):
        bits = np.asarray(pc.fill_null(column, 0.0), np.float64).view(np.uint64)
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        bits = np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).view(np.uint64)
    elif pa.types.is_date32(kind):
        bits = np.asarray(pc.fill_null(column.cast(pa.int32()), 0)).astype(np.int64).view(np.uint64)
    elif pa.types.is_timestamp(kind):
        bits = np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).view(np.uint64)
    else:
        words = column.combine_chunks().dictionary_encode()
        known = pd.util.hash_array(
            np.append(np.array(words.dictionary.to_pylist(), object), ""), categorize=False
        )
        bits = known[np.asarray(pc.fill_null(words.indices, len(known) - 1))]
    bits = np.ascontiguousarray(bits, np.uint64)
    return bits if missing is None else np.where(missing, np.uint64(_NULL), bits)


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two summaries of one batch."""
    return {
        **one,
        **{
            name: one[name] + other[name]
            for name in ("row_count", "null_keys", "null_columns", "without_scheme")
        },
        "first_seq": min(one["first_seq"], other["first_seq"]),
        "last_seq": max(one["last_seq"], other["last_seq"]),
        "checksum": one["checksum"] ^ other["checksum"],
        **{name: _wrapped(one[name] + other[name]) for name in one if name.startswith(_column(""))},
    }


def _wrapped(total: int) -> int:
    """Return a sum modulo 2^64 as a signed integer.

    >>> _wrapped(2**63), _wrapped(-(2**63) - 1)
    (-9223372036854775808, 9223372036854775807)
    """
    return (total + 2**63) % 2**64 - 2**63


def _added_up(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge summaries by batch, and list the schemes of each batch's rows."""
    found: dict[tuple[int, date | None], dict[str, Any]] = {}
    for part in parts:
        place = (part["batch"], part["batch_date"])
        schemes = [] if part["scheme"] is None else [part["scheme"]]
        if place in found:
            before = found[place]
            found[place] = _sum(before, part) | {"schemes": [*before["schemes"], *schemes]}
        else:
            found[place] = part | {"schemes": schemes}
    return [
        {**part, "schemes": sorted(set(part["schemes"])), "columns": _columns(part)}
        for part in sorted(found.values(), key=lambda p: p["batch"])
    ]


def _columns(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    prefix = _column("")
    return [
        {"name": name.removeprefix(prefix), "checksum": value}
        for name, value in part.items()
        if name.startswith(prefix)
    ]

"""Filters of a table's rows: values or ranges by column, tested against a file's statistics or row by row.

A filter maps columns to a value, several values, or a range. A row matches if it matches in every column.

>>> rows = pa.table({"stream": ["a", "a", "b"], "batch": [1, 2, 3]})
>>> match_mask(rows, {"stream": "a", "batch": Between(2)}).to_pylist()
[False, True, False]
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.store.files import DataFile, upper_bound

Filter = Mapping[str, Any]


@dataclass(frozen=True)
class Between:
    """A range in a filter, both ends included; None is open."""

    low: Any = None
    high: Any = None


def may_match(file: DataFile, where: Filter) -> bool:
    """Return whether a file may have a matching row, by its partition and the log's statistics."""
    partition = dict(file.partition)
    for name, value in where.items():
        if name in partition:
            low = high = partition[name]
        else:
            low, high = file.low(name), file.high(name)
        if low is None or high is None:
            continue
        high = upper_bound(high)
        if isinstance(value, Between):
            if (value.low is not None and high < value.low) or (value.high is not None and low > value.high):
                return False
        elif not any(one is None or low <= one <= high for one in values_of(value)):
            return False
    return True


def all_match(file: DataFile, where: Filter, never_null: Container[str]) -> bool:
    """Return whether the partition and the log's statistics prove that every row of the file matches."""
    partition = dict(file.partition)
    for name, value in where.items():
        low, high = file.low(name), file.high(name)
        if name in partition:
            low = high = partition[name]
        elif name not in never_null or isinstance(low, datetime):
            return False  # a null does not match; times in the log are rounded
        if low is None or high is None:
            return False
        if isinstance(value, Between):
            if (value.low is not None and low < value.low) or (value.high is not None and high > value.high):
                return False
            continue
        wanted = values_of(value)
        if isinstance(low, int):
            if high - low >= len(wanted) or not wanted.issuperset(range(low, high + 1)):
                return False
        elif low != high or low not in wanted:
            return False
    return True


def integer_ranges(where: Filter) -> list[tuple[str, int | None, int | None]]:
    """Return the ranges of integers in a filter, by column.

    >>> integer_ranges({"stream": "a", "batch": [7, 3], "rows": Between(1)})
    [('batch', 3, 7), ('rows', 1, None)]
    """
    found: list[tuple[str, int | None, int | None]] = []
    for name, value in where.items():
        if isinstance(value, Between):
            edges = [value.low, value.high]
        else:
            numbers = values_of(value)
            edges = [min(numbers), max(numbers)] if numbers and all(map(_is_whole, numbers)) else []
        if any(edge is not None for edge in edges) and all(e is None or _is_whole(e) for e in edges):
            found.append((name, edges[0], edges[1]))
    return found


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def match_mask(rows: pa.Table, where: Filter) -> pa.ChunkedArray:
    """Return for each row whether it matches: true or false, never null."""
    mask = pa.chunked_array([pa.repeat(True, rows.num_rows)])
    for name, value in where.items():
        column = rows[name]
        if isinstance(value, Between):
            found = pc.is_valid(column)
            if value.low is not None:
                found = pc.and_(found, pc.greater_equal(column, pa.scalar(value.low, column.type)))
            if value.high is not None:
                found = pc.and_(found, pc.less_equal(column, pa.scalar(value.high, column.type)))
            found = pc.fill_null(found, False)
        else:
            found = pc.is_in(column, value_set=pa.array(list(values_of(value)), column.type))
        mask = pc.and_(mask, found)
    return mask


def format_filter(where: Filter) -> str:
    """Return a filter as text for errors.

    >>> format_filter({"stream": "s", "batch": [2, 1]})
    'stream s, batch 1, 2'
    """
    return ", ".join(f"{name} {_format_value(value)}" for name, value in where.items())


def values_of(value: Any) -> set[Any]:
    """Return the values that a filter without a range allows in a column."""
    return set(value) if isinstance(value, list | tuple | set | frozenset | range) else {value}


def _format_value(value: Any) -> str:
    if isinstance(value, Between):
        return f"from {value.low} to {value.high}"
    return ", ".join(str(one) for one in sorted(values_of(value), key=lambda one: (one is None, one)))

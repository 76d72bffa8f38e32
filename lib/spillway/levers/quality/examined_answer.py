"""The answer of a window looked at once more, row by row: its numbers, its shares, its intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

EXAMINED_ANSWER = pa.schema(
    [
        ("row_count", pa.int64()),
        ("null_columns", pa.int64()),
        ("odd_numbers", pa.int64()),
        ("odd_shares", pa.int64()),
        ("sic", pa.float64()),
        ("least_coverage", pa.float64()),
        ("most_coverage", pa.float64()),
        ("intervals", pa.int64()),
        ("odd_intervals", pa.int64()),
    ]
)
"""What is said of a window; coverage is null where the answer has no row."""
_REQUIRED = ("row", "sic", "coverage")
_ROUNDING = 1e-9
"""Of a value: its interval is worked out of other sums than the value."""


def examined_answer(rows: pa.Table) -> Mapping[str, Any]:
    """How many rows and estimates are not what they should be, and what all rows add up to.

    >>> answer = {"row": [1, 2], "sic": [0.25, 0.25], "coverage": [0.5, 0.5]}
    >>> estimate = {"n__estimate": [4.0, None], "n__low": [3.0, None], "n__high": [3.5, None]}
    >>> said = examined_answer(pa.table(answer | estimate))
    >>> said["odd_numbers"], said["sic"], said["intervals"], said["odd_intervals"]
    (0, 0.5, 1, 1)

    An estimate that has no interval is in order: not every sample says how far it may be off.

    >>> estimate = {"n__estimate": [4.0, 4.0], "n__low": [None, 3.0], "n__high": pa.array([None, None], pa.float64())}
    >>> examined_answer(pa.table(answer | estimate))["odd_intervals"]
    1
    """
    numbers, sic, coverage = (np.asarray(rows[name].cast(pa.float64())) for name in _REQUIRED)
    expected = np.arange(1, rows.num_rows + 1)
    found = _intervals(rows)
    return {
        "row_count": rows.num_rows,
        "null_columns": sum(rows[name].null_count for name in _REQUIRED),
        "odd_numbers": int((np.sort(numbers) != expected).sum()),
        "odd_shares": int(
            (~((sic >= 0.0) & (sic <= 1.0))).sum() + (~((coverage >= 0.0) & (coverage <= 1.0))).sum()
        ),
        "sic": float(sic.sum()),
        "least_coverage": float(coverage.min()) if rows.num_rows else None,
        "most_coverage": float(coverage.max()) if rows.num_rows else None,
        "intervals": found[0],
        "odd_intervals": found[1],
    }


def _intervals(rows: pa.Table) -> tuple[int, int]:
    """How many intervals there are, and how many are halves, of no estimate, or do not hold theirs."""
    some = odd = 0
    names = [name.removesuffix("__estimate") for name in rows.column_names if name.endswith("__estimate")]
    for name in names:
        parts = [f"{name}__{part}" for part in ("low", "estimate", "high")]
        if not set(parts) <= set(rows.column_names):
            continue
        columns = [rows[part] for part in parts]
        there = np.array([np.asarray(column.is_valid()) for column in columns])
        low, value, high = (np.asarray(column.cast(pa.float64()).fill_null(0.0)) for column in columns)
        rounding = _ROUNDING * np.maximum(1.0, np.abs(value))
        # no number is estimated of none: then all three are none
        within = (low - rounding <= value) & (value <= high + rounding)
        nothing = np.isnan(low) & np.isnan(value) & np.isnan(high)
        interval = there[0] | there[2]
        some += int(interval.sum())
        odd += int((interval & ~(there.all(axis=0) & (within | nothing))).sum())
    return some, odd

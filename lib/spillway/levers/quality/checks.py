"""Count the invalid rows and intervals of a window's answer; the expectations on `results` judge these counts.

In the names of columns, `odd` means invalid: a repeated or missing row number, a share outside 0 to 1, an interval that
does not contain its estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.quality.intervals import DROPPED, FEW_READ, REASONS, UNBOUNDED
from spillway.levers.quality.scaled_answer import NO_INTERVAL

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
        ("withheld_unsaid", pa.int64()),
        ("withheld_of_few", pa.int64()),
        ("withheld_of_some", pa.int64()),
    ]
)
"""The figures of a window's answer; coverage is null if the answer has no row.

Withheld intervals are counted by reason. `withheld_unsaid`: without a known reason; `withheld_of_few`: few portions
were read; `withheld_of_some`: the other reasons that concern portions that were left out.
"""
_REQUIRED = ("row", "sic", "coverage")
_ROUNDING = 1e-9
"""Tolerance relative to a value: its interval is computed from other sums than the value."""


def check_answer(rows: pa.Table) -> Mapping[str, Any]:
    """Return the number of invalid rows and estimates, and the sum of `sic` over all rows.

    >>> answer = {"row": [1, 2], "sic": [0.25, 0.25], "coverage": [0.5, 0.5]}
    >>> estimate = {"n__estimate": [4.0, None], "n__low": [3.0, None], "n__high": [3.5, None]}
    >>> found = check_answer(pa.table(answer | estimate))
    >>> found["odd_numbers"], found["sic"], found["intervals"], found["odd_intervals"]
    (0, 0.5, 1, 1)

    An estimate without an interval must have one of the known reasons.

    >>> estimate = {"n__estimate": [4.0, 4.0, 4.0], "n__low": [None, None, 3.0], "n__high": [None, None, 5.0]}
    >>> estimate["n__no_interval"] = [FEW_READ, "it rained", None]
    >>> answer = {"row": [1, 2, 3], "sic": [0.25] * 3, "coverage": [0.75] * 3}
    >>> found = check_answer(pa.table(answer | estimate))
    >>> found["odd_intervals"], found["withheld_unsaid"], found["withheld_of_few"], found["withheld_of_some"]
    (0, 1, 1, 0)
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
        "intervals": found.count,
        "odd_intervals": found.invalid,
        "withheld_unsaid": found.withheld.total() - sum(found.withheld[one] for one in REASONS),
        "withheld_of_few": found.withheld[FEW_READ],
        "withheld_of_some": sum(
            found.withheld[one] for one in REASONS if one not in (FEW_READ, DROPPED, UNBOUNDED)
        ),
    }


@dataclass
class _Intervals:
    """The number of intervals; of invalid ones; and of withheld ones, by reason.

    An interval is invalid if one end is missing, if it has no estimate, or if it does not contain its estimate.
    """

    count: int = 0
    invalid: int = 0
    withheld: Counter[str | None] = field(default_factory=Counter)


def _intervals(rows: pa.Table) -> _Intervals:
    found = _Intervals()
    names = [name.removesuffix("__estimate") for name in rows.column_names if name.endswith("__estimate")]
    for name in names:
        parts = [f"{name}__{part}" for part in ("low", "estimate", "high")]
        if not set(parts) <= set(rows.column_names):
            continue
        columns = [rows[part] for part in parts]
        if all(
            rows[one].null_count == len(rows)
            for one in (*parts, name + NO_INTERVAL)
            if one in rows.column_names
        ):
            continue  # the query had no such estimate when this window was answered: its SQL has changed since
        there = np.array([np.asarray(column.is_valid()) for column in columns])
        low, value, high = (np.asarray(column.cast(pa.float64()).fill_null(0.0)) for column in columns)
        rounding = _ROUNDING * np.maximum(1.0, np.abs(value))
        # an estimate from NaN is NaN: then all three are NaN
        within = (low - rounding <= value) & (value <= high + rounding)
        # an infinite sum equals its ends
        nothing = (np.isnan(low) & np.isnan(value) & np.isnan(high)) | ((low == value) & (value == high))
        interval = there[0] | there[2]
        found.count += int(interval.sum())
        found.invalid += int((interval & ~(there.all(axis=0) & (within | nothing))).sum())
        # a row without value and estimate has no interval that could be withheld
        answered = there[1] | (np.asarray(rows[name].is_valid()) if name in rows.column_names else np.False_)
        reasons = rows[name + NO_INTERVAL] if name + NO_INTERVAL in rows.column_names else pa.nulls(len(rows))
        found.withheld.update(reasons.filter(pa.array(~interval & answered)).to_pylist())
    return found

"""What may be given back inexactly: quantities, of which a little more or less means about the same (ours).

Timestamps, dates, booleans and text are none. Of whole numbers (integers, and reals that are all whole) some count or
measure and others name: a status, a postcode, a weekday. One per cent of a name is another name, so what is not plainly
a quantity is a *code*, and codes come back exactly. In the rows of training whole numbers are a quantity when they

- take more than `FEW_VALUES` different values (of type double, which is to declare a measure: `FEW_REALS`), and
- either seldom recur (more than `SELDOM_RECUR` of the rows hold another value), or fill their range: at least half of
  the steps between the least and the greatest occur, a step being their greatest common divisor.

So 200, 404 and 502 are codes, a postcode that recurs is one, and so is a small count such as people in a room: where
either reading is possible, the strict one is taken. Names that fill their range (customers numbered from 1) cannot be
told from counts; the contract says `codes: true` of them, and `error_pct` or `error` of a quantity that this takes for
codes.

>>> statuses = Column.integer([200, 404, 200, 502] * 500)
>>> delays = Column.integer([(7919 * row) % 1009 for row in range(2000)])
>>> are_codes(statuses), are_codes(delays)
(True, False)
"""

from __future__ import annotations

import numpy as np

from spillway.levers.attributes.columns import Column

FEW_VALUES, FEW_REALS = 64, 16
SELDOM_RECUR = 0.05
FILLED = 0.5
QUANTITIES = ("integer", "double")
"""The contract's types whose values may be quantities."""


def are_codes(column: Column) -> bool:
    """Whether the values name things, as far as can be seen; what has no values yet is in doubt, and so does."""
    if column.kind == "text":
        return True
    values = column.values[column.valid]
    if column.kind == "real":
        values = values[np.isfinite(values)]
        if not len(values) or bool((values != np.rint(values)).any()):
            return not len(values)
    found = np.unique(values)
    if len(found) <= (FEW_REALS if column.kind == "real" else FEW_VALUES):
        return True
    if len(found) > max(FEW_VALUES, SELDOM_RECUR * len(values)):
        return False
    return not _fill_their_range(found)


def _fill_their_range(found: np.ndarray) -> bool:
    """Whether at least half of the steps between the least and the greatest of distinct values occur."""
    gaps = np.diff(found.astype(np.float64))
    if not gaps.max() < 2.0**53:
        return False
    step = int(np.gcd.reduce(gaps.astype(np.int64)))
    return len(found) >= FILLED * (float(gaps.sum()) / step + 1)

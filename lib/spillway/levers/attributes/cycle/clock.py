"""Key or clock: what tells a site above its sensors from an hour above its stations.

>>> import numpy as np
>>> at = np.datetime64("2024-01-01", "s") + np.arange(0, 86400, 600)
>>> is_clock(np.arange(144) // 6, epoch_seconds(at)), is_clock(np.arange(144) // 5, epoch_seconds(at))
(True, False)
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from spillway.levers.attributes.cycle.value_codes import Codes, joint_codes, rows_by_value


def is_clock(codes: Codes, at: Codes) -> bool:
    """Whether an attribute is one to one with the second, minute, hour or weekday of its tuple."""
    distinct = len(np.unique(codes))
    for part in (at % 60, at // 60 % 60, at // 3600 % 24, (at // 86400 + 4) % 7):
        if len(np.unique(part)) == distinct and len(np.unique(joint_codes([codes, part]))) == distinct:
            return True
    return False


def epoch_seconds(order: npt.NDArray[Any]) -> Codes | None:
    """Seconds since 1970 of an order attribute that tells the time, in whatever unit; None of any other."""
    if order.dtype.kind == "O":
        parsed = pd.to_datetime(pd.Series(order), errors="coerce", utc=True, format="ISO8601")
        if parsed.isna().any():
            return None
        order = parsed.dt.tz_localize(None).to_numpy()
    if order.dtype.kind == "M":
        return order.astype("datetime64[s]").astype(np.int64)
    if order.dtype.kind not in "iu" or not len(order):
        return None
    ticks = order.astype(np.int64)
    for per_second in (1, 10**3, 10**6, 10**9):
        # the years 1990 to 2100: no unit's range meets another's
        if 631_152_000 * per_second <= ticks.min() and ticks.max() < 4_102_444_800 * per_second:
            return np.asarray(ticks // per_second)
    return None


def usual_return(codes: Codes) -> float:
    """After how many tuples a value usually comes back: about the length of its cycle if it has one."""
    kept = codes[codes >= 0]
    by = rows_by_value(kept)
    again = np.diff(by)[kept[by][1:] == kept[by][:-1]]
    return float(np.median(again)) if len(again) else inf


def mean_step(values: npt.NDArray[np.float64], key: Codes) -> float | None:
    """Mean distance from the previous value of the same key, in ranks, so that bursts do not decide."""
    usable = np.flatnonzero((key >= 0) & np.isfinite(values))
    if len(usable) < 8:
        return None
    ranks = np.unique(values[usable], return_inverse=True)[1]
    by = rows_by_value(key[usable])
    same = np.diff(key[usable][by]) == 0
    if same.sum() < 8:
        return None
    return float(np.abs(np.diff(ranks[by]))[same].mean())

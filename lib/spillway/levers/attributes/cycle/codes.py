"""Code values as small integers, and test which attributes are clocks, keys or determined by others.

With codes, equality, order of appearance and joint keys are array arithmetic.

>>> import numpy as np
>>> codes, values = value_codes(np.array(["LGA", None, "JFK", "LGA"], dtype=object))
>>> codes.tolist(), values
([0, -1, 1, 0], ['LGA', 'JFK'])
>>> joint_codes([codes, np.array([0, 0, 1, 1])]).tolist()
[0, -1, 1, 2]

`is_clock` recognises an attribute that only repeats the time. So an hour that changes above its stations is not taken
for a key, as a site above its sensors is.

>>> import numpy as np
>>> at = np.datetime64("2024-01-01", "s") + np.arange(0, 86400, 600)
>>> is_clock(np.arange(144) // 6, epoch_seconds(at)), is_clock(np.arange(144) // 5, epoch_seconds(at))
(True, False)

K *determines* A (an approximate functional dependency) if the value of A follows from that of K: the share of tuples
that must be removed until this holds exactly is at most `EXCEPTIONS` (the measure g3 of Kivinen and Mannila 1995). If
the name of a sender determines an attribute, and the attribute does not determine the name, it is a property of the
sender (its site, its type, its feed). A property does not identify a sender, even if it repeats regularly.

>>> import numpy as np
>>> key = np.random.default_rng(1).integers(0, 6, 600)
>>> determines(key, key % 2), determines(key % 2, key), round(change_share(key, key % 2), 1)
(True, False, 0.7)
>>> looks_like_a_key(key, quantity=True)
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Codes = npt.NDArray[np.int64]


def plain_value(value: Any) -> Any:
    """Return a value for JSON: Python scalars, and times as ISO text, so that they are equal after a reload."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value


def value_codes(values: npt.NDArray[Any]) -> tuple[Codes, list[Any]]:
    """Return codes in order of first appearance, and the value of each code; null and NaN are -1."""
    codes, uniques = pd.factorize(np.asarray(values), use_na_sentinel=True)
    listed = uniques if uniques.dtype.kind in "mM" else uniques.tolist()
    return codes.astype(np.int64), [plain_value(value) for value in listed]


def first_appearance(codes: Codes) -> tuple[Codes, Codes]:
    """Return dense codes in order of first appearance, and the first row of each; -1 stays -1."""
    dense, uniques = pd.factorize(np.where(codes < 0, np.int64(-1), codes), use_na_sentinel=False)
    missing = np.flatnonzero(uniques == -1)
    if missing.size:
        hole = int(missing[0])
        dense = np.where(dense == hole, -1, dense - (dense > hole))
        uniques = np.delete(uniques, hole)
    dense = dense.astype(np.int64)
    first_rows = np.full(len(uniques), -1, dtype=np.int64)
    present = np.flatnonzero(dense >= 0)
    first_rows[dense[present][::-1]] = present[::-1]
    return dense, first_rows


def rows_by_value(codes: Codes) -> Codes:
    """Return the rows sorted by code, equal codes in row order; numpy sorts 16-bit codes by radix, in linear time."""
    narrow = codes.astype(np.uint16) if len(codes) and codes.min() >= 0 and codes.max() < 65536 else codes
    return np.argsort(narrow, kind="stable")


def joint_codes(parts: Sequence[Codes]) -> Codes:
    """Return one code per combination, in order of first appearance; -1 if any of its codes is -1."""
    joint = parts[0]
    for part in parts[1:]:
        width = int(part.max(initial=0)) + 1
        missing = (joint < 0) | (part < 0)
        joint = first_appearance(np.where(missing, np.int64(-1), joint * width + part))[0]
    return joint


def coded_keys(
    columns: Mapping[str, npt.NDArray[Any]], attributes: Sequence[str]
) -> tuple[Codes, list[tuple[Any, ...]]]:
    """Return the joint codes of the key, and the tuple of values of each code."""
    parts = [value_codes(np.asarray(columns[name])) for name in attributes]
    filled = [
        (np.where(codes < 0, len(values), codes), [*values, None]) if len(parts) > 1 else (codes, values)
        for codes, values in parts
    ]
    codes, first_rows = first_appearance(joint_codes([codes for codes, _ in filled]))
    listed = [tuple(values[part[row]] for part, values in filled) for row in first_rows]
    return codes, listed


def is_clock(codes: Codes, at: Codes) -> bool:
    """Return whether an attribute maps one to one to the second, minute, hour or weekday of its tuple."""
    distinct = len(np.unique(codes))
    for part in (at % 60, at // 60 % 60, at // 3600 % 24, (at // 86400 + 4) % 7):
        if len(np.unique(part)) == distinct and len(np.unique(joint_codes([codes, part]))) == distinct:
            return True
    return False


def epoch_seconds(order: npt.NDArray[Any]) -> Codes | None:
    """Return the seconds since 1970 of an order attribute that is a time in any unit; None if it is no time."""
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
        # the years 1990 to 2100: the ranges of the units do not overlap
        if 631_152_000 * per_second <= ticks.min() and ticks.max() < 4_102_444_800 * per_second:
            return np.asarray(ticks // per_second)
    return None


def usual_return(codes: Codes) -> float:
    """Return the median number of tuples until a value recurs: about the length of its cycle if it has one."""
    kept = codes[codes >= 0]
    by = rows_by_value(kept)
    again = np.diff(by)[kept[by][1:] == kept[by][:-1]]
    return float(np.median(again)) if len(again) else inf


def mean_step(values: npt.NDArray[np.float64], key: Codes) -> float | None:
    """Return the mean distance from the previous value of the same key, in ranks, so that bursts do not dominate."""
    usable = np.flatnonzero((key >= 0) & np.isfinite(values))
    if len(usable) < 8:
        return None
    ranks = np.unique(values[usable], return_inverse=True)[1]
    by = rows_by_value(key[usable])
    same = np.diff(key[usable][by]) == 0
    if same.sum() < 8:
        return None
    return float(np.abs(np.diff(ranks[by]))[same].mean())


EXCEPTIONS = 0.01
SAMPLED_ROWS = 4_096
RECURRENCES = 1.2
"""Least number of tuples per name on average; the check on the last quarter of the tuples (`KNOWN_LATER`) is added."""
KNOWN_LATER = 0.9
"""Least share of the tuples of the last quarter whose name occurs in the first three quarters."""
UNEVEN = 0.5
"""Largest standard deviation / mean of the counts: senders report about equally often, values of a quantity do not."""


def undetermined_share(by: Codes, of: Codes) -> float:
    """Return g3: the least share of tuples to remove until `by` determines `of`; tuples with a null in either are
    ignored."""
    usable = (by >= 0) & (of >= 0)
    n = int(usable.sum())
    if n == 0:
        return 1.0
    width = int(of.max()) + 1
    pairs, counts = np.unique(by[usable] * width + of[usable], return_counts=True)
    owner = pairs // width
    first = np.append(True, owner[1:] != owner[:-1])
    return float(1 - np.maximum.reduceat(counts, np.flatnonzero(first)).sum() / n)


def determines(by: Codes, of: Codes) -> bool:
    """Return whether `by` determines `of`, up to `EXCEPTIONS`; a sample of tuples may already refute it."""
    step = len(by) // SAMPLED_ROWS
    # the g3 of a sample exceeds that of the whole by about sqrt(EXCEPTIONS / SAMPLED_ROWS) = .0016 at most
    if step > 1 and undetermined_share(by[::step], of[::step]) > 2 * EXCEPTIONS:
        return False
    return undetermined_share(by, of) <= EXCEPTIONS


def change_share(of: Codes, within: Codes) -> float:
    """Return how often `of` changes between consecutive tuples with the same value of `within`."""
    usable = (of >= 0) & (within >= 0)
    by = rows_by_value(within[usable])
    owner, value = within[usable][by], of[usable][by]
    same = owner[1:] == owner[:-1]
    return float(np.mean(value[1:][same] != value[:-1][same])) if same.any() else 0.0


def looks_like_a_key(codes: Codes, *, quantity: bool) -> bool:
    """Return whether the values recur as names do; those of a `quantity` (numbers) must also be about equally
    frequent."""
    n, values = len(codes), int(codes.max(initial=-1)) + 1
    if values < 2 or n < RECURRENCES * values:
        return False
    cut = n - n // 4
    seen = np.zeros(values, dtype=np.bool_)
    seen[codes[:cut][codes[:cut] >= 0]] = True
    later = codes[cut:][codes[cut:] >= 0]
    if len(later) and np.mean(seen[later]) < KNOWN_LATER:
        return False
    return not quantity or comes_evenly(codes)


def comes_evenly(codes: Codes, groups: Codes | None = None) -> bool:
    """Return whether the values are about equally frequent, or so within each group (each value has one group)."""
    counts = np.bincount(codes[codes >= 0]).astype(np.float64)
    if groups is not None:
        group = np.zeros(len(counts), dtype=np.int64)
        usable = (codes >= 0) & (groups >= 0)
        group[codes[usable]] = groups[usable]
        per_group = np.bincount(group, weights=counts) / np.maximum(np.bincount(group), 1)
        counts = counts / per_group[group]
    return bool(counts.std() <= UNEVEN * counts.mean())


def smallest_determining(codes: Sequence[Codes]) -> list[tuple[int, ...]]:
    """Return the smallest subsets that determine all columns; of more than ten, one subset by backward elimination.

    >>> site, sensor = np.array([0, 0, 1, 1] * 9), np.array([0, 1, 0, 1] * 9)
    >>> smallest_determining([site, sensor, 2 * site + sensor, np.zeros(36, dtype=np.int64)])
    [(2,)]
    """
    everyone = range(len(codes))

    def enough(chosen: Sequence[int]) -> bool:
        joint = joint_codes([codes[k] for k in chosen])
        return all(determines(joint, codes[k]) for k in everyone if k not in chosen)

    if len(codes) > 10:
        kept = list(everyone)
        for k in everyone:
            rest = [other for other in kept if other != k]
            if rest and enough(rest):
                kept = rest
        return [tuple(kept)]
    for size in range(1, len(codes) + 1):
        found = [chosen for chosen in combinations(everyone, size) if enough(chosen)]
        if found:
            return found
    return []

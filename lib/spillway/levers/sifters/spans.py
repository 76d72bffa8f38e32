"""Spans: the values of one dimension that a comparison lets through, as half-open ranges of 64-bit keys.

A key keeps the order of values and has no gaps between neighbours, so that open and closed ends are one thing
(`x > 5` begins at the key behind that of 5) and sets of values are exact:

    null  <  -inf  <  ...  <  -0.0 = 0.0  <  ...  <  inf  <  NaN        (Spark's order: NaN above everything)

Numbers with a fraction are keyed by their bits, whole numbers, times (microseconds) and days by themselves, words by
their place among those that are known, unknown ones behind them.

>>> five = float_key(5.0)
>>> minus(VALUES, ((five, five + 1),)) == ((NULL + 1, five), (five + 1, END))
True
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

Spans = tuple[tuple[int, int], ...]
"""Ranges that neither overlap nor touch, in order; each without its end."""

NULL, END = -(2**63), 2**63 - 1
"""The key of a null, and the end behind all keys."""
NAN = END - 1
ANYTHING: Spans = ((NULL, END),)
"""Every value, and null."""
VALUES: Spans = ((NULL + 1, END),)
"""Every value but null."""
NULLS: Spans = ((NULL, NULL + 1),)
_FLIP = 2**63 - 1


def float_key(value: float) -> int:
    """The key of a number with a fraction.

    >>> float_key(-1.0) < float_key(-0.0) == float_key(0.0) < float_key(5e-324) < float_key(float("nan"))
    True
    """
    return int(float_keys(np.array([value]))[0])


def float_keys(values: np.ndarray) -> np.ndarray:
    """The keys of numbers with a fraction."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.int64)
    keys = np.where(bits < 0, bits ^ np.int64(_FLIP), bits)
    return np.asarray(np.where(np.isnan(values), NAN, keys), np.int64)


def key_floats(keys: np.ndarray) -> np.ndarray:
    """The numbers of such keys.

    >>> key_floats(float_keys(np.array([-1.5, 0.0, 3e300, np.inf]))).tolist()
    [-1.5, 0.0, 3e+300, inf]
    """
    keys = np.asarray(keys, np.int64)
    return np.asarray(np.where(keys < 0, keys ^ np.int64(_FLIP), keys), np.int64).view(np.float64)


def whole_keys(values: np.ndarray) -> np.ndarray:
    """The keys of whole numbers: themselves, but for the two at either end, of which the outer makes room for what
    stands beside all values, and the inner shares the key of the next.

    >>> (whole_keys(np.array([2**63 - 1, 2**63 - 2, 7, -(2**63)])) - np.array([END, END, 7, NULL])).tolist()
    [-1, -2, 0, 1]
    """
    found = np.asarray(values, np.int64)
    return found + (found <= NULL + 1) - (found >= END - 1)


def whole_edge(value: int) -> int:
    """The key at which whole numbers from this one on begin.

    >>> whole_edge(2**63 - 1) == END - 1, whole_edge(2**63) == END, whole_edge(-(2**80)) == NULL + 1
    (True, True, True)
    """
    return END if value > END else NULL + 1 if value < NULL else int(whole_keys(np.array([value]))[0])


def union(spans: Iterable[tuple[int, int]]) -> Spans:
    """What any of them covers.

    >>> union([(5, 7), (1, 3), (3, 4), (9, 9)])
    ((1, 4), (5, 7))
    """
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if low >= high:
            continue
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def both(one: Spans, other: Spans) -> Spans:
    """What both cover.

    >>> both(((1, 4), (6, 9)), ((3, 7),))
    ((3, 4), (6, 7))
    """
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low < high:
            found.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def minus(one: Spans, other: Spans) -> Spans:
    """What the first covers and the second does not.

    >>> minus(((1, 9),), ((0, 2), (4, 5)))
    ((2, 4), (5, 9))
    """
    rest, low = [], NULL
    for begin, end in other:
        rest.append((low, begin))
        low = end
    rest.append((low, END))
    return both(one, union(rest))


def spans_hold(spans: Spans, keys: np.ndarray) -> np.ndarray:
    """Which keys they cover.

    >>> spans_hold(((1, 3), (5, 6)), np.array([0, 1, 2, 3, 5])).tolist()
    [False, True, True, False, True]
    """
    edges = np.array([edge for span in spans for edge in span], np.int64)
    return np.asarray(np.searchsorted(edges, keys, side="right") % 2 == 1)

"""Boxes: what a predicate lets through, as a union of products of spans that do not overlap (II-B).

A *product* allows, dimension by dimension, some spans; a dimension it does not name allows anything. `and`, `or` and
the difference of unions of products are products again, so that a predicate under and / or / not becomes boxes; the
paper leaves that to its technical report.

Guarantee: a row lies in the union exactly where the predicate is true of it (not where it is null, as in a WHERE); no
row lies in two boxes, so that volumes and frequencies add up.

>>> left, right = {0: ((0, 5),)}, {1: ((3, 9),)}
>>> [sorted(one.items()) for one in disjoint([left, right])]
[[(0, ((0, 5),))], [(0, ((-9223372036854775808, 0), (5, 9223372036854775807))), (1, ((3, 9),))]]

Spans: the values of one dimension that a comparison lets through, as half-open ranges of 64-bit keys.

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

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product as crossed

import numpy as np

from spillway.errors import Refused

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


Product = Mapping[int, Spans]
"""By the place of a dimension, what it allows of it."""
MOST_BOXES = 4096
"""A predicate of more boxes than that is refused: it is a list, not a range."""


def conjunction(one: Sequence[Product], other: Sequence[Product]) -> list[Product]:
    """What lies in both unions."""
    _check_count(len(one) * len(other))
    found = [_meet(a, b) for a in one for b in other]
    return _merged([each for each in found if each is not None])


def disjunction(one: Sequence[Product], other: Sequence[Product]) -> list[Product]:
    """What lies in either union."""
    return _merged([*one, *other])


def disjoint(products: Sequence[Product]) -> list[Product]:
    """The same union, of products that do not overlap."""
    found: list[Product] = []
    for one in products:
        rest = [one]
        for before in found:
            rest = [piece for each in rest for piece in _without(each, before)]
            _check_count(len(rest))
        found += rest
        _check_count(len(found))
    return found


def boxes_of(products: Sequence[Product], dimensions: int) -> np.ndarray:
    """The boxes of products that do not overlap: keys, one row a box, dimension by dimension low and high."""
    count = sum(math.prod(len(spans) for spans in one.values()) for one in products)
    _check_count(count)
    found = np.empty((count, dimensions, 2), np.int64)
    place = 0
    for one in products:
        spans = [one.get(dimension, ANYTHING) for dimension in range(dimensions)]
        for box in crossed(*spans):
            found[place] = box
            place += 1
    return found


def products_hold(products: Sequence[Product], keys: Sequence[np.ndarray]) -> np.ndarray:
    """Which rows lie in the union; `keys` by dimension."""
    rows = len(keys[0]) if len(keys) else 0
    found = np.zeros(rows, bool)
    for one in products:
        inside = np.ones(rows, bool)
        for dimension, spans in one.items():
            inside &= spans_hold(spans, keys[dimension])
        found |= inside
    return found


def _meet(one: Product, other: Product) -> Product | None:
    found = dict(one)
    for dimension, spans in other.items():
        found[dimension] = both(found[dimension], spans) if dimension in found else spans
        if not found[dimension]:
            return None
    return found


def _without(one: Product, other: Product) -> Iterator[Product]:
    """What lies in the first and not in the second, in pieces that do not overlap."""
    if _meet(one, other) is None:
        yield one
        return
    inside = dict(one)
    for dimension, spans in other.items():
        mine = inside.get(dimension, ANYTHING)
        outside = minus(mine, spans)
        if outside:
            yield {**inside, dimension: outside}
        inside[dimension] = both(mine, spans)


def _merged(products: Sequence[Product]) -> list[Product]:
    """The same union of fewer products: those that differ in one dimension alone are one."""
    found: list[dict[int, Spans]] = []
    for one in products:
        if not all(one.values()):
            continue
        for place, other in enumerate(found):
            if other.keys() != one.keys():
                continue
            differ = [dimension for dimension in one if one[dimension] != other[dimension]]
            if len(differ) <= 1:
                for dimension in differ:
                    found[place] = {
                        **other,
                        dimension: union([*one[dimension], *other[dimension]]),
                    }
                break
        else:
            found.append(dict(one))
        _check_count(len(found))
    return list(found)


def _check_count(count: int) -> None:
    if count > MOST_BOXES:
        raise Refused(
            "predicate",
            f"come to at most {MOST_BOXES} boxes",
            count,
            "split the query into several, or ask for ranges instead of lists",
        )

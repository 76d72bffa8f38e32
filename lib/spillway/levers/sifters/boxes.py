"""Represent the rows that a predicate matches: a union of boxes that do not overlap, of spans of keys (II-B).

Products. A *product* allows some spans of each dimension that it names, and any value of the other dimensions. The
intersection (`and`), the union (`or`) and the difference of unions of products are unions of products again. So a
predicate under `and`, `or` and `not` becomes boxes. Gedik, Wu and Yu (2008) leave this to their technical report.

Guarantee: a row lies in the union exactly if the predicate is true for it (not if it is null, as in a WHERE). No row
lies in two boxes, so volumes and frequencies add up.

>>> left, right = {0: ((0, 5),)}, {1: ((3, 9),)}
>>> [sorted(one.items()) for one in make_disjoint([left, right])]
[[(0, ((0, 5),))], [(0, ((-9223372036854775808, 0), (5, 9223372036854775807))), (1, ((3, 9),))]]

Spans. The values of one dimension that a comparison matches are half-open ranges of 64-bit keys. Keys have the order of
the values. Neighbouring values have neighbouring keys, so open and closed ends have one form (`x > 5` begins at the key
after the key of 5), and sets of values are exact:

    null  <  -inf  <  ...  <  -0.0 = 0.0  <  ...  <  inf  <  NaN        (Spark's order: NaN above everything)

The key of a double is made of its bits. The key of an integer, a time (in microseconds) or a day is the number itself.
The key of a word is its index in the list of known words; all unknown words share the next key.

>>> five = float_key(5.0)
>>> difference(VALUES, ((five, five + 1),)) == ((NULL + 1, five), (five + 1, END))
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product as crossed

import numpy as np

from spillway.errors import InvalidValue

Spans = tuple[tuple[int, int], ...]
"""Half-open ranges of keys in ascending order, with a gap between each two."""

NULL, END = -(2**63), 2**63 - 1
"""The key of null, and the end after all keys."""
NAN = END - 1
ANYTHING: Spans = ((NULL, END),)
"""All values, and null."""
VALUES: Spans = ((NULL + 1, END),)
"""All values except null."""
NULLS: Spans = ((NULL, NULL + 1),)
_FLIP = 2**63 - 1


def float_key(value: float) -> int:
    """Return the key of a double.

    >>> float_key(-1.0) < float_key(-0.0) == float_key(0.0) < float_key(5e-324) < float_key(float("nan"))
    True
    """
    return int(float_keys(np.array([value]))[0])


def float_keys(values: np.ndarray) -> np.ndarray:
    """Return the keys of doubles."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.int64)
    keys = np.where(bits < 0, bits ^ np.int64(_FLIP), bits)
    return np.asarray(np.where(np.isnan(values), NAN, keys), np.int64)


def key_floats(keys: np.ndarray) -> np.ndarray:
    """Return the doubles of keys that `float_keys` returned.

    >>> key_floats(float_keys(np.array([-1.5, 0.0, 3e300, np.inf]))).tolist()
    [-1.5, 0.0, 3e+300, inf]
    """
    keys = np.asarray(keys, np.int64)
    return np.asarray(np.where(keys < 0, keys ^ np.int64(_FLIP), keys), np.int64).view(np.float64)


def whole_keys(values: np.ndarray) -> np.ndarray:
    """Return order-preserving keys of 64-bit integers.

    A value is its own key, except the two smallest and the two largest values, which shift inwards by one. The
    outermost values make room for the keys of null (`NULL`) and of the end (`END`). The values next to them share the
    key of their inner neighbour.

    >>> (whole_keys(np.array([2**63 - 1, 2**63 - 2, 7, -(2**63)])) - np.array([END, END, 7, NULL])).tolist()
    [-1, -2, 0, 1]
    """
    found = np.asarray(values, np.int64)
    return found + (found <= NULL + 1) - (found >= END - 1)


def whole_edge(value: int) -> int:
    """Return the first key of the integers that are at least `value`.

    >>> whole_edge(2**63 - 1) == END - 1, whole_edge(2**63) == END, whole_edge(-(2**80)) == NULL + 1
    (True, True, True)
    """
    return END if value > END else NULL + 1 if value < NULL else int(whole_keys(np.array([value]))[0])


def union(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the union of spans.

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


def intersection(one: Spans, other: Spans) -> Spans:
    """Return the intersection of two lists of spans.

    >>> intersection(((1, 4), (6, 9)), ((3, 7),))
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


def difference(one: Spans, other: Spans) -> Spans:
    """Return the spans that the first covers and the second does not.

    >>> difference(((1, 9),), ((0, 2), (4, 5)))
    ((2, 4), (5, 9))
    """
    rest, low = [], NULL
    for begin, end in other:
        rest.append((low, begin))
        low = end
    rest.append((low, END))
    return intersection(one, union(rest))


def spans_contain(spans: Spans, keys: np.ndarray) -> np.ndarray:
    """Return for each key whether the spans cover it.

    >>> spans_contain(((1, 3), (5, 6)), np.array([0, 1, 2, 3, 5])).tolist()
    [False, True, True, False, True]
    """
    edges = np.array([edge for span in spans for edge in span], np.int64)
    return np.asarray(np.searchsorted(edges, keys, side="right") % 2 == 1)


Product = Mapping[int, Spans]
"""The spans that a product allows, by the index of the dimension."""
MOST_BOXES = 4096
"""The maximum number of boxes of a predicate; one with more is a list rather than a range, and is refused."""


def conjunction(one: Sequence[Product], other: Sequence[Product]) -> list[Product]:
    """Return the intersection of two unions."""
    _check_count(len(one) * len(other))
    found = [_meet(a, b) for a in one for b in other]
    return _merge_products([each for each in found if each is not None])


def disjunction(one: Sequence[Product], other: Sequence[Product]) -> list[Product]:
    """Return the union of two unions."""
    return _merge_products([*one, *other])


def make_disjoint(products: Sequence[Product]) -> list[Product]:
    """Return the same union as products that do not overlap."""
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
    """Return the boxes of products that do not overlap, as keys: by box and dimension, low and high."""
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


def products_contain(products: Sequence[Product], keys: Sequence[np.ndarray]) -> np.ndarray:
    """Return for each row whether it lies in the union; `keys` by dimension."""
    rows = len(keys[0]) if len(keys) else 0
    found = np.zeros(rows, bool)
    for one in products:
        inside = np.ones(rows, bool)
        for dimension, spans in one.items():
            inside &= spans_contain(spans, keys[dimension])
        found |= inside
    return found


def _meet(one: Product, other: Product) -> Product | None:
    found = dict(one)
    for dimension, spans in other.items():
        found[dimension] = intersection(found[dimension], spans) if dimension in found else spans
        if not found[dimension]:
            return None
    return found


def _without(one: Product, other: Product) -> Iterator[Product]:
    """Yield the difference of two products as products that do not overlap."""
    if _meet(one, other) is None:
        yield one
        return
    inside = dict(one)
    for dimension, spans in other.items():
        mine = inside.get(dimension, ANYTHING)
        outside = difference(mine, spans)
        if outside:
            yield {**inside, dimension: outside}
        inside[dimension] = intersection(mine, spans)


def _merge_products(products: Sequence[Product]) -> list[Product]:
    """Return the same union with fewer products: merge products that differ in only one dimension."""
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
        raise InvalidValue(
            "predicate",
            f"come to at most {MOST_BOXES} boxes",
            count,
            "split the query into several, or ask for ranges instead of lists",
        )

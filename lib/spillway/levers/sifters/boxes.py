"""Boxes: what a predicate lets through, as a union of products of spans that do not overlap (II-B).

A *product* allows, dimension by dimension, some spans; a dimension it does not name allows anything. `and`, `or` and
the difference of unions of products are products again, so that a predicate under and / or / not becomes boxes; the
paper leaves that to its technical report.

Guarantee: a row lies in the union exactly where the predicate is true of it (not where it is null, as in a WHERE); no
row lies in two boxes, so that volumes and frequencies add up.

>>> left, right = {0: ((0, 5),)}, {1: ((3, 9),)}
>>> [sorted(one.items()) for one in disjoint([left, right])]
[[(0, ((0, 5),))], [(0, ((-9223372036854775808, 0), (5, 9223372036854775807))), (1, ((3, 9),))]]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product as crossed

import numpy as np

from spillway.errors import Refused
from spillway.levers.sifters.spans import ANYTHING, Spans, both, minus, spans_hold, union

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

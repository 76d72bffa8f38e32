"""Which of many (mean error, bytes) points are worth keeping: the lower convex hull, from exact to coarse.

Between two points a plan can mix (some windows at the one, some at the other), so a point above the line between two
others is never wanted. `height` says how low a whole curve lies, so that two sets of points can be compared.

>>> on_the_hull([(0.0, 100), (1.0, 60), (2.0, 55), (3.0, 20), (4.0, 25)])
[0, 1, 3]
>>> round(height([(0.0, 100), (2.0, 25)], [0.0, 2.0])), round(height([(0.0, 100)], [0.0, 2.0]))
(50, 100)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

MOST = 10
"""The most precisions that an attribute keeps."""


def on_the_hull(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the points on the lower convex hull, by rising error and falling bytes."""
    order = sorted(range(len(points)), key=lambda place: (points[place], place))
    kept: list[int] = []
    for place in order:
        error, size = points[place]
        if kept and (size >= points[kept[-1]][1] or error <= points[kept[-1]][0]):
            continue
        while len(kept) > 1 and _above(points[kept[-2]], points[kept[-1]], (error, size)):
            kept.pop()
        kept.append(place)
    return kept


def _above(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    share = (middle[0] - left[0]) / (right[0] - left[0])
    return middle[1] >= left[1] + share * (right[1] - left[1])


def thinned(places: Sequence[int], sizes: Sequence[float], most: int = MOST) -> list[int]:
    """At most so many of the places: both ends, and those between that differ most in bytes from their neighbours.

    >>> thinned([0, 1, 2, 3], [100, 99, 50, 20], most=3)
    [0, 2, 3]
    """
    kept, weights = list(places), [math.log(max(1.0, size)) for size in sizes]
    while len(kept) > max(2, most):
        gaps = [weights[i - 1] - weights[i + 1] for i in range(1, len(kept) - 1)]
        least = min(range(len(gaps)), key=lambda i: gaps[i]) + 1
        del kept[least], weights[least]
    return kept


def height(points: Sequence[tuple[float, float]], marks: Sequence[float]) -> float:
    """The geometric mean, over mean errors, of the fewest bytes that a mixture within each takes."""
    hull = [points[place] for place in on_the_hull(points)]
    if not hull:
        return math.inf
    found = 0.0
    for mark in marks:
        found += math.log(max(1.0, _at(hull, mark)))
    return math.exp(found / len(marks))


def _at(hull: Sequence[tuple[float, float]], mark: float) -> float:
    if mark <= hull[0][0]:
        return hull[0][1]
    for left, right in pairwise(hull):
        if mark <= right[0]:
            return left[1] + (mark - left[0]) / (right[0] - left[0]) * (right[1] - left[1])
    return hull[-1][1]


def rising(bounds: Sequence[tuple[float, ...]]) -> list[int]:
    """The places of the bounds that are in nothing tighter than one before: a model names its precisions finest first.

    >>> rising([(0.0, 0.0), (2.0, 1.0), (1.0, 1.0), (3.0, 0.5), (3.0, 1.0)])
    [0, 1, 4]
    """
    kept: list[int] = []
    for place, bound in enumerate(bounds):
        if not kept or all(now >= then for now, then in zip(bound, bounds[kept[-1]], strict=True)):
            kept.append(place)
    return kept

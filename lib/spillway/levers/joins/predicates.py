"""What makes a pair: five predicates over sets of items, each row's items in ascending order.

    equality        L = R               (a single value is a set of one)
    subset          L in R              superset: R in L
    overlap         |L and R| >= theta
    inner product   sum over common items of weight_L weight_R >= theta

All of them are decided by the items that both have, which is what lets an inverted index answer them (4.2). A row
without items (a null, an empty text) says nothing and matches nothing, also where set theory would have it that the
empty set is in every other.

>>> import numpy as np
>>> a, b = np.array([1, 4, 9]), np.array([4, 9, 12])
>>> ones = np.ones(3)
>>> int(shared(a, ones, 0, 3, b, ones, 0, 3)[0])
2
>>> bool(makes_pair(OVERLAP, 2.0, 2, 0.0, 3, 3)), bool(makes_pair(SUBSET, 0.0, 2, 0.0, 3, 3))
(True, False)
"""

from __future__ import annotations

from numba import njit

EQUALITY, SUBSET, SUPERSET, OVERLAP, INNER_PRODUCT = range(5)
PREDICATES = {
    "equality": EQUALITY,
    "subset": SUBSET,
    "superset": SUPERSET,
    "overlap": OVERLAP,
    "inner_product": INNER_PRODUCT,
}
"""Predicates by the word that contracts have for them."""
THRESHOLDED = ("overlap", "inner_product")


@njit(cache=True)
def shared(  # type: ignore[no-untyped-def]
    left, left_weights, begin, end, right, right_weights, from_, to_
) -> tuple[int, float]:
    """How many items `left[begin:end]` and `right[from_:to_]` both have, and the sum of the products of their weights.

    One merge of two sorted lists.
    """
    i, j, common, product = begin, from_, 0, 0.0
    while i < end and j < to_:
        if left[i] == right[j]:
            common += 1
            product += left_weights[i] * right_weights[j]
            i += 1
            j += 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    return common, product


@njit(cache=True)
def makes_pair(
    predicate: int, threshold: float, common: int, product: float, left_size: int, right_size: int
) -> bool:
    """Whether rows with so many items, of which they share so many, are a pair."""
    if common == 0:
        return False
    if predicate == 0:
        return bool(common == left_size and common == right_size)
    if predicate == 1:
        return bool(common == left_size)
    if predicate == 2:
        return bool(common == right_size)
    if predicate == 3:
        return bool(common >= threshold)
    return bool(product >= threshold)


def oriented(predicate: int) -> int:
    """The same predicate with the sides changed over, for a right row that looks for left ones.

    >>> oriented(SUBSET) == SUPERSET, oriented(OVERLAP) == OVERLAP
    (True, True)
    """
    return {SUBSET: SUPERSET, SUPERSET: SUBSET}.get(predicate, predicate)

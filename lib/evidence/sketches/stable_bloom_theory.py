"""What a stable Bloom filter is worth before it has seen anything: equations 3.1 to 3.21.

m cells, K set and P decremented an element; a cell is set with probability k = K/m and decremented with p = P/m.

- Share of zeros when stable: at least (1 / (1 + 1/(P (1/K - 1/m))))^Max (Theorem 3).
- False positives: at most FPS = (1 - that)^K, at all times (3.12, Corollary 5).
- P for a wanted FPS: 3.21, rounded *up* (ERRATA E1: the thesis rounds down and breaks its own bound).
- False negatives at a gap of delta elements between two occurrences (ERRATA E2): a cell starts at Max and is a
  Markov chain (decrement, then set), so that Eq. 3.13 is the entry (Max, 0) of its transition matrix to the power
  delta: exact for any gap, with log(delta) products. FN = 1 - (1 - PR0)^K (3.18 with equal cells, 3.20).

>>> [decrements_for(rate, top, hashes, 10**9) for rate, top, hashes in ((0.01, 1, 3), (0.01, 15, 6), (0.1, 1, 2))]
[11, 142, 5]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spillway.errors import InvalidValue


def stable_zero_share(cells: int, hashes: int, decrements: int, top: int) -> float:
    """The least expected share of zero cells, once stable (Theorem 3)."""
    return (1.0 / (1.0 + 1.0 / (decrements * (1.0 / hashes - 1.0 / cells)))) ** top


def false_positive_bound(cells: int, hashes: int, decrements: int, top: int) -> float:
    """FPS of 3.12: no element is taken for a duplicate wrongly with more than this probability."""
    return (1.0 - stable_zero_share(cells, hashes, decrements, top)) ** hashes


def exact_decrements(rate: float, top: int, hashes: int, cells: int) -> float:
    """P of 3.21, not rounded."""
    zeros = (1.0 - rate ** (1.0 / hashes)) ** (1.0 / top)
    return 1.0 / ((1.0 / zeros - 1.0) * (1.0 / hashes - 1.0 / cells))


def decrements_for(rate: float, top: int, hashes: int, cells: int) -> int:
    """The least whole P whose bound is at most `rate`."""
    decrements = max(math.ceil(exact_decrements(rate, top, hashes, cells) - 1e-9), 1)
    while false_positive_bound(cells, hashes, decrements, top) > rate * (1.0 + 1e-12):
        decrements += 1
    return decrements


def zero_after(gap: float, set_probability: float, decrement_probability: float, top: int) -> float:
    """PR0 of 3.13: the probability that a cell just set to Max is 0 after `gap` elements.

    >>> round(zero_after(2, 2 / 1000, 4 / 1000, 1), 12)
    0.007960079936
    """
    k, p = set_probability, decrement_probability
    step = np.zeros((top + 1, top + 1))
    for value in range(top + 1):
        after = ((value - 1, p), (value, 1.0 - p)) if value > 0 else ((0, 1.0),)
        for reached, probability in after:
            step[value, reached] += probability * (1.0 - k)
        step[value, top] += k
    return float(np.linalg.matrix_power(step, int(gap))[top, 0])


def false_negative_rate(gap: float, cells: int, hashes: int, decrements: int, top: int) -> float:
    """FN of 3.18 for one duplicate that comes `gap` elements after its predecessor."""
    gone = zero_after(gap, hashes / cells, decrements / cells, top)
    return 1.0 - (1.0 - gone) ** hashes


def expected_false_negatives(
    gaps: Sequence[tuple[float, float]], cells: int, hashes: int, decrements: int, top: int
) -> float:
    """The share of duplicates missed (3.19) when a gap g occurs with weight v, for each (g, v)."""
    weight = sum(share for _, share in gaps)
    if weight <= 0:
        raise InvalidValue(
            "gaps", "have weights above 0", list(gaps), "give (gap, weight) pairs of the stream"
        )
    return (
        sum(share * false_negative_rate(gap, cells, hashes, decrements, top) for gap, share in gaps) / weight
    )

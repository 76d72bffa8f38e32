"""What a COUNT, SUM or AVG over some batches says of all of them, with an interval: ratio estimation by clusters.

Of N batches n were read, any as likely as any other; batch i has m_i tuples, of which the query makes y_i (a sum) and
c_i (a count). How many tuples all batches have, T, is known without reading them. With r = sum y / sum m over what
was read, f = n / N and t the quantile of Student's t with n - 1 degrees of freedom:

    total = T r,      se = T / mean(m) * sqrt((1 - f) / n * sum (y_i - r m_i)^2 / (n - 1))

and an average is the ratio of two of these, r = sum y / sum c, with residuals y_i - r c_i over mean(c). Where nothing
was shed the value is exact and the interval has no width. Honest where at least `FEWEST` batches were read, where
chance alone chose them (`room_plan`), and where they are of about one size (`are_even`): of a few batches of which the
largest make the sum, some draw says nothing of what it did not hold, and measured intervals of 95 % held in 56 to 90 %.
There a value is scaled up and has no interval. Nor has it one where fewer than `FEWEST` batches have any of what is
added up, or where one of them has more than twice its part and makes half of the variance (`says_enough`): none found
in a few batches is no proof of none, and what is rare or lies in lumps is not told by a spread. Lumps of which the draw
held none nobody can see. Below `FEWEST` batches, `sic` alone says what an answer rests on.

>>> tens = np.full(5, 10.0)
>>> read = Clusters(tens, np.array([4.0, 5.0, 6.0, 4.0, 6.0]), tens)
>>> found = scaled_total(read, batches=10, tuples=100)
>>> found.value, round(found.low, 1), round(found.high, 1)
(50.0, 41.2, 58.8)
>>> scaled_total(read, batches=5, tuples=50)
Estimate(value=25.0, low=25.0, high=25.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
FEWEST = 5
"""Of fewer batches the spread is a guess."""
MOST_OVER_MEAN = 1.5
"""The largest batch has at most so many times the tuples of the mean one, where an interval is given."""


@dataclass(frozen=True)
class Clusters:
    """Of every batch read: its tuples, the sum of what the query adds up in it, and how many it counts."""

    tuples: np.ndarray
    total: np.ndarray
    counted: np.ndarray

    def __len__(self) -> int:
        return len(self.tuples)


@dataclass(frozen=True)
class Estimate:
    """A value of all, from some, and the interval it lies in with 95 % confidence."""

    value: float
    low: float | None
    high: float | None


def are_even(tuples: np.ndarray) -> bool:
    """Whether all batches, read and not, are of about one size.

    >>> are_even(np.array([90.0, 100.0, 110.0, 7.0])), are_even(np.array([20.0, 20.0, 200.0]))
    (True, False)
    """
    return len(tuples) == 0 or float(tuples.max()) <= MOST_OVER_MEAN * float(tuples.mean())


def says_enough(read: Clusters) -> bool:
    """Whether what was read tells how far batches lie apart; where they are all alike, by chance or not, it does not.

    >>> ones = np.ones(6)
    >>> says_enough(Clusters(ones, np.array([3.0, 4.0, 5.0, 3.0, 4.0, 5.0]), ones))
    True
    >>> [says_enough(Clusters(ones, np.array(few), ones)) for few in ([0, 0, 1, 2, 1, 2], [1, 1, 1, 1, 1, 9], [4] * 6)]
    [False, False, False]
    """
    part = float(read.total.sum()) / max(1.0, float(read.counted.sum())) * read.counted
    squares = (read.total - part) ** 2
    lumps = (2 * squares > squares.sum()) & (np.abs(read.total - part) > np.abs(part))
    return bool((read.total != 0).sum() >= FEWEST and squares.any() and not lumps.any())


def scaled_total(read: Clusters, batches: int, tuples: float) -> Estimate | None:
    """The sum over all batches; None where no interval is honest."""
    size = float(read.tuples.sum())
    if not size:
        return None
    ratio = float(read.total.sum()) / size
    if len(read) == batches:
        return _exact(float(read.total.sum()))
    if len(read) < FEWEST:
        return None
    spread = _spread(read.total - ratio * read.tuples, float(read.tuples.mean()), batches)
    return Estimate(tuples * ratio, tuples * (ratio - spread), tuples * (ratio + spread))


def scaled_mean(read: Clusters, batches: int) -> Estimate | None:
    """The average over all batches; None where no interval is honest."""
    counted = float(read.counted.sum())
    if not counted:
        return None
    ratio = float(read.total.sum()) / counted
    if len(read) == batches:
        return _exact(ratio)
    if len(read) < FEWEST:
        return None
    spread = _spread(read.total - ratio * read.counted, float(read.counted.mean()), batches)
    return Estimate(ratio, ratio - spread, ratio + spread)


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def _spread(residuals: np.ndarray, mean_size: float, batches: int) -> float:
    """Half the width of the interval, in the unit of the ratio."""
    n = len(residuals)
    variance = float((residuals**2).sum()) / (n - 1) * (1.0 - n / batches) / n
    return student_quantile(n - 1) * math.sqrt(max(0.0, variance)) / mean_size


def student_quantile(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t: tabled to 10 degrees, beyond by Cornish and Fisher's expansion.

    >>> student_quantile(2), round(student_quantile(20), 3), round(student_quantile(1000), 3)
    (4.303, 2.086, 1.962)
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = 1.959963985
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

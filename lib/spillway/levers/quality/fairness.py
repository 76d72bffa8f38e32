"""How evenly queries fare.

Jain's index of x_1..x_n is (sum x)^2 / (n sum x^2): 1 where all are alike, 1/n where one has everything. Beside it the
text's four figures: mean, standard deviation, IQR, and Q.95 - Q.05. Where queries have different weights, look at
sic / weight.

>>> spread_of(np.array([1.0, 1.0, 1.0, 1.0])).jain, round(spread_of(np.array([1.0, 0.0])).jain, 2)
(1.0, 0.5)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """How queries fared: on average, and how far from one another."""

    mean: float
    std: float
    iqr: float
    q95_q05: float
    jain: float


def spread_of(sic: np.ndarray) -> Spread:
    """The figures of queries' coverage; of none, or where none has anything, all are alike."""
    if not len(sic):
        return Spread(1.0, 0.0, 0.0, 0.0, 1.0)
    q05, q25, q75, q95 = np.quantile(sic, [0.05, 0.25, 0.75, 0.95])
    squares = float((sic * sic).sum())
    jain = float(sic.sum()) ** 2 / (len(sic) * squares) if squares else 1.0
    return Spread(float(sic.mean()), float(sic.std()), float(q75 - q25), float(q95 - q05), jain)

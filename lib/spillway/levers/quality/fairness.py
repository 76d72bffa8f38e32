"""How evenly queries fare, and when adding more of them stops paying.

Jain's index of x_1..x_n is (sum x)^2 / (n sum x^2): 1 where all are alike, 1/n where one has everything. Beside it the
text's four figures: mean, standard deviation, IQR, and Q.95 - Q.05. Where queries have different weights, look at
sic / weight.

Trade-off (6.4): the cost of a query is 1 / n; from a base of n_0 queries to n

    delta cost = 1 - n_0 / n        (6.3)        delta quality = 1 - quality_n / quality_0      (6.4)

and more pay as long as delta cost > delta quality (6.5, printed the other way round: D1).

>>> spread_of(np.array([1.0, 1.0, 1.0, 1.0])).jain, round(spread_of(np.array([1.0, 0.0])).jain, 2)
(1.0, 0.5)
>>> tipping_point({180: 0.9, 300: 0.6, 600: 0.3, 1200: 0.1})
600
"""

from __future__ import annotations

from collections.abc import Mapping
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


def trade_off(quality: Mapping[int, float]) -> dict[int, tuple[float, float]]:
    """By number of queries: how much cheaper a query is than with the fewest, and how much worse."""
    base = min(quality)
    return {
        n: (1.0 - base / n, 1.0 - quality[n] / quality[base] if quality[base] else 0.0)
        for n in sorted(quality)
    }


def tipping_point(quality: Mapping[int, float]) -> int:
    """The largest number of queries up to which every one more than the base pays (delta cost > delta quality)."""
    found = min(quality)
    for n, (cheaper, worse) in trade_off(quality).items():
        if n != found and cheaper < worse - 1e-12:
            break
        found = n
    return found

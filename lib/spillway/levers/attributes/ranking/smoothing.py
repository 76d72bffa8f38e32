"""Smooth a window by a moving average before it is ranked (Ahuja 2006, section 3.2.2, Appendix B).

Formulas, with a_n the n-th value of the window in tuple order:

- simple moving average over the last N values (equation 3.1, where 1/n is missing in print):
  SMA_n = (a_{n-N+1} + ... + a_n) / N
- exponential moving average with the multiplier m (equation 3.2, where a parenthesis is misplaced in print):
  EMA_n = EMA_{n-1} + m (a_n - EMA_{n-1})

The thesis starts the exponential average in three ways. All are available as `seed`: `first` takes the first value
(Table 3.3), `zero` starts from 0 (Table 3.6), and `sma` takes the simple average of the first N values and has no
output before (Table B.2). The default is `first` with m = 0.18.

Guarantee: one pass, strictly in order, in float64 without reassociation. Equal input gives equal bits.

Difference from the thesis, which has no nulls: a null, NaN or infinity is skipped. The average continues after it, and
the output is NaN at that row, so that a score counts only real values. An attribute with only nulls has an all-NaN
average. With seed `sma`, a window with fewer than N values has one output, the mean of its values at the last of them.

>>> import numpy as np
>>> Smoothing(multiplier=0.7).smooth(np.array([84.0, 55.0, np.nan, 46.0])).round(2).tolist()
[84.0, 63.7, nan, 51.31]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.attributes.option import AVERAGES, SEEDS

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Smoothing:
    """How a window is smoothed: `kind` ema, sma or none; `multiplier` (m); `seed`; `sma_tuples` (N)."""

    kind: str = "ema"
    multiplier: float = 0.18
    seed: str = "first"
    sma_tuples: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in AVERAGES:
            raise InvalidValue(
                "smoothing.kind", f"be one of {', '.join(AVERAGES)}", self.kind, "write kind: ema"
            )
        if self.seed not in SEEDS:
            raise InvalidValue(
                "smoothing.seed", f"be one of {', '.join(SEEDS)}", self.seed, "write seed: first"
            )
        if not 0.0 < self.multiplier <= 1.0:
            raise InvalidValue(
                "smoothing.multiplier", "be above 0 and at most 1", self.multiplier, "0.18 suits most streams"
            )
        wants_tuples = self.kind == "sma" or (self.kind == "ema" and self.seed == "sma")
        if wants_tuples and (self.sma_tuples is None or self.sma_tuples < 1):
            raise InvalidValue(
                "smoothing.sma_tuples",
                "be a whole number of at least 1 for a simple average",
                self.sma_tuples,
                "write sma_tuples: 10",
            )

    def smooth(self, values: npt.ArrayLike) -> Values:
        """Return the smoothed window, of the same length; NaN where the window has no finite value."""
        window = np.ascontiguousarray(values, dtype=np.float64)
        if self.kind == "none":
            return np.where(np.isfinite(window), window, np.nan)
        if self.kind == "sma":
            return simple_moving_average(window, self.sma_tuples or 1)
        return exponential_moving_average(window, self.multiplier, self.seed, self.sma_tuples)


def simple_moving_average(values: Values, tuples: int) -> Values:
    """Return the SMA over the last `tuples` (N) values; NaN until there are N values (equation 3.1).

    >>> import numpy as np
    >>> simple_moving_average(np.array([1.0, 2.0, 6.0]), 2).tolist()
    [nan, 1.5, 4.0]
    """
    return np.asarray(_sma(np.ascontiguousarray(values, dtype=np.float64), tuples))


def exponential_moving_average(
    values: Values, multiplier: float, seed: str = "first", sma_tuples: int | None = None
) -> Values:
    """Return the EMA with one of the three seedings of the thesis (equation 3.2).

    >>> import numpy as np
    >>> exponential_moving_average(np.array([28.07, 18.68]), 0.2, seed="zero").round(4).tolist()
    [5.614, 8.2272]
    """
    return np.asarray(
        _ema(
            np.ascontiguousarray(values, dtype=np.float64),
            multiplier,
            SEEDS.index(seed),
            sma_tuples or 1,
        )
    )


@njit(cache=True)
def _sma(values: Values, tuples: int) -> Values:
    smoothed = np.full(values.size, np.nan)
    kept = np.empty(tuples)
    seen = 0
    for i in range(values.size):
        if not np.isfinite(values[i]):
            continue
        kept[seen % tuples] = values[i]
        seen += 1
        if seen >= tuples:
            # a new sum each time: a running sum would accumulate rounding errors and depend on all rows before
            total = 0.0
            for j in range(tuples):
                total += kept[(seen + j) % tuples]
            smoothed[i] = total / tuples
    return smoothed


@njit(cache=True)
def _ema(values: Values, multiplier: float, seed: int, sma_tuples: int) -> Values:
    smoothed = np.full(values.size, np.nan)
    average = 0.0
    total = 0.0
    seen = 0
    last = -1
    started = seed == 1
    for i in range(values.size):
        if not np.isfinite(values[i]):
            continue
        seen += 1
        last = i
        if started:
            average += multiplier * (values[i] - average)
            smoothed[i] = average
        elif seed == 0:
            average = values[i]
            smoothed[i] = average
            started = True
        else:
            total += values[i]
            if seen == sma_tuples:
                average = total / seen
                smoothed[i] = average
                started = True
    if not started and seen > 0:
        smoothed[last] = total / seen
    return smoothed

"""Moving averages that take the irregularities out of a window before it is ranked (3.2.2, Appendix B).

Formulas, with a_n the n-th value of the window in tuple order:

- simple, over the last N values (equation 3.1, whose 1/n the print lost):
  SMA_n = (a_{n-N+1} + ... + a_n) / N
- exponential (equation 3.2, whose parenthesis the print misplaces), with the multiplier m:
  EMA_n = EMA_{n-1} + m (a_n - EMA_{n-1})

The thesis starts the exponential average in three ways, all of which are here as `seed`: `first` takes the
first value (Table 3.3), `zero` starts from 0 (Table 3.6), `sma` takes the simple average of the first N
values and gives nothing before (Table B.2). The default is `first` with m = 0.18.

Guarantee: one pass, strictly in order, in float64 without reassociation: equal input, equal bits.

Where we differ: the thesis knows no nulls. A null, NaN or infinity is no observation: it is skipped, the
average carries over it, and the output is NaN there, so that a score counts only what was observed. An
attribute that is all null has an all-NaN average. A window with fewer than N values is seeded by the mean of
all it has, at its last value.

>>> import numpy as np
>>> Smoothing(multiplier=0.7).smooth(np.array([84.0, 55.0, np.nan, 46.0])).round(2).tolist()
[84.0, 63.7, nan, 51.31]
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

import numpy as np
import numpy.typing as npt
from numba import njit

from spillway.errors import Refused
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
            raise Refused("smoothing.kind", f"be one of {', '.join(AVERAGES)}", self.kind, "write kind: ema")
        if self.seed not in SEEDS:
            raise Refused("smoothing.seed", f"be one of {', '.join(SEEDS)}", self.seed, "write seed: first")
        if not 0.0 < self.multiplier <= 1.0:
            raise Refused(
                "smoothing.multiplier", "be above 0 and at most 1", self.multiplier, "0.18 suits most streams"
            )
        wants_tuples = self.kind == "sma" or (self.kind == "ema" and self.seed == "sma")
        if wants_tuples and (self.sma_tuples is None or self.sma_tuples < 1):
            raise Refused(
                "smoothing.sma_tuples",
                "be a whole number of at least 1 for a simple average",
                self.sma_tuples,
                "write sma_tuples: 10",
            )

    def smooth(self, values: npt.ArrayLike) -> Values:
        """The smoothed window, as long as the window; NaN where there was no observation."""
        window = np.ascontiguousarray(values, dtype=np.float64)
        if self.kind == "none":
            return np.where(np.isfinite(window), window, np.nan)
        if self.kind == "sma":
            return simple_moving_average(window, self.sma_tuples or 1)
        return exponential_moving_average(window, self.multiplier, self.seed, self.sma_tuples)


def simple_moving_average(values: Values, tuples: int) -> Values:
    """SMA over the last `tuples` (N) values; NaN until N values have been seen (equation 3.1).

    >>> import numpy as np
    >>> simple_moving_average(np.array([1.0, 2.0, 6.0]), 2).tolist()
    [nan, 1.5, 4.0]
    """
    return np.asarray(_sma(np.ascontiguousarray(values, dtype=np.float64), tuples))


def exponential_moving_average(
    values: Values, multiplier: float, seed: str = "first", sma_tuples: int | None = None
) -> Values:
    """EMA with one of the three seedings of the thesis (equation 3.2).

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


def rounded_up(value: float, decimals: int) -> Decimal:
    """`value` as Tables 3.3 and 3.6 print it: cut after `decimals` places, away from zero (erratum A11).

    The value is first read at twelve significant digits, else float64's last bit would lift 63.7 to 63.71.

    >>> rounded_up(61.593, 2), rounded_up(-0.0341, 2), rounded_up(63.7, 2)
    (Decimal('61.60'), Decimal('-0.04'), Decimal('63.70'))
    """
    return Decimal(f"{value:.12g}").quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_UP)


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
            # summed afresh: a running sum would drift and depend on how far the stream has come
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

"""How much is compared by chance: gamma and more while little is known, less when enough is.

Selecting can be no better than what is known of where matches lie. A comparison that chance picks finds as much, on
average, as one that is chosen in ignorance, so looking costs nothing while nothing is known, and ever more the more
is known. What is known is counted in *lumps*: matches of the sample, as many of them at a time as a popular item makes,
(sum m)^2 / sum m^2 over its rows, which is their number where all match alike. K_j is a basic window's part of them by
the comparisons that were made there, v_j its part of the comparisons that are to be made now. How many are enough goes
by what there is to tell apart: tau^2, the variance of what basic windows yield a comparison, against their mean, beyond
what noise makes of it (`apart`), and

    gamma' = sum_j v_j clip(gamma N / K_j, least, MOST_LOOKED),  N = min(MOST_LUMPS, SIGNAL / tau^2),  1 before a match

with `least` what finds so many pairs that what was missed is known well (gamma at most). A sharp peak is found with few
lumps, a flat one needs many and loses little by looking. So lags that nothing was known of because windows were not
that full yet are looked at when they come. The paper samples gamma r from the first row to the last: a window after its
start, or after a change (`changing`), it knows next to nothing and selects by that.

>>> half, made = np.array([0.5, 0.5]), np.array([100.0, 100.0])
>>> flat, steep = np.array([50.0, 50.0]), np.array([95.0, 5.0])
>>> explored(0.05, 0.0, flat, made, half), explored(0.05, 1e9, flat, made, half)
(1.0, 0.05)
>>> round(explored(0.05, 10.0, flat, made, half), 3), round(explored(0.05, 10.0, steep, made, half), 3)
(0.32, 0.05)
"""

from __future__ import annotations

import numpy as np

from spillway.levers.joins.operands import Array
from spillway.levers.joins.type_worth import apart

SIGNAL = 0.5
"""tau^2 times the lumps of a basic window that are enough."""
MOST_LUMPS = 32.0
"""A basic window: enough, however little they differ."""
MOST_LOOKED = 0.5
"""What looking takes at most once anything was found."""


def explored(
    gamma: float, lumps: float, matches: Array, made: Array, to_make: Array, least: float | None = None
) -> float:
    """gamma', the share of what may be spent on comparisons that chance picks; at least `least` (None: gamma).

    `matches`, `made`: of the sample, pairs and comparisons by basic window; `to_make`: comparisons to be made now.
    """
    if lumps <= 0 or made.sum() <= 0 or to_make.sum() <= 0:
        return 1.0
    known = lumps * made / made.sum()
    seen = made > 0
    yields = matches[seen] / made[seen] * (made.sum() / max(1e-12, float(matches.sum())))
    enough = min(MOST_LUMPS, SIGNAL / max(1e-12, apart(yields, 1.0 / known[seen])))
    wanted = np.clip(
        gamma * enough / np.maximum(known, 1e-12), gamma if least is None else least, max(gamma, MOST_LOOKED)
    )
    return float(wanted @ to_make / to_make.sum())


def lumps_of(matches: float, squares: float) -> float:
    """How many independent things so many matches tell: (sum m)^2 / sum m^2.

    >>> lumps_of(100.0, 1000.0)
    10.0
    """
    return matches * matches / squares if squares > 0 else 0.0

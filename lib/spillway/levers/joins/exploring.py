"""How many rows are compared with everything: gamma, and more while little is known.

Selecting can be no better than what is known of where matches lie. A comparison of a row with everything finds as much,
on average, as one that is chosen in ignorance, so looking costs nothing while nothing is known, and ever more the more
is known. What is known is counted in *lumps*: matches of the sample, as many of them at a time as a popular item makes,
(sum m)^2 / sum m^2 over its rows, which is their number where all match alike. K_j is a basic window's part of them by
the comparisons that were made there, v_j its part of the comparisons that are to be made now, and

    gamma' = sum_j v_j clip(gamma ENOUGH / K_j, gamma, MOST_LOOKED),    1 before the first match

So lags that nothing was known of because windows were not that full yet are looked at when they come. The paper samples
gamma r from the first row to the last: a window after its start, or after a change (`changing`), it knows next to
nothing and selects by that.

>>> v, made = np.array([0.5, 0.5]), np.array([100.0, 100.0])
>>> explored(0.05, 0.0, made, v), explored(0.05, 1e9, made, v), explored(0.05, ENOUGH_LUMPS, made, v)
(1.0, 0.05, 0.1)
>>> explored(0.05, 1e9, np.array([100.0, 0.0]), v)
0.275
"""

from __future__ import annotations

import numpy as np

from spillway.levers.joins.operands import Array

ENOUGH_LUMPS = 4.0
"""A basic window: with less than that, gamma is not enough."""
MOST_LOOKED = 0.5
"""What looking takes at most once anything was found."""


def explored(gamma: float, lumps: float, made: Array, to_make: Array) -> float:
    """gamma', the share of what may be spent that goes to rows that are compared with everything.

    `made`: comparisons of the sample, by basic window; `to_make`: those that there are to make now.
    """
    if lumps <= 0 or made.sum() <= 0 or to_make.sum() <= 0:
        return 1.0
    known = lumps * made / made.sum()
    wanted = np.clip(gamma * ENOUGH_LUMPS / np.maximum(known, 1e-12), gamma, max(gamma, MOST_LOOKED))
    return float(wanted @ to_make / to_make.sum())


def lumps_of(matches: float, squares: float) -> float:
    """How many independent things so many matches tell: (sum m)^2 / sum m^2.

    >>> lumps_of(100.0, 1000.0)
    10.0
    """
    return matches * matches / squares if squares > 0 else 0.0

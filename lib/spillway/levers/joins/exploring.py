"""How much is looked beyond what is selected: gamma and more while little is known, less where enough is.

Selecting can be no better than what is known of where matches lie. A comparison that chance picks finds as much, on
average, as one that is chosen in ignorance, so looking costs nothing while nothing is known, and ever more the more
is known. What is known is counted in *lumps*: matches, as many of them at a time as a popular item makes,
(sum m)^2 / sum m^2 over rows, which is their number where all match alike. K_j is a basic window's part of them by the
comparisons that were made there, those that were selected too: what is selected needs no look. How many are enough goes
by what there is to tell apart: tau^2, the variance of what basic windows yield a comparison, against their mean, beyond
what noise makes of it (`apart`), and of what may be spent, were all of it spent looking evenly, a basic window gets

    gamma_j = clip(gamma N / K_j, LEAST_LOOKED gamma, max(gamma, MOST_LOOKED)),    N = min(MOST_LUMPS, SIGNAL / tau^2)

and all of it before a match. A sharp peak is found with few lumps, a flat one needs many and loses little by looking.
So lags that nothing was known of because windows were not that full yet are looked at when they come. The paper samples
gamma r of everything from the first row to the last: a window after its start, or after a change (`changing`), it knows
next to nothing and selects by that.

>>> half, made = np.array([0.5, 0.5]), np.array([100.0, 100.0])
>>> explored(0.05, 0.0, half, made).tolist(), explored(0.05, 1e9, half, made).round(3).tolist()
([1.0, 1.0], [0.01, 0.01])
>>> explored(0.05, 10.0, np.array([50.0, 50.0]), made).round(3).tolist()
[0.32, 0.32]
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
LEAST_LOOKED = 0.2
"""Of gamma: what is looked at however much is known, so that a peak that comes up elsewhere is seen."""


def explored(gamma: float, lumps: float, matches: Array, made: Array) -> Array:
    """gamma_j, the share of what may be spent on looking, by basic window.

    `matches`, `made`: pairs and comparisons, as they are remembered.
    """
    if lumps <= 0 or made.sum() <= 0:
        return np.ones(len(made))
    known = lumps * made / made.sum()
    seen = made > 0
    # what is selected is known so well that it alone would say what the mean is, and how much they differ
    heard = np.minimum(known[seen], 4 * MOST_LUMPS)
    yields = matches[seen] / made[seen]
    yields = yields / max(1e-300, float(heard @ yields / heard.sum()))
    enough = min(MOST_LUMPS, SIGNAL / max(1e-12, apart(yields, 1.0 / heard)))
    found: Array = np.clip(
        gamma * enough / np.maximum(known, 1e-12), LEAST_LOOKED * gamma, max(gamma, MOST_LOOKED)
    )
    return found


def lumps_of(matches: float, squares: float) -> float:
    """How many independent things so many matches tell: (sum m)^2 / sum m^2.

    >>> lumps_of(100.0, 1000.0)
    10.0
    """
    return matches * matches / squares if squares > 0 else 0.0

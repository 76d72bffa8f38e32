"""How much may be processed: the fraction r of the windows (Algorithm 1), driven by steps or by measured time.

*Followed*, as the paper has it: every T_r seconds beta = rows fetched / rows arrived, and

    r <- beta r  where beta < 1,      r <- min(1, delta_r r)  otherwise,      delta_r = 1.2.

*Counted* (ours, the default): here the rows of a window are all there before any is compared, so what r = 1 would take
is known, and r = what may be spent / what r = 1 would take; what was spent too much is taken off the next window.

Measured time drives the same controllers: a share of a core is as many steps as lately were made in so much time, of
which deciding and writing pairs down are part; what took longer than that all the same is owed, and saved in the next
windows, so that over the run the share is kept.

>>> followed(0.5, fetched=800, arrived=1000), followed(0.9, fetched=1000, arrived=1000)
(0.4, 1.0)
>>> counted(may_spend=50.0, possible=200.0), counted(may_spend=50.0, possible=0.0)
(0.25, 1.0)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array

BOOST = 1.2
LEAST_FRACTION = 1e-6
"""r never reaches 0: what is not looked at can never be found to be worth it."""
MOST_OWED = 10.0
STEPS_PER_CORE_SECOND = 20_000_000.0
"""Where there is nothing to measure it on."""


def followed(r: float, fetched: float, arrived: float, boost: float = BOOST) -> float:
    """The next r, from how many of the rows that arrived could be fetched.

    Where nothing arrived, everything was fetched. A run in which nothing at all was fetched leaves `LEAST_FRACTION`.
    """
    beta = fetched / arrived if arrived > 0 else 1.0
    return max(LEAST_FRACTION, beta * r) if beta < 1.0 else min(1.0, boost * r)


def counted(may_spend: float, possible: float, boost: float = BOOST) -> float:
    """r from what may be spent and what everything would take; `boost` has no part in it."""
    return 1.0 if possible <= may_spend else max(LEAST_FRACTION, may_spend / possible)


@njit(cache=True)
def fetched_rows(at: Array, steps: Array, steps_per_second: float, buffer_seconds: float, free_at: float):  # type: ignore[no-untyped-def]
    """Which rows are fetched before they fall out of the input buffer, and when the last of them is through.

    Rows (of both streams, in the order of time, in microseconds) wait for those before them; one that would wait longer
    than the buffer holds is not fetched: it stays in its window for others, but probes nothing. It is counted.
    """
    taken = np.zeros(len(at), np.bool_)
    for k in range(len(at)):
        begins = max(free_at, float(at[k]))
        if begins - at[k] <= buffer_seconds * 1e6:
            taken[k] = True
            free_at = begins + steps[k] / steps_per_second * 1e6
    return taken, free_at


def owed_seconds(debt: float, used: float, core_pct: float, seconds: float) -> float:
    """Time of a core that was used beyond a share of it, to be saved in the next window.

    What was saved is not kept: time that has passed cannot be spent. No more is owed than `MOST_OWED` windows have:
    where deciding alone takes more than a window has, nothing would be compared again long after that has passed.

    >>> owed_seconds(0.0, used=1.5, core_pct=20.0, seconds=5.0), owed_seconds(0.5, used=0.2, core_pct=20.0, seconds=5.0)
    (0.5, 0.0)
    """
    share = core_pct / 100.0 * seconds
    return min(MOST_OWED * share, max(0.0, debt + used - share))

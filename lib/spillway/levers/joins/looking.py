"""Looking beyond what is selected: a row compares all of a basic window, by chance, to learn what matches lie there.

The unit is a *cell*, a probing row and a basic window: with the chance p_j of its basic window it is looked at whole,

    u(seq, j) < p_j,    u in [0, 1) by the row's seq, the basic window and a seed

so that a look is a stretch of neighbouring rows, which takes a fifth of what as many rows here and there take, while
looks spread over many rows, whose matches come together, and go where little is known (`exploring`). With an index one
look-up serves a whole window, so there a row looks at all of its window or at none (`together`). The paper has whole
rows always, with one chance, gamma r.

Of a row that was passed over (`who`) nothing is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array
from spillway.levers.joins.ring import newest_taken
from spillway.sketches.mixing import mix64

_SALT, _STEP = np.uint64(0x2545F4914F6CDD1D), np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Looking:
    """By basic window the chance that a row looks at all of it; and which probing rows look at all."""

    chances: Array = field(default_factory=lambda: np.zeros(0))
    who: Array = field(default_factory=lambda: np.zeros(0, np.bool_))
    together: bool = False
    seed: int = 0


@njit(cache=True)
def with_looks(  # type: ignore[no-untyped-def]
    low, high, slot, seq, chances, together, seed, starts, first_slot, chosen, used
) -> None:
    """Of one probing row: rows used of each basic window, those `chosen` or all where it is looked at, in `used`."""
    state, last = mix64(seq + np.uint64(1), mix64(seed, _SALT)), len(starts) - 2
    if together:
        state = mix64(state, _SALT)
    for j in range(len(chosen)):
        used[j] = chosen[j]
        s = slot - j - first_slot
        if s < 0 or s > last or chances[j] <= 0:
            continue
        drawn = state if together else mix64(state + np.uint64(j) * _STEP, _SALT)
        if float(drawn >> np.uint64(11)) / 9007199254740992.0 < chances[j]:
            used[j] = max(0, min(high, starts[s + 1]) - max(low, starts[s]))


@njit(cache=True)
def made_by(  # type: ignore[no-untyped-def]
    low, high, slots, seq, take, kinds, order, starts, first_slot, types, chances, who, together, seed
):
    """Comparisons of spans: selected, and selected or looked at, by basic window and type; and the latter by row."""
    n = len(order)
    selected, made = np.zeros((n, types), np.int64), np.zeros((n, types), np.int64)
    by_row = np.zeros(len(low), np.int64)
    chosen, used = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for k in range(len(low)):
        looks = len(who) > 0 and who[k]
        if high[k] <= low[k] or (take[k] <= 0 and not looks):
            continue
        newest_taken(low[k], high[k], slots[k], take[k], order, starts, first_slot, chosen)
        if looks:
            with_looks(
                low[k], high[k], slots[k], seq[k], chances, together, seed, starts, first_slot, chosen, used
            )
        for j in range(n):
            selected[j, kinds[k]] += chosen[j]
            mine = used[j] if looks else chosen[j]
            made[j, kinds[k]] += mine
            by_row[k] += mine
    return selected, made, by_row

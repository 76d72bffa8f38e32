"""Time contestants: they alternate, and the best of some rounds counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_seconds(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the best of `rounds` of each contestant; the order alternates, after one warm-up run."""
    for contestant in contestants.values():
        contestant()
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(rounds):
        names = list(contestants)
        for name in names if turn % 2 == 0 else reversed(names):
            begin = clock()
            contestants[name]()
            best[name] = min(best[name], clock() - begin)
    return best

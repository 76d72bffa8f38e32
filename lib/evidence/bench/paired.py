"""What one way of doing something costs more than another, on a machine that does other things as well.

Both are run in turns, one, other, other, one, and each such round gives a ratio: who goes first goes last, what
disturbs one of a round mostly disturbs the other too, and what does not is one ratio of many. The median of the ratios
is the figure, and its interval is that of order statistics: so many of n ratios lie below the median as heads fall in n
throws of a coin, whatever the ratios' distribution. Beside the clock stands the processor's time of this process and
all that descend from it (Spark's JVM, its Python workers), of which other processes take nothing.

>>> found = median_of([1.0, 1.1, 0.9, 1.2, 1.0, 1.0, 1.3, 0.8])
>>> found.middle, found.low, found.high
(1.0, 0.8, 1.3)
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Median:
    """The middle of some ratios, and the interval of 95 % (at least) that the true one lies in."""

    middle: float
    low: float
    high: float


def median_of(ratios: Sequence[float]) -> Median:
    """The median and its interval; of fewer than six there is none narrower than all of them."""
    ordered = sorted(ratios)
    n = len(ordered)
    below, out = 0, 0.0
    for heads in range(n // 2):
        out += math.comb(n, heads) / 2.0**n
        if out > 0.025:
            break
        below = heads
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return Median(middle, ordered[below], ordered[n - 1 - below])


def family_seconds() -> float:
    """Processor seconds of this process and all that descend from it, those that have ended included."""
    spent: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            spent[int(entry.name)] = int(told[1]), sum(map(int, told[11:15])) / _TICKS
    mine, total = {os.getpid()}, 0.0
    total += spent[os.getpid()][1]
    while more := {pid for pid, (parent, _) in spent.items() if parent in mine and pid not in mine}:
        total += sum(spent[pid][1] for pid in more)
        mine |= more
    return total


CLOCKS: Mapping[str, Callable[[], float]] = {"processor": family_seconds, "clock": time.perf_counter}


def paired_ratios(
    one: Callable[[], object], other: Callable[[], object], rounds: int, warm: int = 2
) -> dict[str, Median]:
    """By clock, how many times as much `one` takes as `other`; `warm` rounds are not counted."""
    ratios: dict[str, list[float]] = {name: [] for name in CLOCKS}
    for turn in range(-warm, rounds):
        spent = dict.fromkeys(((name, run) for name in CLOCKS for run in (one, other)), 0.0)
        for run in (one, other, other, one):
            before = {name: clock() for name, clock in CLOCKS.items()}
            run()
            for name, clock in CLOCKS.items():
                spent[name, run] += clock() - before[name]
        if turn >= 0:
            for name, own in ratios.items():
                own.append(spent[name, one] / spent[name, other])
    return {name: median_of(own) for name, own in ratios.items()}

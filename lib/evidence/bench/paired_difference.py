"""Measure how much more time one procedure takes than another, on a machine with other load.

A round runs one, other, other, one, and gives one difference. A disturbance during a round mostly affects both; if not,
it affects one difference of many. The figure is the median difference as a share of the other's median. Its interval
contains 95 % of such figures over rounds resampled with replacement (the bootstrap), for any distribution. In addition
to wall clock time there is the processor time of this process and its descendants (Spark's JVM, its Python workers),
which other processes do not affect.

>>> found = excess_of([1.1, 1.2, 1.1, 1.0, 1.1, 1.2, 1.1, 1.1], [1.0, 1.0, 1.0, 1.0, 1.0, 1.1, 1.0, 1.0])
>>> round(found.middle, 3), found.low <= 0.1 <= found.high, found.rounds
(0.1, True, 8)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_TICKS = os.sysconf("SC_CLK_TCK")
_DRAWN = 10_000
_FEWEST = 12


@dataclass(frozen=True)
class Excess:
    """How much more one procedure takes than the other, as a share, with a 95 % interval."""

    middle: float
    low: float
    high: float
    rounds: int


def excess_of(one: Sequence[float], other: Sequence[float], seed: int = 1) -> Excess:
    """Return the median of paired differences over the other's median."""
    apart, whole = np.subtract(one, other), np.asarray(other, np.float64)
    chance = np.random.default_rng(seed)
    drawn = chance.integers(0, len(whole), (_DRAWN, len(whole)))
    found = np.median(apart[drawn], axis=1) / np.median(whole[drawn], axis=1)
    low, high = np.quantile(found, [0.025, 0.975])
    return Excess(float(np.median(apart) / np.median(whole)), float(low), float(high), len(whole))


def family_seconds() -> float:
    """Return the processor seconds of this process and all of its descendants, including ended ones."""
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


def paired_excess(
    one: Callable[[], object], other: Callable[[], object], seconds: float, warm: int = 2
) -> dict[str, Excess]:
    """Return, by clock, how much more `one` takes than `other`; run rounds for `seconds`, without `warm` warm-up
    rounds.
    """
    spent: dict[tuple[str, bool], list[float]] = {
        (name, first): [] for name in CLOCKS for first in (True, False)
    }
    turn, began = -warm, time.perf_counter()
    while turn < _FEWEST or time.perf_counter() - began < seconds:
        own = dict.fromkeys(spent, 0.0)
        for first in (True, False, False, True):
            before = {name: clock() for name, clock in CLOCKS.items()}
            (one if first else other)()
            for name, clock in CLOCKS.items():
                own[name, first] += clock() - before[name]
        for place, value in own.items() if turn >= 0 else ():
            spent[place].append(value)
        turn += 1
    return {name: excess_of(spent[name, True], spent[name, False]) for name in CLOCKS}

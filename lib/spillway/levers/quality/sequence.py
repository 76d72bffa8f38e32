"""What became of tuples whose source numbers them: arrived, late, lost; what was never produced is none of them.

A source that gives its tuples consecutive numbers says what it produced: between two numbers that are there, each that
is missing was produced and did not come (in time). One that comes after its window was worked out is *late*; one that
has not come is *lost*. Where a source was silent, its numbers go on without a gap: nothing was produced, so nothing is
missing. The numbers of one source go up by 1, a little out of order at most; one that falls by more than `RESTART`
below the highest so far begins a new run.

The first number of a window follows the last one seen before it, where that is known: so a gap at the edge of two
windows counts once, for the window that ends it.

>>> fates_of(np.array([7, 8, 11]), before=5, late=np.array([9]))
SequenceFates(produced=6, arrived=3, late=1, lost=2)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESTART = 64
"""Tuples of one source overtake one another by less than this."""
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class SequenceFates:
    """How many tuples a source produced in a window, and what became of them: produced = arrived + late + lost."""

    produced: int = 0
    arrived: int = 0
    late: int = 0
    lost: int = 0

    def __add__(self, other: SequenceFates) -> SequenceFates:
        return SequenceFates(
            self.produced + other.produced,
            self.arrived + other.arrived,
            self.late + other.late,
            self.lost + other.lost,
        )


def fates_of(numbers: np.ndarray, before: int | None = None, late: np.ndarray = _NONE) -> SequenceFates:
    """Fates of one source's tuples in a window, from the numbers that arrived in time, in order of arrival.

    `before`: the last number of the window before; `late`: those that came when the window had been worked out.
    A number that comes twice counts once.
    """
    arrived = missing = 0
    late_ones = set(np.asarray(late, np.int64).tolist())
    came_late = 0
    for run in _runs(np.asarray(numbers, np.int64), before):
        seen = np.unique(run[1])
        arrived += len(seen)
        low = int(seen[0]) if run[0] is None else min(run[0] + 1, int(seen[0]))
        gap = int(seen[-1]) - low + 1 - len(seen)
        within = [one for one in late_ones if low <= one <= int(seen[-1]) and one not in seen]
        came_late += len(within)
        missing += gap - len(within)
        late_ones -= set(within)
    came_late += len(late_ones)
    return SequenceFates(arrived + came_late + missing, arrived, came_late, missing)


def last_of(numbers: np.ndarray) -> int:
    """The number that the next one follows: the highest since the last restart.

    >>> last_of(np.array([1001, 1002, 1, 3, 2]))
    3
    """
    return int(_runs(np.asarray(numbers, np.int64), None)[-1][1].max())


def _runs(numbers: np.ndarray, before: int | None) -> list[tuple[int | None, np.ndarray]]:
    """Stretches between restarts, each with the number it follows on."""
    found: list[tuple[int | None, np.ndarray]] = []
    start, follows = 0, before
    for edge in [*_restarts(numbers), len(numbers)]:
        if edge > start:
            run = numbers[start:edge]
            after_restart = follows is not None and int(run.max()) < follows - RESTART
            found.append((None if after_restart else follows, run))
        start, follows = edge, None
    return found


def _restarts(numbers: np.ndarray) -> list[int]:
    """Where a number falls far below the highest of its run."""
    found, highest = [], None
    for at, number in enumerate(numbers.tolist()):
        if highest is not None and number < highest - RESTART:
            found.append(at)
            highest = number
        highest = number if highest is None else max(highest, number)
    return found

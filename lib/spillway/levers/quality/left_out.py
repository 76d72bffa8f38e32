"""What batches that nobody read could hold, whatever their values: the ends that an interval must not fall short of.

*For sure*: a row adds between `least` and `most` to a total, or nothing where it need not be counted. With S, C the sum
and count of what was read, and U tuples unread,

    total in [S + U a, S + U b],   a = least or min(0, least), b = most or max(0, most)
    mean in [min(S / C, (S + U least) / (C + U)), max(S / C, (S + U most) / (C + U))]

*Beyond chance*: of N batches n were read, any as likely as any other. How far those n lie apart (`intervals`) says
nothing of a batch unlike all of them. That k such batches all were left out has the chance

    C(N - k, n) / C(N, n) = prod_{i < k} (N - n - i) / (N - i)

so that at most `most_hidden` of them must be reckoned with (2.5 % at either end): each may be anything that its rows
allow, and an end is moved by that. Without it intervals of 95 % held sums that a few batches make in 9 to 85 %. Where
nobody knows what a row may add, there is no such end, and so no interval.

>>> most_hidden(10, 20), most_hidden(39, 40), most_hidden(5, 20)
(4, 1, 9)
>>> Reach(0.0, 1.0).total(np.array([3.0]), np.array([10.0, 10.0]))
(3.0, 23.0)
>>> Reach(0.0, 100.0, always=True).mean(200.0, 10.0, 10.0)
(10.0, 60.0)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spillway.levers.quality.sql_text import Measure, PlainAggregate

_ONE_OR_NONE = re.compile(r"case\s+when\b.*\bthen\s+1(\s+else\s+0)?\s+end$", re.IGNORECASE | re.DOTALL)
DOUBT = 0.025


@dataclass(frozen=True)
class Reach:
    """Between which values what a row adds must lie (of an average: its value)."""

    least: float
    most: float
    always: bool = False
    """Whether every row is counted; else it may add nothing."""

    def total(self, read: np.ndarray, unread: np.ndarray) -> tuple[float, float]:
        """Between which values the sum over all batches lies, by the sums of those read and the tuples of others."""
        (low, high), (sure, tuples) = self.added, (float(read.sum()), float(unread.sum()))
        return sure + tuples * low, sure + tuples * high

    def mean(self, total: float, counted: float, unread: float) -> tuple[float, float]:
        """The same of an average, by sum and count of what was read, and the tuples that were not."""
        rows = counted + unread
        if not rows:
            return self.least, self.most
        ends = [(total + unread * end) / rows for end in (self.least, self.most)]
        if counted and not self.always:
            ends += [total / counted]
        return min(ends), max(ends)

    def hidden_in_total(self, ratio: float, unread: np.ndarray, most: int) -> tuple[float, float]:
        """By how much so many batches of any kind may lower and lift a sum that was scaled up by a ratio."""
        low, high = self.added
        tuples = float(np.sort(unread)[::-1][:most].sum())
        return max(0.0, tuples * (ratio - low)), max(0.0, tuples * (high - ratio))

    def hidden_in_mean(self, ratio: float, unread: np.ndarray, most: int) -> tuple[float, float]:
        """The same of the sum of what values are off an average."""
        tuples = float(np.sort(unread)[::-1][:most].sum())
        return max(0.0, tuples * (ratio - self.least)), max(0.0, tuples * (self.most - ratio))

    @property
    def added(self) -> tuple[float, float]:
        """The smallest and the largest value that a row may add to a total."""
        return (self.least, self.most) if self.always else (min(0.0, self.least), max(0.0, self.most))


def row_reach(one: Measure, of: PlainAggregate, ranges: Mapping[str, tuple[float, float]]) -> Reach | None:
    """What a row may add to a measure, by its kind and the ranges of columns (in lower case); None: nobody knows.

    >>> from spillway.levers.quality.sql_text import plain_aggregate
    >>> ranges = {"loss": (0.0, 100.0)}
    >>> said = plain_aggregate("SELECT count(*) AS n, avg(loss) AS m, sum(x) AS s FROM polls")
    >>> [row_reach(one, said, ranges) for one in said.measures]
    [Reach(least=1.0, most=1.0, always=True), Reach(least=0.0, most=100.0, always=False), None]
    """
    if one.of is None:
        always = of.where is None and not of.keys
        return Reach(float(always), 1.0, always)
    if one.kind == "count":
        return Reach(0.0, 1.0)
    flag = _ONE_OR_NONE.match(one.of) and len(re.findall(r"\bwhen\b", one.of, re.IGNORECASE)) == 1
    if flag:
        return Reach(0.0, 1.0)
    return Reach(*ranges[one.of.lower()]) if one.of.lower() in ranges else None


def most_hidden(read: int, batches: int) -> int:
    """The most batches of which it is no rare chance (`DOUBT`) that all of them were left out; one, if any were.

    Where a single one was left out of many, how far the others lie apart still does not say what it holds.
    """
    chance, found = 1.0, 0
    while found < batches - read:
        chance *= (batches - read - found) / (batches - found)
        if chance <= DOUBT:
            break
        found += 1
    return max(found, int(read < batches))

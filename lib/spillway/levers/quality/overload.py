"""When a node has more to do than it can: what a tuple costs, how many fit, and whether that lasts (5.2).

    C_T = t / n      measured: seconds t for n tuples               (5.2)
    N_keep = delta / mean of the last C_T                           (5.3)
    N_discard = buffer - N_keep, where that is above 0              (5.1)

A single large batch is no overload: what is offered is smoothed as costs are, and a node that is overloaded stays so
until the smoothed load has fallen below `calm` of what it can do (hysteresis). Costs are one for all, as the text has
it, or one a query: then room is in seconds and every batch costs what its query's tuples do.

>>> cost = TupleCost(last=3).after(0.3, 5000)
>>> cost.keeps(0.25), cost.discards(10_000, 0.25)
(4166, 5834)
>>> for seconds, tuples in [(0.25, 5000), (0.26, 3900), (0.4, 5000)]:
...     cost = cost.after(seconds, tuples)
...     print(cost.keeps(0.25))
4545
4245
3813
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from spillway.errors import Refused


@dataclass(frozen=True)
class TupleCost:
    """What a tuple costs, as a mean over the last few measurements."""

    last: int = 10
    seconds: tuple[float, ...] = ()

    def after(self, seconds: float, tuples: int) -> TupleCost:
        """With one more measurement; an interval without tuples says nothing."""
        if tuples <= 0 or seconds <= 0:
            return self
        return replace(self, seconds=(*self.seconds, seconds / tuples)[-self.last :])

    @property
    def known(self) -> bool:
        return bool(self.seconds)

    @property
    def seconds_per_tuple(self) -> float:
        """The smoothed C_T; infinitely cheap before anything was measured."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else 0.0

    def keeps(self, interval_seconds: float) -> int:
        """N_keep: how many tuples fit into an interval."""
        if interval_seconds <= 0:
            raise Refused("interval_seconds", "be above 0", interval_seconds, "say how long an interval is")
        if not self.seconds:
            return 2**62
        # what fits exactly fits, whatever the last digit of a quotient says
        return math.floor(interval_seconds / self.seconds_per_tuple * (1 + 1e-12))

    def discards(self, buffer: int, interval_seconds: float) -> int:
        """N_discard of a buffer."""
        return max(0, buffer - self.keeps(interval_seconds))


@dataclass(frozen=True)
class Overload:
    """Whether more is offered than can be done, for good and not for a moment."""

    last: int = 4
    calm: float = 0.9
    offered: tuple[float, ...] = ()
    on: bool = False

    def after(self, offered: float, can: float) -> Overload:
        """With what one more interval was offered, and what could be done in it.

        >>> spike = Overload(last=4)
        >>> [(spike := spike.after(load, can=100)).on for load in (50, 50, 50, 220, 50)]
        [False, False, False, False, False]
        >>> lasting = Overload(last=2)
        >>> [(lasting := lasting.after(load, can=100)).on for load in (50, 200, 200, 96, 92, 50)]
        [False, True, True, True, True, False]
        """
        seen = (*self.offered, offered)[-self.last :]
        smoothed = sum(seen) / len(seen)
        return replace(self, offered=seen, on=smoothed > (self.calm if self.on else 1.0) * can)

"""The engine that is this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spillway.engine.protocol import Item, Result


@dataclass(frozen=True)
class InProcess:
    """Runs pieces here, one after the other: for small streams, tests, and what needs no Spark.

    >>> InProcess().map(lambda number: number * 2, [1, 2, 3])
    [2, 4, 6]
    """

    cores: int = 1

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return [function(item) for item in items]

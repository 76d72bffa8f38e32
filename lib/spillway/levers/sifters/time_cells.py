"""Counts of sifted rows by event time, so that every window knows how many rows were produced for it.

The time axis is divided into cells of equal length. The length divides the windows of all declared queries and joins
that read the stream. So a window is a whole number of cells, and its counts are exact. The window of a query that is
declared later may split a cell; its counts are then ranges (`levers.dropped_rows`).

>>> cells = TimeCells("at", 60_000_000)
>>> times = pa.chunked_array([pa.array([0, 59_999_999, 60_000_000], pa.timestamp("us", "UTC"))])
>>> cells.numbers(times).tolist()
[0, 0, 1]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.contracts import Contracts, StreamContract
from spillway.levers.windows import duration_micros, moment_of

DEFAULT_SECONDS = 60.0
"""Length of a cell if no query or join reads the stream."""
MOST_CELLS = 4096
"""The maximum number of cells of a batch; if there are more, cells are merged."""
_CELL = "cell"
_COUNTED = ("offered", "kept", "unsampled")


@dataclass(frozen=True)
class TimeCells:
    """Cells of `step` microseconds over the order attribute."""

    order: str
    step: int

    @staticmethod
    def of(contracts: Contracts, contract: StreamContract, seconds_covered: float | None) -> TimeCells | None:
        """Return the cells of a batch that covers `seconds_covered`; None if the stream has no event time."""
        if contract.attribute(contract.order).type not in ("timestamp", "date"):
            return None
        workloads = (*contracts.queries.values(), *contracts.joins.values())
        steps = [one.window.step for one in workloads if contract.stream in one.inputs]
        step = math.gcd(*steps) if steps else duration_micros(DEFAULT_SECONDS)
        cells = math.ceil(duration_micros(seconds_covered or 1.0) / step)
        return TimeCells(contract.order, step * math.ceil(cells / MOST_CELLS))

    def numbers(self, times: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Return the cell of each moment or date; nulls are not allowed."""
        micros = np.asarray(times.cast(pa.timestamp("us")).cast(pa.int64()))
        return np.asarray(micros // self.step)

    def count(
        self,
        times: pa.Array | pa.ChunkedArray,
        kept: np.ndarray,
        unsampled: np.ndarray,
        counts: dict[str, int],
    ) -> None:
        """Add the rows of each cell to `counts`; rows without a time belong to no window and are not counted."""
        there = np.asarray(times.is_valid())
        numbers = self.numbers(times.drop_null())
        for name, mask in zip(_COUNTED, (None, kept[there], unsampled[there]), strict=True):
            found, of = np.unique(numbers if mask is None else numbers[mask], return_counts=True)
            for number, rows in zip(found.tolist(), of.tolist(), strict=True):
                key = f"{_CELL}.{number}.{name}"
                counts[key] = counts.get(key, 0) + rows

    def spans(self, counts: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the counted cells as the column `spans` of the table `sifters`; merge cells if there are too many."""
        numbers = sorted({int(name.split(".")[1]) for name in counts if name.startswith(_CELL + ".")})
        together = max(1, math.ceil(len(numbers) / MOST_CELLS))
        return [self._span(numbers[at : at + together], counts) for at in range(0, len(numbers), together)]

    def _span(self, numbers: list[int], counts: Mapping[str, int]) -> dict[str, Any]:
        sums = {name: sum(counts.get(f"{_CELL}.{n}.{name}", 0) for n in numbers) for name in _COUNTED}
        return {
            "from_time": moment_of(numbers[0] * self.step),
            "to_time": moment_of((numbers[-1] + 1) * self.step),
            **sums,
        }

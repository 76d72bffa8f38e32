"""Divide the time axis into the windows of a join or query.

Window n is the moments t with n s <= t < (n + 1) s, with t and s in whole microseconds since 1970. If windows slide, s
is the step, and a window consists of several cells of that length. All code that assigns a moment to a window uses this
module, so that no row falls between two windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa

from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.errors import InvalidValue
from spillway.levers.windows import micros_of, moment_of
from spillway.store.files import DataFile, RowGroup, row_groups, rows_of_group, upper_bound
from spillway.store.filters import match_mask


@dataclass(frozen=True)
class WindowGrid:
    """Windows that start at equal distances. The time axis is divided into cells, and a window is one or several cells.

    Sliding windows overlap: window n consists of the cells n to n + cells - 1. Every moment lies in one cell.

    >>> sliding = WindowGrid(60_000_000, cells=3)
    >>> [edge.minute for edge in sliding.span(1)], list(sliding.windows_of(4)), list(sliding.cells_of(4))
    ([1, 4], [2, 3, 4], [4, 5, 6])
    """

    step: int
    cells: int = 1

    @staticmethod
    def of(contract: Workload) -> WindowGrid:
        """Return the grid of a contract; a fraction of a microsecond is rounded in the contract.

        >>> WindowGrid(3_600_000_000).at(datetime(1970, 1, 3, 12, tzinfo=UTC)), WindowGrid(300_000).at(date(1970, 1, 1))
        (60, 0)
        """
        return WindowGrid(contract.window.step, contract.window.overlap)

    def at(self, edge: date) -> int:
        """Return the cell of a moment; of a date, the cell of its first moment."""
        return micros_of(edge) // self.step

    def span(self, number: int) -> tuple[datetime, datetime]:
        """Return the first moment of a window, and the one after its last, within the range of datetimes."""
        return moment_of(number * self.step), moment_of((number + self.cells) * self.step)

    def cell(self, number: int) -> tuple[datetime, datetime]:
        """Return the start of a cell (inclusive) and its end (exclusive)."""
        return moment_of(number * self.step), moment_of((number + 1) * self.step)

    def windows_of(self, cell: int) -> range:
        """Return the windows that contain a cell."""
        return range(cell - self.cells + 1, cell + 1)

    def cells_of(self, window: int) -> range:
        """Return the cells of a window."""
        return range(window, window + self.cells)

    def cells_of_times(self, times: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Return the cells of moments or dates, none of them null."""
        micros = np.asarray(times.cast(pa.timestamp("us")).cast(pa.int64()))
        return np.asarray(micros // self.step)

    def only_cell_of_file(self, file: DataFile, order: str) -> int | None:
        """Return the only cell of a file's rows, by its statistics; None: the file must be read."""
        low, high = file.low(order), file.high(order)
        if low is None or high is None:
            return None
        first = self.at(low)
        return first if first == self.at(upper_bound(high)) else None

    def only_cell_of_group(self, group: RowGroup, order: str) -> int | None:
        """Return the only cell of a row group's rows, by the footer; None: the row group must be read."""
        if order not in group.edges:
            return None
        first, last = (self.at(_in_utc(edge)) for edge in group.edges[order])
        return first if first == last else None

    def of_batches(self, file: DataFile, order: str, batches: set[int]) -> set[tuple[int, int]]:
        """Return pairs of a batch and a cell in which the batch has rows in this file."""
        low, high, one = file.low("batch"), file.high("batch"), self.only_cell_of_file(file, order)
        if low is not None and low == high and one is not None:
            return {(low, one)} if low in batches else set()
        found: set[tuple[int, int]] = set()
        for group in row_groups(file, ["batch", order]):
            lowest, highest = group.edges.get("batch", (None, None))
            if lowest is not None and not any(lowest <= batch <= highest for batch in batches):
                continue
            alone = self.only_cell_of_group(group, order)
            if lowest is not None and lowest == highest and alone is not None:
                found.add((lowest, alone))
                continue
            rows = rows_of_group(file, group.place, ["batch", order])
            mine = rows.filter(match_mask(rows, {"batch": list(batches)}))
            mine = mine.filter(mine[order].is_valid())
            pairs = np.stack(
                [np.asarray(mine["batch"], dtype=np.int64), self.cells_of_times(mine[order])], axis=1
            )
            found |= {(int(batch), int(number)) for batch, number in np.unique(pairs, axis=0)}
        return found


def _in_utc(edge: date) -> date:
    return edge.replace(tzinfo=UTC) if isinstance(edge, datetime) and edge.tzinfo is None else edge


def window_order(contracts: Contracts, contract: Workload, stream: str) -> str:
    """Return the attribute by which an input stream is divided into windows."""
    order = contracts.stream(stream).order
    kind = contracts.stream(stream).attribute(order).type
    if kind not in ("timestamp", "date"):
        raise InvalidValue(
            "inputs",
            f"be ordered by a timestamp or a date to be cut into windows of seconds, and {stream} is by {order}",
            kind,
            "name a stream whose order attribute is one",
            where=contract.subject,
        )
    return order


def times_within(kind: str, begin: datetime, end: datetime) -> tuple[date, date]:
    """Return the first and the last value of an order attribute from `begin` until just before `end`.

    A date stands for its midnight. If there is no midnight between the two, the first value is after the last.

    >>> noon, evening = (datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (12, 20))
    >>> first, last = times_within("date", noon, evening)
    >>> first.isoformat(), last.isoformat()
    ('2026-01-02', '2026-01-01')
    """
    last = moment_of(micros_of(end) - 1)  # `end` belongs to the next window
    if kind != "date":
        return begin, last
    midnight = begin == datetime(begin.year, begin.month, begin.day, tzinfo=UTC)
    if begin.date() == date.max and not midnight:
        return date.max, date.min
    return begin.date() + timedelta(days=not midnight), last.date()

"""What came for the windows of a join or a query since somebody last looked, and which of them are closed by it.

Every batch is looked at once: the windows that it has rows in are kept in `windows`, open as long as an input stream
has transmitted nothing later, or has nothing there where all have to. So a batch that stands in any window is known,
and no look grows with the history. What came late is told apart: a window that can still be worked out with all of its
rows is opened again, one of whose rows retention has removed stays as it is, and says what came too late.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE as SENT
from spillway.batch import RETIRED
from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.errors import Refused, SpillwayError
from spillway.levers.windows import OPEN, PLANNED, Input, Window, micros_of, step_of
from spillway.pipeline.window_grid import WindowGrid, window_order
from spillway.pipeline.window_losses import dropped_cells
from spillway.pipeline.window_rules import refuse_always
from spillway.registry import lever
from spillway.store.files import row_groups, rows_of_group
from spillway.store.filters import Between
from spillway.store.tables import Tables

_ROUNDED = timedelta(microseconds=2)


class KnownWindows:
    """The windows of a join or a query that have a row; only those that somebody asks for are taken out of it."""

    def __init__(self, tables: Tables, contract: Workload) -> None:
        self._rows = tables.at("windows").rows(subject=contract.subject)
        self._numbers = np.asarray(self._rows["window"])

    def numbered(self, numbers: Collection[int]) -> dict[int, Window]:
        """Those with these numbers."""
        return self._taken(np.isin(self._numbers, list(numbers)))

    def between(self, low: int, high: int) -> dict[int, Window]:
        """Those from one number to another, both included."""
        return self._taken((self._numbers >= low) & (self._numbers <= high))

    def with_status(self, *status: str) -> dict[int, Window]:
        """Those that have come so far."""
        return self._taken(np.asarray(pc.is_in(self._rows["status"], pa.array(status))))

    def last(self) -> Window | None:
        """The one with the largest number."""
        largest = self._numbers.max() if len(self._numbers) else 0
        return next(iter(self._taken(self._numbers == largest).values()), None)

    @cached_property
    def inputs(self) -> set[Input]:
        """Every batch that was looked at."""
        found: set[Input] = set()
        for name in ("inputs", "too_late"):
            pairs = pc.list_flatten(self._rows[name]).combine_chunks()
            if len(pairs):
                found |= set(
                    zip(*(pairs.field(part).to_pylist() for part in ("stream", "batch")), strict=True)
                )
        return found

    def _taken(self, mask: np.ndarray) -> dict[int, Window]:
        if not mask.any():
            return {}
        return {row["window"]: Window.from_row(row) for row in self._rows.filter(pa.array(mask)).to_pylist()}


@dataclass(frozen=True)
class WindowsFound:
    """What a look found, by window."""

    known: KnownWindows
    came: Mapping[int, set[Input]] = field(default_factory=dict)
    """The batches with rows of it that it has not."""
    closed: Mapping[int, set[Input]] = field(default_factory=dict)
    """Of windows that are open or new and are closed now: all batches with rows of it."""
    again: Mapping[int, set[Input]] = field(default_factory=dict)
    """Of windows that were planned or worked out: what came for them, or for those that they look back at."""
    held_by: Mapping[str, int | None] = field(default_factory=dict)
    """By input stream that is behind the fastest one, how many windows would be closed if it had come as far; None: all
    of them wait, for it has sent nothing."""

    @property
    def finds_work(self) -> bool:
        return bool(self.closed or self.again or self.known.with_status(PLANNED))


def find_windows(tables: Tables, contracts: Contracts, contract: Workload) -> WindowsFound:
    """What its inputs have transmitted that it has not looked at, and what that makes of its windows."""
    refuse_always(contracts, contract)
    known, grid = KnownWindows(tables, contract), WindowGrid.of(contract)
    refuse_other_length(known, contract)
    open_ones = known.with_status(OPEN)
    # a lake of before windows were kept open is looked through once more
    seen = known.inputs if open_ones else set()
    sent = {stream: _sent(tables, stream) for stream in dict.fromkeys(contract.inputs)}
    if not all(sent.values()) and contract.window.waits_seconds is None:
        silent = {stream: None for stream, batches in sent.items() if not batches}
        return WindowsFound(known, held_by=silent if any(sent.values()) else {})
    new = {name: [batch for batch in found if (name, batch) not in seen] for name, found in sent.items()}
    came: dict[int, set[Input]] = {}
    for stream, batches in new.items():
        order = window_order(contracts, contract, stream)
        for batch, cell in _cells_of(tables, grid, stream, order, batches):
            for number in grid.windows_of(cell):
                came.setdefault(number, set()).add((stream, batch))
    touched = known.numbered(came)
    came = {n: more for n, found in came.items() if (more := found - _own(touched.get(n)))}
    waiting = {number: _own(window) for number, window in open_ones.items()}
    waiting |= {
        n: waiting.get(n, set()) | found for n, found in came.items() if n in waiting or n not in touched
    }
    ends = {
        stream: max((n for n, own in waiting.items() if _has(own, stream)), default=None) for stream in new
    }
    # the last window of a stream starts at the last cell with rows of the stream
    end = _end(ends.values(), contract)
    if end is None:
        return WindowsFound(known, came)
    wanted = set(contract.inputs) if contract.window.rows_of == "all" else set()
    ahead = grid.cells - 1
    closed = {n: own for n, own in waiting.items() if n + ahead < end and {name for name, _ in own} >= wanted}
    fastest = max(one for one in ends.values() if one is not None)
    held = {
        stream: sum(max(end, -math.inf if last is None else last) <= n + ahead < fastest for n in waiting)
        for stream, last in ends.items()
        if last is None or last < fastest
    }
    return WindowsFound(known, came, closed, _again(known, touched, came, windows_back(contract)), held)


def _end(ends: Collection[int | None], contract: Workload) -> int | None:
    """Return the first open cell: the cell of the slowest input, but at most the waiting time before that of the
    fastest."""
    sent = [one for one in ends if one is not None]
    if not sent:
        return None
    seconds = contract.window.waits_seconds
    if seconds is None:
        return min(sent) if len(sent) == len(ends) else None
    ahead = max(sent) - math.ceil(step_of(seconds) / contract.window.step)
    return max(ahead, min(sent)) if len(sent) == len(ends) else ahead


def _again(
    known: KnownWindows, touched: Mapping[int, Window], came: Mapping[int, set[Input]], back: int
) -> dict[int, set[Input]]:
    """What came for windows that were planned before: for themselves, and for those that they look back at."""
    found: dict[int, set[Input]] = {}
    for number, inputs in came.items():
        later = known.between(number + 1, number + back) if back else {}
        for window in [*(touched[n] for n in (number,) if n in touched), *later.values()]:
            more = inputs - set(window.inputs) - set(window.too_late)
            if window.status != OPEN and more:
                found.setdefault(window.window, set()).update(more)
    return found


def windows_back(contract: Workload) -> int:
    """How many windows before its own a window may need rows of."""
    (name, *_) = contract.lever_names
    return math.ceil(lever(name).looks_back_seconds(contract) / contract.window.seconds)


def looked_back_at(known: Mapping[int, set[Input]], number: int, back: int) -> set[Input]:
    """The batches with rows of the windows before one that it looks back at."""
    return {one for n in range(number - back, number) for one in known.get(n, ())}


def gone(tables: Tables, inputs: Iterable[Input]) -> set[Input]:
    """Which of these batches have no transmitted rows any more."""
    of: dict[str, set[int]] = {}
    for stream, batch in inputs:
        of.setdefault(stream, set()).add(batch)
    return {(s, batch) for s, batches in of.items() for batch in batches - _still_there(tables, s, batches)}


def _still_there(tables: Tables, stream: str, batches: set[int]) -> set[int]:
    found: set[int] = set()
    for file in tables.at("transmitted", stream).files(batch=sorted(batches)):
        low, high = file.low("batch"), file.high("batch")
        if low is not None and low == high:
            found |= {low} & batches
            continue
        for group in row_groups(file, ["batch"]):
            low, high = group.edges.get("batch", (None, None))
            if low is not None and low == high:
                found |= {low} & batches
            else:
                rows = rows_of_group(file, group.place, ["batch"])
                found |= set(rows["batch"].unique().to_pylist()) & batches
    return found


def refuse_other_length(known: KnownWindows, contract: Workload) -> None:
    """Windows of another length would stand beside those that are there, with the same rows."""
    last, grid = known.last(), WindowGrid.of(contract)
    if last is None:
        return
    edges = zip(grid.span(last.window), (last.from_time, last.to_time), strict=True)
    if all(abs(is_now - was) <= _ROUNDED for is_now, was in edges):
        return
    was = (last.to_time - last.from_time).total_seconds()
    field, value, now = "seconds", contract.window.seconds, was
    rule = "stay the length of the windows that were computed"
    if abs(was - contract.window.seconds) <= _ROUNDED.total_seconds():
        rule = "stay the step of the windows that were computed"
        field, value = "slide_seconds", contract.window.slide_seconds or contract.window.seconds
        now = micros_of(last.from_time) / last.window / 1e6 if last.window else was
    raise Refused(
        f"window.{field}",
        f"{rule}, {now:g}, because their results are stored already",
        value,
        f"write {now:g} again, or give the query or join a new name, which starts with no results",
        where=contract.subject,
    )


def refused_by_windows(tables: Tables, contracts: Contracts, contract: Workload) -> str | None:
    """Why no window of it can be looked for, whatever its inputs send; None: they can."""
    try:
        refuse_always(contracts, contract)
        refuse_other_length(KnownWindows(tables, contract), contract)
    except SpillwayError as problem:
        return str(problem)
    return None


def _own(window: Window | None) -> set[Input]:
    return set() if window is None else set(window.inputs) - set(window.looked_back)


def _has(inputs: Iterable[Input], stream: str) -> bool:
    return any(name == stream for name, _ in inputs)


def _sent(tables: Tables, stream: str) -> list[int]:
    """The batches that the stream has sent rows of."""
    where: dict[str, Any] = {"stream": stream, "status": [SENT, RETIRED], "rows": Between(1)}
    return sorted(tables.at("batches").rows(["batch"], **where)["batch"].to_pylist())


def _cells_of(
    tables: Tables, grid: WindowGrid, stream: str, order: str, batches: list[int]
) -> Iterator[tuple[int, int]]:
    """Return pairs of a batch and a cell in which it has rows, or had rows before a lever dropped all of them.

    A file is opened at most once.
    """
    if batches:
        for file in tables.at("transmitted", stream).files(batch=batches):
            yield from grid.of_batches(file, order, set(batches))
        yield from dropped_cells(tables, grid, stream, batches)

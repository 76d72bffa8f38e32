"""Count rows of an input that were produced in a window but cannot be read: dropped by a lever, or refused at intake.

Dropped rows are counted by event time, if the lever records it (`Lever.dropped_rows`). Otherwise:

- if all rows of a batch lie in one window, all dropped rows of the batch count there;
- else the weights of the kept rows give the dropped rows of each window. No weight represents rows of a region of which
  no row is kept: they are spread like the others, and only a range is known.

Refused rows have no reliable event time. They count in the windows of their batch, in proportion to the accepted rows.
If no row of a batch was accepted, its rows count in the windows from the previous batch to the next. Refused rows that
a replay has read belong to a later batch and do not count twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.ledger import TOTAL
from spillway.levers.dropped_rows import DroppedRows
from spillway.levers.windows import InputLoss, ReadColumns, Window
from spillway.pipeline.window_grid import WindowGrid, window_order
from spillway.registry import LEVERS, lever
from spillway.store.files import row_groups, rows_of_group
from spillway.store.filters import matching
from spillway.store.tables import Tables

INTAKE = "intake"
NEIGHBOURS = 8
"""How many batches before and after those of a window are searched for rows that were all dropped or refused."""
_DELIVERED_BEFORE = "delivered before"


@dataclass(frozen=True)
class Losses:
    """Lost rows of an input by cell of the time axis, and dropped rows that are recovered."""

    lost: Mapping[int, InputLoss] = field(default_factory=dict)
    aside: Mapping[tuple[int, int], InputLoss] = field(default_factory=dict)
    """By batch and cell, dropped rows that are stored at the source: they are recovered if the batch is read in that
    cell."""

    def of_window(self, cells: Iterable[int], batches: Iterable[int]) -> tuple[InputLoss, dict[int, int]]:
        """Return the lost rows of a window's cells, and the recovered rows of each batch that is read there."""
        read, found = set(batches), InputLoss()
        given_back: dict[int, int] = {}
        for cell in cells:
            found += self.lost.get(cell, InputLoss())
            for batch in self._aside_of.get(cell, ()):
                loss = self.aside[batch, cell]
                least, most = loss.dropped_least, loss.dropped_most
                if batch in read:
                    given_back[batch] = given_back.get(batch, 0) + least
                    # if a cell splits a count, the number of recovered rows is not known
                    found += InputLoss(dropped_most=most - least, given_back=least)
                else:
                    # no row of the batch was sent for this window, so the batch is not read
                    found += replace(loss, unsampled=loss.dropped, unsampled_least=least, unsampled_most=most)
        return found, given_back

    @cached_property
    def _aside_of(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for batch, cell in self.aside:
            found.setdefault(cell, []).append(batch)
        return found


def input_losses(
    tables: Tables,
    subject: str,
    grid: WindowGrid,
    stream: str,
    order: str,
    cells: Sequence[int],
    tuples: Mapping[int, Mapping[int, int]],
) -> Losses:
    """Return the lost rows of a stream; `tuples`: the rows that arrived, by batch and cell."""
    if not tuples:
        return Losses()
    near = range(max(1, min(tuples) - NEIGHBOURS), max(tuples) + NEIGHBOURS + 1)
    found: dict[int, InputLoss] = {}
    aside: dict[tuple[int, int], InputLoss] = {}
    for batch, dropped in _dropped(tables, stream, near).items():
        here = tuples.get(batch, {})
        ranges = _ranges(dropped, grid, cells, here)
        if dropped.kept_aside:
            aside |= {(batch, cell): loss for cell, loss in ranges.items()}
            continue
        if any(one.dropped_least < one.dropped_most for one in ranges.values()) and here:
            weights = _weights(tables, grid, stream, order, batch) or here
            ranges = _weighted(ranges, dropped, weights, here)
        for cell, loss in ranges.items():
            found[cell] = found.get(cell, InputLoss()) + loss
    refused = _refused(tables, stream, near)
    edges = _edges(tables, subject, stream, grid) if set(refused) - set(tuples) else {}
    for batch, count in refused.items():
        for cell, rows in _spread(batch, count, tuples, edges):
            found[cell] = found.get(cell, InputLoss()) + InputLoss(refused=rows)
    return Losses(found, aside)


def dropped_cells(
    tables: Tables, grid: WindowGrid, stream: str, batches: Sequence[int]
) -> Iterable[tuple[int, int]]:
    """Return every batch with a cell in which a lever dropped some of its rows, as far as their times are recorded."""
    for batch, dropped in _dropped(tables, stream, batches).items():
        for span in dropped.spans or ():
            cell = grid.at(span.from_time)
            if span.kept < span.offered and span.to_time <= grid.cell(cell)[1]:
                yield batch, cell


def _ranges(
    dropped: DroppedRows, grid: WindowGrid, cells: Sequence[int], here: Mapping[int, int]
) -> dict[int, InputLoss]:
    """Return the range of the dropped rows of a batch, by cell; its middle is the first estimate."""
    if dropped.spans is not None:
        found = {cell: dropped.within(*grid.cell(cell)) for cell in cells}
    else:
        every, never = dropped.dropped, dropped.unsampled
        alone = len(here) == 1
        found = dict.fromkeys(here, (every * alone, every, never * alone, never))
    return {
        cell: InputLoss(
            (least + most) / 2, least, most,
            (never_least + never_most) / 2, never_least, never_most, dropped.largest_weight,
            least_kept=dropped.least_kept,
        )
        for cell, (least, most, never_least, never_most) in found.items()
        if most
    }  # fmt: skip


def _weighted(
    ranges: Mapping[int, InputLoss],
    dropped: DroppedRows,
    weights: Mapping[int, float],
    here: Mapping[int, int],
) -> dict[int, InputLoss]:
    """Replace the first estimates by those from row weights, limited to the ranges."""
    found = {}
    total = sum(weights.values())
    for cell, one in ranges.items():
        weight = weights.get(cell, 0.0)
        never = _within(dropped.unsampled * weight / total, one.unsampled_least, one.unsampled_most)
        likely = weight - here.get(cell, 0) + never
        found[cell] = replace(
            one, unsampled=never, dropped=_within(likely, one.dropped_least, one.dropped_most)
        )
    return found


def _within(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)


def _dropped(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, DroppedRows]:
    """Return the rows of each batch that levers dropped for good; from the ledger, if a lever records no more."""
    found: dict[int, DroppedRows] = {}
    for name in LEVERS:
        one = lever(name)
        if getattr(one, "sheds_rows", False):
            found |= one.dropped_rows(tables, stream, batches)
    rows = tables.at("ledger").rows(
        ["batch", "ordinal", "offered", "lost"],
        scope="stream",
        subject=stream,
        batch=list(batches),
        unit="rows",
        dimension_kind=TOTAL,
    )
    for row in rows.to_pylist():
        if row["ordinal"] > 0 and row["lost"] and row["batch"] not in found:
            lost = row["lost"]
            found[row["batch"]] = DroppedRows(row["offered"], row["offered"] - lost, lost)
    return {batch: one for batch, one in found.items() if one.dropped}


def _weights(tables: Tables, grid: WindowGrid, stream: str, order: str, batch: int) -> dict[int, float]:
    """Return the sum of row weights of a batch by cell; empty if rows have no weight."""
    found: dict[int, float] = {}
    table = tables.at("transmitted", stream)
    if "weight" not in table.schema.names:
        return found
    for file in table.files(batch=batch):
        for group in row_groups(file, ["batch"]):
            low, high = group.edges.get("batch", (None, None))
            if low is not None and not low <= batch <= high:
                continue
            rows = rows_of_group(file, group.place, ["batch", order, "weight"])
            rows = rows.filter(matching(rows, {"batch": batch}))
            rows = rows.filter(rows[order].is_valid())
            if "weight" not in rows.column_names:
                return {}
            numbers = grid.numbers(rows[order])
            weights = np.asarray(rows["weight"].fill_null(1.0))
            for cell in np.unique(numbers).tolist():
                found[cell] = found.get(cell, 0.0) + float(weights[numbers == cell].sum())
    return found


def _refused(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, int]:
    """Return the rows of each batch that were refused at intake and not replayed."""
    rows = tables.at("ledger").rows(
        ["batch", "rejected"],
        scope="stream",
        subject=stream,
        batch=list(batches),
        unit="rows",
        dimension_kind=TOTAL,
        stage=[INTAKE],
    )
    found = {row["batch"]: row["rejected"] for row in rows.to_pylist() if row["rejected"]}
    if not found:
        return {}
    read_again = tables.at("rejected").rows(
        ["batch", "seq", "file", "reason", "replayed_by"], stream=stream, batch=list(found)
    )
    read_again = read_again.filter(pc.is_valid(read_again["replayed_by"]))
    for row in read_again.to_pylist():
        if row["reason"] == _DELIVERED_BEFORE:
            continue
        count = 1 if row["seq"] is not None else _records(tables, stream, row["batch"], row["file"])
        found[row["batch"]] = max(0, found[row["batch"]] - count)
    return {batch: count for batch, count in found.items() if count}


def _records(tables: Tables, stream: str, batch: int, file: str) -> int:
    """Return the number of records of a file that was refused whole."""
    rows = tables.at("batches").rows(["files"], stream=stream, batch=batch).to_pylist()
    return sum(one["records"] or 0 for row in rows for one in row["files"] if one["name"] == file)


def _edges(tables: Tables, subject: str, stream: str, grid: WindowGrid) -> dict[int, tuple[int, int]]:
    """Return the first and the last cell of every batch with rows in a window."""
    found: dict[int, tuple[int, int]] = {}
    for row in tables.at("windows").rows(["window", "inputs"], subject=subject).to_pylist():
        for one in row["inputs"] or ():
            if one["stream"] == stream:
                first, last = row["window"] + grid.cells - 1, row["window"]
                low, high = found.get(one["batch"], (first, last))
                found[one["batch"]] = min(low, first), max(high, last)
    return found


def _spread(
    batch: int,
    refused: int,
    tuples: Mapping[int, Mapping[int, int]],
    edges: Mapping[int, tuple[int, int]],
) -> Iterable[tuple[int, float]]:
    """Return the cells in which refused rows of a batch count, with the number of rows."""
    mine = tuples.get(batch)
    if mine:
        total = sum(mine.values())
        return [(cell, refused * rows / total) for cell, rows in mine.items()]
    before = max((n for n in edges if n < batch), default=None)
    after = min((n for n in edges if n > batch), default=None)
    ends = [edges[before][1]] if before is not None else []
    ends += [edges[after][0]] if after is not None else []
    if not ends:
        return []
    cells = range(min(ends), max(ends) + 1)
    return [(cell, refused / len(cells)) for cell in cells]


def held_losses(
    tables: Tables,
    contracts: Contracts,
    contract: Workload,
    windows: Sequence[Window],
    inputs: Mapping[int, Mapping[str, ReadColumns]],
    back_seconds: float,
) -> dict[int, dict[str, InputLoss]]:
    """Return the lost rows by window and input stream.

    Rows lost in the windows that a window looks back at are included.

    """
    grid = WindowGrid.of(contract)
    back = -(-round(back_seconds * 1e6) // grid.step)
    numbers = sorted({one.window - behind for one in windows for behind in range(back + 1)})
    found: dict[int, dict[str, InputLoss]] = {number: {} for number in numbers}
    for stream in dict.fromkeys(contract.inputs):
        order = window_order(contracts, contract, stream)
        here: dict[int, dict[int, int]] = {
            batch: {} for one in windows for name, batch in one.inputs if name == stream
        }
        for window in windows:
            rows = inputs[window.window][stream](["batch", order])
            rows = rows.filter(rows[order].is_valid())
            of, batches = grid.numbers(rows[order]), np.asarray(rows["batch"])
            for batch in np.unique(batches).tolist():
                mine, counts = np.unique(of[batches == batch], return_counts=True)
                here.setdefault(batch, {}).update(zip(mine.tolist(), counts.tolist(), strict=True))
        lost = input_losses(tables, contract.subject, grid, stream, order, numbers, here).lost
        for number, loss in lost.items():
            found[number][stream] = loss
    return found

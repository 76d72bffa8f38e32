"""Rows of an input that were produced for a window and cannot be read in it: dropped by a lever, or refused at intake.

What a lever dropped is counted by event time where the lever records that (`Lever.dropped_rows`). Otherwise:

- if all rows of a batch lie in one window, all rows that were dropped count there;
- else the row weights of the kept rows say how many dropped rows each window had. Rows of regions of which no row is
  kept have no weight to stand for them: they are spread as the others, and only a range is known.

Refused rows have no event time that can be trusted. They count in the windows of their batch, in proportion to the rows
taken in. A batch of which no row was taken in counts in the windows from the batch before it to the batch after it.
Rows that a replay has read again since are rows of a later batch and do not count twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc

from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.ledger import TOTAL
from spillway.levers.dropped import DroppedRows
from spillway.levers.windows import InputLoss, ReadColumns, Window
from spillway.pipeline.window_grid import WindowGrid, window_order
from spillway.registry import LEVERS, lever
from spillway.store.files import row_groups, rows_of_group
from spillway.store.filters import matching
from spillway.store.tables import Tables

INTAKE = "intake"
NEIGHBOURS = 8
"""Batches before and after those of a window that may hold rows of the window, all of them dropped or refused."""
_DELIVERED_BEFORE = "delivered before"


@dataclass(frozen=True)
class Losses:
    """What was lost of an input by window, and what is given back although it was dropped."""

    lost: Mapping[int, InputLoss] = field(default_factory=dict)
    given_back: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By batch and window, rows that were kept aside and are read with the others: at least so many."""


def input_losses(
    tables: Tables,
    subject: str,
    grid: WindowGrid,
    stream: str,
    order: str,
    windows: Sequence[int],
    tuples: Mapping[int, Mapping[int, int]],
) -> Losses:
    """Return what was lost of a stream; `tuples`: by batch and window, the rows that are here."""
    if not tuples:
        return Losses()
    near = range(max(1, min(tuples) - NEIGHBOURS), max(tuples) + NEIGHBOURS + 1)
    found: dict[int, InputLoss] = {}
    given_back: dict[tuple[int, int], int] = {}

    def add(window: int, loss: InputLoss) -> None:
        found[window] = found.get(window, InputLoss()) + loss

    wanted = set(windows)
    for batch, dropped in _dropped(tables, stream, near).items():
        here = tuples.get(batch, {})
        ranges = _ranges(dropped, grid, windows, here)
        if any(one.dropped_least < one.dropped_most for one in ranges.values()) and here:
            weights = _weights(tables, grid, stream, order, batch) or here
            ranges = _weighted(ranges, dropped, weights, here)
        for window, loss in ranges.items():
            if not dropped.kept_aside:
                add(window, loss)
            elif window in here:
                given_back[batch, window] = loss.dropped_least
                # of a window that cuts a count it is not known how many are given back
                unknown = loss.dropped_most - loss.dropped_least
                add(window, InputLoss(dropped_most=unknown, given_back=loss.dropped_least))
            else:
                # no row of the batch was sent for this window, so that the batch is not read for it
                add(window, replace(loss, unsampled=loss.dropped, unsampled_least=loss.dropped_least,
                                    unsampled_most=loss.dropped_most))  # fmt: skip
    refused = _refused(tables, stream, near)
    edges = _edges(tables, subject, stream) if set(refused) - set(tuples) else {}
    for batch, count in refused.items():
        for window, rows in _spread(batch, count, tuples, edges):
            add(window, InputLoss(refused=rows))
    return Losses({window: loss for window, loss in found.items() if window in wanted}, given_back)


def _ranges(
    dropped: DroppedRows, grid: WindowGrid, windows: Sequence[int], here: Mapping[int, int]
) -> dict[int, InputLoss]:
    """Return between which counts the dropped rows of a batch lie, by window; the middle is the first guess."""
    if dropped.spans is not None:
        found = {window: dropped.within(*grid.span(window)) for window in windows}
    else:
        every, never = dropped.dropped, dropped.unsampled
        alone = len(here) == 1
        found = dict.fromkeys(here, (every * alone, every, never * alone, never))
    return {
        window: InputLoss(
            (least + most) / 2, least, most,
            (never_least + never_most) / 2, never_least, never_most, dropped.largest_weight,
            least_kept=dropped.least_kept,
        )
        for window, (least, most, never_least, never_most) in found.items()
        if most
    }  # fmt: skip


def _weighted(
    ranges: Mapping[int, InputLoss],
    dropped: DroppedRows,
    weights: Mapping[int, float],
    here: Mapping[int, int],
) -> dict[int, InputLoss]:
    """Replace the first guesses by what row weights say, within the ranges."""
    found = {}
    total = sum(weights.values())
    for window, one in ranges.items():
        weight = weights.get(window, 0.0)
        never = _within(dropped.unsampled * weight / total, one.unsampled_least, one.unsampled_most)
        likely = weight - here.get(window, 0) + never
        found[window] = replace(
            one, unsampled=never, dropped=_within(likely, one.dropped_least, one.dropped_most)
        )
    return found


def _within(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)


def _dropped(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, DroppedRows]:
    """Return, by batch, what levers dropped for good; a lever that does not say more is known by the ledger."""
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
    """Return the sum of row weights of a batch by window; nothing where rows have no weight."""
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
            for window in np.unique(numbers).tolist():
                found[window] = found.get(window, 0.0) + float(weights[numbers == window].sum())
    return found


def _refused(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, int]:
    """Return, by batch, the rows that were refused at intake and have not been read again since."""
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
    """Return how many records a file had that was refused whole."""
    rows = tables.at("batches").rows(["files"], stream=stream, batch=batch).to_pylist()
    return sum(one["records"] or 0 for row in rows for one in row["files"] if one["name"] == file)


def _edges(tables: Tables, subject: str, stream: str) -> dict[int, tuple[int, int]]:
    """Return the first and the last window of every batch with rows in a window of a query or join."""
    found: dict[int, tuple[int, int]] = {}
    for row in tables.at("windows").rows(["window", "inputs"], subject=subject).to_pylist():
        for one in row["inputs"] or ():
            if one["stream"] == stream:
                low, high = found.get(one["batch"], (row["window"], row["window"]))
                found[one["batch"]] = min(low, row["window"]), max(high, row["window"])
    return found


def _spread(
    batch: int,
    refused: int,
    tuples: Mapping[int, Mapping[int, int]],
    edges: Mapping[int, tuple[int, int]],
) -> Iterable[tuple[int, float]]:
    """Return the windows that refused rows of a batch count in, and how many in each."""
    mine = tuples.get(batch)
    if mine:
        total = sum(mine.values())
        return [(window, refused * rows / total) for window, rows in mine.items()]
    before = max((n for n in edges if n < batch), default=None)
    after = min((n for n in edges if n > batch), default=None)
    ends = [edges[before][1]] if before is not None else []
    ends += [edges[after][0]] if after is not None else []
    if not ends:
        return []
    windows = range(min(ends), max(ends) + 1)
    return [(window, refused / len(windows)) for window in windows]


def held_losses(
    tables: Tables,
    contracts: Contracts,
    contract: Workload,
    windows: Sequence[Window],
    inputs: Mapping[int, Mapping[str, ReadColumns]],
    back_seconds: float,
) -> dict[int, dict[str, InputLoss]]:
    """Return by window and input stream what was lost, for windows whose rows were read: those of the windows that they
    look back at are among them.
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

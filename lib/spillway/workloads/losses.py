"""Find the data of an input that a window can read (portions), and count the produced rows that it cannot read.

Lost rows: rows that were produced in a window, but were dropped by a lever or refused at intake. Dropped rows are
counted by event time, if the lever records it (`Lever.dropped_rows`). Otherwise:

- if all rows of a batch lie in one window, all dropped rows of the batch count there;
- else the weights of the kept rows give the dropped rows of each window. If no row of a region is kept, no weight
  represents its rows: they are spread in the same proportion, and only a range of their number is known.

Refused rows have no reliable event time. They count in the windows of their batch, in proportion to the accepted rows.
If no row of a batch was accepted, its rows count in the windows from the previous batch to the next. Refused rows that
a replay has read belong to a later batch and do not count twice.

Portions: a portion is the smallest unit of an input that can be skipped.

- If all rows of a file are of one batch and one window, the file is a portion. If it is skipped, it is not opened.
- Otherwise each row group is a portion, by the statistics in the footer of the file. This holds also after compaction,
  because `store.maintenance` keeps row groups as they are.
- A row group is divided if it holds more tuples than a portion may, or rows of several windows or batches. To divide
  it, only the column of its times is read. If one of its portions is kept, all its rows are read.

The portions of a batch follow each other in `seq` without gaps, so each row that an earlier lever keeps at the source
belongs to one of them.

`input_losses` counts the lost rows. `window_offers` returns them with the portions of each window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.errors import InvalidValue
from spillway.ledger import TOTAL
from spillway.levers.dropped_rows import DroppedRows
from spillway.levers.windows import InputLoss, Portion, ReadColumns, Window
from spillway.registry import LEVERS, lever
from spillway.store.files import DataFile, RowGroup, row_groups, rows_of_group
from spillway.store.filters import match_mask
from spillway.store.tables import Tables
from spillway.workloads.grid import WindowGrid, window_order

INTAKE = "intake"
NEIGHBOURS = 8
"""How many batches before and after those of a window are searched for rows that were all dropped or refused."""
_DELIVERED_BEFORE = "delivered before"


@dataclass(frozen=True)
class Losses:
    """Lost rows of an input by cell of the time axis, and dropped rows that are recovered."""

    lost: Mapping[int, InputLoss] = field(default_factory=dict)
    aside: Mapping[tuple[int, int], InputLoss] = field(default_factory=dict)
    """By batch and cell, dropped rows that are stored at the source.

    They are recovered if the batch is read in that cell.
    """

    def of_window(self, cells: Iterable[int], batches: Iterable[int]) -> tuple[InputLoss, dict[int, int]]:
        """Return the lost rows of a window's cells, and the recovered rows of each batch that is read there."""
        read, found = set(batches), InputLoss()
        given_back: dict[int, int] = {}
        for cell in cells:
            found += self.lost.get(cell, InputLoss())
            for batch in self._batches_by_cell.get(cell, ()):
                loss = self.aside[batch, cell]
                least, most = loss.dropped_least, loss.dropped_most
                if batch in read:
                    given_back[batch] = given_back.get(batch, 0) + least
                    # if a cell splits a count, the number of recovered rows is not known
                    found += InputLoss(dropped_most=most - least, recovered_rows=least)
                else:
                    # no row of the batch was sent for this window, so the batch is not read
                    found += replace(loss, unsampled=loss.dropped, unsampled_least=least, unsampled_most=most)
        return found, given_back

    @cached_property
    def _batches_by_cell(self) -> dict[int, list[int]]:
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
    for batch, dropped in _dropped_rows(tables, stream, near).items():
        here = tuples.get(batch, {})
        ranges = _dropped_ranges(dropped, grid, cells, here)
        if dropped.kept_aside:
            aside |= {(batch, cell): loss for cell, loss in ranges.items()}
            continue
        if any(one.dropped_least < one.dropped_most for one in ranges.values()) and here:
            weights = _weights(tables, grid, stream, order, batch) or here
            ranges = _estimate_by_weights(ranges, dropped, weights, here)
        for cell, loss in ranges.items():
            found[cell] = found.get(cell, InputLoss()) + loss
    refused = _refused_rows(tables, stream, near)
    edges = _cell_ranges(tables, subject, stream, grid) if set(refused) - set(tuples) else {}
    for batch, count in refused.items():
        for cell, rows in _spread_refused(batch, count, tuples, edges):
            found[cell] = found.get(cell, InputLoss()) + InputLoss(refused=rows)
    return Losses(found, aside)


def dropped_cells(
    tables: Tables, grid: WindowGrid, stream: str, batches: Sequence[int]
) -> Iterable[tuple[int, int]]:
    """Return every batch with a cell in which a lever dropped some of its rows, as far as their times are recorded."""
    for batch, dropped in _dropped_rows(tables, stream, batches).items():
        for span in dropped.spans or ():
            cell = grid.at(span.from_time)
            if span.kept < span.offered and span.to_time <= grid.cell(cell)[1]:
                yield batch, cell


def _dropped_ranges(
    dropped: DroppedRows, grid: WindowGrid, cells: Sequence[int], here: Mapping[int, int]
) -> dict[int, InputLoss]:
    """Return the range of the dropped rows of a batch, by cell; its middle is the first estimate."""
    if dropped.spans is not None:
        found = {cell: dropped.count_range(*grid.cell(cell)) for cell in cells}
    else:
        every, never = dropped.dropped_count, dropped.unsampled
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


def _estimate_by_weights(
    ranges: Mapping[int, InputLoss],
    dropped: DroppedRows,
    weights: Mapping[int, float],
    here: Mapping[int, int],
) -> dict[int, InputLoss]:
    """Return the ranges with estimates from row weights, each limited to its range."""
    found = {}
    total = sum(weights.values())
    for cell, one in ranges.items():
        weight = weights.get(cell, 0.0)
        never = _clamp(dropped.unsampled * weight / total, one.unsampled_least, one.unsampled_most)
        likely = weight - here.get(cell, 0) + never
        found[cell] = replace(
            one, unsampled=never, dropped=_clamp(likely, one.dropped_least, one.dropped_most)
        )
    return found


def _clamp(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)


def _dropped_rows(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, DroppedRows]:
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
    return {batch: one for batch, one in found.items() if one.dropped_count}


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
            rows = rows.filter(match_mask(rows, {"batch": batch}))
            rows = rows.filter(rows[order].is_valid())
            if "weight" not in rows.column_names:
                return {}
            numbers = grid.cells_of_times(rows[order])
            weights = np.asarray(rows["weight"].fill_null(1.0))
            for cell in np.unique(numbers).tolist():
                found[cell] = found.get(cell, 0.0) + float(weights[numbers == cell].sum())
    return found


def _refused_rows(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, int]:
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
        count = 1 if row["seq"] is not None else _file_records(tables, stream, row["batch"], row["file"])
        found[row["batch"]] = max(0, found[row["batch"]] - count)
    return {batch: count for batch, count in found.items() if count}


def _file_records(tables: Tables, stream: str, batch: int, file: str) -> int:
    """Return the number of records of a file that was refused whole."""
    rows = tables.at("batches").rows(["files"], stream=stream, batch=batch).to_pylist()
    return sum(one["records"] or 0 for row in rows for one in row["files"] if one["name"] == file)


def _cell_ranges(tables: Tables, subject: str, stream: str, grid: WindowGrid) -> dict[int, tuple[int, int]]:
    """Return the first and the last cell of every batch with rows in a window."""
    found: dict[int, tuple[int, int]] = {}
    for row in tables.at("windows").rows(["window", "inputs"], subject=subject).to_pylist():
        for one in row["inputs"] or ():
            if one["stream"] == stream:
                first, last = row["window"] + grid.cells - 1, row["window"]
                low, high = found.get(one["batch"], (first, last))
                found[one["batch"]] = min(low, first), max(high, last)
    return found


def _spread_refused(
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


def window_losses(
    tables: Tables,
    contracts: Contracts,
    contract: Workload,
    windows: Sequence[Window],
    inputs: Mapping[int, Mapping[str, ReadColumns]],
    back_seconds: float,
) -> dict[int, dict[str, InputLoss]]:
    """Return the lost rows by window and input stream, including those of windows that a window looks back at."""
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
            of, batches = grid.cells_of_times(rows[order]), np.asarray(rows["batch"])
            for batch in np.unique(batches).tolist():
                mine, counts = np.unique(of[batches == batch], return_counts=True)
                here.setdefault(batch, {}).update(zip(mine.tolist(), counts.tolist(), strict=True))
        lost = input_losses(tables, contract.subject, grid, stream, order, numbers, here).lost
        for number, loss in lost.items():
            found[number][stream] = loss
    return found


_DAY = 86_400_000_000
_LAST_SEQ = 2**62


@dataclass(frozen=True)
class WindowOffers:
    """The portions of each window, and the produced rows of each input stream that are in no portion."""

    portions: Mapping[int, tuple[Portion, ...]]
    losses: Mapping[int, Mapping[str, InputLoss]]


def window_offers(
    tables: Tables, contracts: Contracts, contract: Workload, windows: Sequence[Window], most: int | None
) -> WindowOffers:
    """Return the portions of windows, and the produced rows that are in no portion."""
    found: dict[int, list[Portion]] = {window.window: [] for window in windows}
    losses: dict[int, dict[str, InputLoss]] = {window.window: {} for window in windows}
    grid = WindowGrid.of(contract)
    for stream in dict.fromkeys(contract.inputs):
        order = window_order(contracts, contract, stream)
        if contracts.stream(stream).attribute(order).type == "date" and grid.step % _DAY:
            raise InvalidValue(
                "window.seconds",
                f"be whole days, as rows of {stream} have a date and no time",
                contract.window.seconds,
                "write a multiple of 86400",
                where=contract.subject,
            )
        batches = sorted({batch for window in windows for name, batch in window.inputs if name == stream})
        alone = [one for one in (most, contracts.stream(stream).row_group_tuples) if one is not None]
        opened: dict[str, _InputFile] = {}
        by_batch: dict[int, dict[int, list[Portion]]] = {}
        for batch in batches:
            of_batch = by_batch.setdefault(batch, {})
            for file in tables.at("transmitted", stream).files(batch=batch):
                of = opened.setdefault(file.path, _InputFile(stream, order, file, min(alone, default=None)))
                for cell, portion in _portions_of_file(grid, of, batch, most):
                    of_batch.setdefault(cell, []).append(portion)
        tuples = {
            batch: {cell: sum(one.tuples for one in some) for cell, some in of_batch.items()}
            for batch, of_batch in by_batch.items()
        }
        cells = sorted({cell for window in windows for cell in grid.cells_of(window.window)})
        lost = input_losses(tables, contract.subject, grid, stream, order, cells, tuples)
        for window in windows:
            number = window.window
            some = {
                batch: _close_gaps(
                    [one for cell in grid.cells_of(number) for one in by_batch[batch].get(cell, ())]
                )
                for name, batch in window.inputs
                if name == stream
            }
            read = [batch for batch, portions in some.items() if portions]
            loss, given_back = lost.of_window(grid.cells_of(number), read)
            mine = [
                one
                for batch, portions in some.items()
                for one in (_with_recovered(portions, given_back[batch]) if batch in given_back else portions)
            ]
            losses[number][stream] = loss
            found[number] += _with_produced(mine, loss)
    return WindowOffers({number: tuple(some) for number, some in found.items()}, losses)


def _with_recovered(portions: Sequence[Portion], rows: int) -> list[Portion]:
    """Add a window's rows that are recovered from the source to the portions of a batch, in proportion to size.

    These rows may lie before the first row that was sent, or after the last.
    """
    if not portions:
        return []
    here = sum(one.tuples for one in portions)
    ends = [sum(one.tuples for one in portions[: at + 1]) * rows // here for at in range(len(portions))]
    found = [
        replace(one, tuples=one.tuples + end - before)
        for one, end, before in zip(portions, ends, [0, *ends], strict=False)
    ]
    found[0] = replace(found[0], from_seq=0)
    found[-1] = replace(found[-1], to_seq=_LAST_SEQ)
    return found


def _with_produced(portions: Sequence[Portion], loss: InputLoss) -> Iterator[Portion]:
    """Spread the rows of a window that cannot be read over its portions, in proportion to their size."""
    tuples = sum(one.tuples for one in portions)
    each = (tuples + loss.lost_rows) / tuples if tuples else 1.0
    for one in portions:
        yield replace(one, produced=one.tuples * each)


def _portions_of_file(
    grid: WindowGrid, of: _InputFile, batch: int, most: int | None
) -> Iterator[tuple[int, Portion]]:
    """Yield the portions of a batch in a file, each with its window."""
    file, stream = of.file, of.stream
    inside = grid.only_cell_of_file(file, of.order)
    one_batch = file.low("batch") == file.high("batch") and file.low("seq") is not None
    if one_batch and inside is not None and (of.whole_rows is None or file.records <= of.whole_rows):
        first, last = file.low("seq"), file.high("seq")
        made = Portion(stream, batch, first, last, file.records, file.size, float(file.records))
        yield inside, made
        return
    for group in of.groups:
        low, high = group.edges.get("batch", (None, None))
        if low is not None and not low <= batch <= high:
            continue
        each = group.size / max(1, group.records)
        alone, pieces = (
            _only_window(grid, of, group, batch),
            1 if most is None else -(-group.records // most),
        )
        if alone is not None and pieces <= 1:
            first, last = group.edges["seq"]
            yield (
                alone,
                Portion(stream, batch, first, last, group.records, group.size, float(group.records)),
            )
            continue
        for window, seq in _seq_by_window(grid, of, group, batch, alone):
            pieces = 1 if most is None else -(-len(seq) // most)
            for some in np.array_split(seq, pieces):
                tuples, first, last = len(some), int(some[0]), int(some[-1])
                yield (
                    window,
                    Portion(stream, batch, first, last, tuples, round(tuples * each), float(tuples)),
                )


@dataclass(frozen=True)
class _InputFile:
    """A file of a stream; its footer is read on demand."""

    stream: str
    order: str
    file: DataFile
    whole_rows: int | None
    """The largest number of rows with which the file is one row group and one portion; None: no limit.

    The footer of such a file is not read.
    """

    @cached_property
    def groups(self) -> list[RowGroup]:
        return row_groups(self.file, ["batch", "seq", self.order])


def _only_window(grid: WindowGrid, of: _InputFile, group: RowGroup, batch: int) -> int | None:
    """Return the only window of a row group with rows of only this batch, by the footer; None: it must be read."""
    has_only_batch = group.edges.get("batch") == (batch, batch) and "seq" in group.edges
    return grid.only_cell_of_group(group, of.order) if has_only_batch else None


def _seq_by_window(
    grid: WindowGrid, of: _InputFile, group: RowGroup, batch: int, alone: int | None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the `seq` of a batch's rows in a row group by window; rows are read only if the footer does not suffice."""
    first, last = group.edges.get("seq", (0, -1))
    if alone is not None and last - first + 1 == group.records:
        yield alone, np.arange(first, last + 1)
        return
    rows = rows_of_group(of.file, group.place, ["batch", "seq", of.order])
    rows = rows.filter(match_mask(rows, {"batch": batch}))
    rows = rows.filter(rows[of.order].is_valid())
    number, seq = grid.cells_of_times(rows[of.order]), np.asarray(rows["seq"])
    for window in np.unique(number):
        yield int(window), np.sort(seq[number == window])


def _close_gaps(portions: list[Portion]) -> list[Portion]:
    """Return a batch's portions in a window, extended so that no gap is between them, and with overlaps merged."""
    found: list[Portion] = []
    for one in sorted(portions, key=lambda one: (one.from_seq, one.to_seq)):
        if found and one.to_seq <= found[-1].to_seq:
            # in the order of arrival, rows of several cells may alternate
            last = found[-1]
            found[-1] = replace(
                last,
                tuples=last.tuples + one.tuples,
                size=last.size + one.size,
                produced=last.produced + one.produced,
            )
        else:
            found.append(replace(one, from_seq=found[-1].to_seq + 1) if found else one)
    return found

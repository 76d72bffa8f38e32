"""What the inputs of a window come in: portions, known by what tables say of their files.

A portion is what can be left unread by itself: a file of one batch that lies in one window, which is not even opened;
else a row group, of which the footer tells. So what is shed is not read, also where files were put together
(`store.upkeep` leaves row groups as they are). A row group is cut where it holds more tuples than a portion may, and
where it lies in several windows or batches: then its times are read, and no other column, and what is shed of it is
read with what is kept. The portions of a batch touch one another in `seq`, so that rows which an earlier lever laid
aside belong to one of them.

`window_losses` counts the rows that were produced in a window but dropped by an earlier lever, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.errors import Refused
from spillway.levers.windows import InputLoss, Portion, Window
from spillway.pipeline.window_grid import WindowGrid, window_order
from spillway.pipeline.window_losses import input_losses
from spillway.store.files import DataFile, RowGroup, row_groups, rows_of_group
from spillway.store.filters import matching
from spillway.store.tables import Tables

_DAY = 86_400_000_000
_LAST_SEQ = 2**62


@dataclass(frozen=True)
class WindowOffers:
    """The portions of each window, and the produced rows of each input stream that are in no portion."""

    portions: Mapping[int, tuple[Portion, ...]]
    losses: Mapping[int, Mapping[str, InputLoss]]


def window_portions(
    tables: Tables, contracts: Contracts, contract: Workload, windows: Sequence[Window], most: int | None
) -> dict[int, tuple[Portion, ...]]:
    """By window, its portions, of at most so many tuples each; in the order of streams, batches and `seq`."""
    return dict(window_offers(tables, contracts, contract, windows, most).portions)


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
            raise Refused(
                "window.seconds",
                f"be whole days, as rows of {stream} have a date and no time",
                contract.window.seconds,
                "write a multiple of 86400",
                where=contract.subject,
            )
        batches = sorted({batch for window in windows for name, batch in window.inputs if name == stream})
        alone = [one for one in (most, contracts.stream(stream).row_group_tuples) if one is not None]
        opened: dict[str, _InFile] = {}
        by_batch: dict[int, dict[int, list[Portion]]] = {}
        for batch in batches:
            of_batch = by_batch.setdefault(batch, {})
            for file in tables.at("transmitted", stream).files(batch=batch):
                of = opened.setdefault(file.path, _InFile(stream, order, file, min(alone, default=None)))
                for cell, portion in _of_file(grid, of, batch, most):
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
                batch: _touching(
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
                for one in (
                    _with_given_back(portions, given_back[batch]) if batch in given_back else portions
                )
            ]
            losses[number][stream] = loss
            found[number] += _with_produced(mine, loss)
    return WindowOffers({number: tuple(some) for number, some in found.items()}, losses)


def _with_given_back(portions: Sequence[Portion], rows: int) -> list[Portion]:
    """Add the rows of a window that are recovered from the source to the portions of a batch, in proportion to their
    size.

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
    each = (tuples + loss.lost) / tuples if tuples else 1.0
    for one in portions:
        yield replace(one, produced=one.tuples * each)


def _of_file(grid: WindowGrid, of: _InFile, batch: int, most: int | None) -> Iterator[tuple[int, Portion]]:
    """The portions of a batch in a file, each with its window."""
    file, stream = of.file, of.stream
    inside = grid.holding(file, of.order)
    one_batch = file.low("batch") == file.high("batch") and file.low("seq") is not None
    if one_batch and inside is not None and (of.alone is None or file.records <= of.alone):
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
            _window_alone(grid, of, group, batch),
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
class _InFile:
    """A file of a stream, opened for its footer when somebody asks."""

    stream: str
    order: str
    file: DataFile
    alone: int | None
    """Of so many rows it is one row group, and one portion, without a look; None: however many."""

    @cached_property
    def groups(self) -> list[RowGroup]:
        return row_groups(self.file, ["batch", "seq", self.order])


def _window_alone(grid: WindowGrid, of: _InFile, group: RowGroup, batch: int) -> int | None:
    """The one window that a row group of this batch alone lies in, by its footer; None: it is to be read."""
    told = group.edges.get("batch") == (batch, batch) and "seq" in group.edges
    return grid.of_group(group, of.order) if told else None


def _seq_by_window(
    grid: WindowGrid, of: _InFile, group: RowGroup, batch: int, alone: int | None
) -> Iterator[tuple[int, np.ndarray]]:
    """Of a batch's rows in a row group, by window, the `seq` of each; read where the footer does not tell."""
    first, last = group.edges.get("seq", (0, -1))
    if alone is not None and last - first + 1 == group.records:
        yield alone, np.arange(first, last + 1)
        return
    rows = rows_of_group(of.file, group.place, ["batch", "seq", of.order])
    rows = rows.filter(matching(rows, {"batch": batch}))
    rows = rows.filter(rows[of.order].is_valid())
    number, seq = grid.numbers(rows[of.order]), np.asarray(rows["seq"])
    for window in np.unique(number):
        yield int(window), np.sort(seq[number == window])


def _touching(portions: list[Portion]) -> list[Portion]:
    """A batch's portions in a window without a gap between them, and without a row that two of them have."""
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

"""What the inputs of a window come in: portions, known by what tables say of their files.

A portion is what can be left unread by itself: a file of one batch that lies in one window, which is not even opened;
else a row group, of which the footer tells. So what is shed is not read, also where files were put together
(`store.upkeep` leaves row groups as they are). A row group is cut where it holds more tuples than a portion may, and
where it lies in several windows or batches: then its times are read, and no other column, and what is shed of it is
read with what is kept. The portions of a batch touch one another in `seq`, so that rows which an earlier lever laid
aside belong to one of them.

How many tuples a source produced for those that are here follows from the ledger: what came in, was refused, or was
shed for good by an earlier lever was produced; what was delivered twice was not produced twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.errors import Refused
from spillway.ledger import TOTAL
from spillway.levers.windows import Portion, Window
from spillway.pipeline.accounting import SENT
from spillway.pipeline.window_grid import WindowGrid, window_order
from spillway.store.files import DataFile, RowGroup, row_groups, rows_of_group
from spillway.store.filters import matching
from spillway.store.tables import Tables

_INTAKE = "intake"
_DAY = 86_400_000_000


def window_portions(
    tables: Tables, contracts: Contracts, contract: Workload, windows: Sequence[Window], most: int | None
) -> dict[int, tuple[Portion, ...]]:
    """By window, its portions, of at most so many tuples each; in the order of streams, batches and `seq`."""
    found: dict[int, list[Portion]] = {window.window: [] for window in windows}
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
        factors = _produced_for_each(tables, stream, batches)
        alone = [one for one in (most, contracts.stream(stream).row_group_tuples) if one is not None]
        opened: dict[str, _InFile] = {}
        for batch in batches:
            of_batch: dict[int, list[Portion]] = {}
            for file in tables.at("transmitted", stream).files(batch=batch):
                of = opened.setdefault(file.path, _InFile(stream, order, file, min(alone, default=None)))
                for window, portion in _of_file(grid, of, batch, factors[batch], most):
                    of_batch.setdefault(window, []).append(portion)
            for number, mine in of_batch.items():
                if number in found:
                    found[number] += _touching(mine)
    return {
        window.window: tuple(one for one in found[window.window] if (one.stream, one.batch) in window.inputs)
        for window in windows
    }


def _of_file(
    grid: WindowGrid, of: _InFile, batch: int, produced: float, most: int | None
) -> Iterator[tuple[int, Portion]]:
    """The portions of a batch in a file, each with its window."""
    file, stream = of.file, of.stream
    inside = grid.holding(file, of.order)
    one_batch = file.low("batch") == file.high("batch") and file.low("seq") is not None
    if one_batch and inside is not None and (of.alone is None or file.records <= of.alone):
        first, last = file.low("seq"), file.high("seq")
        made = Portion(stream, batch, first, last, file.records, file.size, file.records * produced)
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
                Portion(stream, batch, first, last, group.records, group.size, group.records * produced),
            )
            continue
        for window, seq in _seq_by_window(grid, of, group, batch, alone):
            pieces = 1 if most is None else -(-len(seq) // most)
            for some in np.array_split(seq, pieces):
                tuples, first, last = len(some), int(some[0]), int(some[-1])
                yield (
                    window,
                    Portion(stream, batch, first, last, tuples, round(tuples * each), tuples * produced),
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
    """A batch's portions in a window without a gap between them."""
    ordered = sorted(portions, key=lambda one: one.from_seq)
    return [
        one if at == 0 else replace(one, from_seq=ordered[at - 1].to_seq + 1)
        for at, one in enumerate(ordered)
    ]


def _produced_for_each(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, float]:
    """By batch, how many tuples were produced for each that was sent."""
    rows = tables.at("ledger").rows(
        ["batch", "stage", "offered", "kept", "deduplicated"],
        scope="stream",
        subject=stream,
        batch=list(batches),
        unit="rows",
        dimension_kind=TOTAL,
        stage=[_INTAKE, SENT],
    )
    came: dict[int, int] = {}
    sent: dict[int, int] = {}
    for row in rows.to_pylist():
        if row["stage"] == _INTAKE:
            came[row["batch"]] = row["offered"] - row["deduplicated"]
        else:
            sent[row["batch"]] = row["kept"]
    return {
        batch: came[batch] / sent[batch] if came.get(batch) and sent.get(batch) else 1.0 for batch in batches
    }

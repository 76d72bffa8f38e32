"""Rows that were lost before a window reads its inputs, and how far weights of the rows that are left stand for them.

A window knows the batches that have a row in it. A batch may have had rows in the window and sent none of them, so
every batch counts whose raw files reach into the window's span. Counts are those of whole batches: where a batch
reaches over several windows, they are upper limits for each.

Losses are taken from the ledger. A lever says by `Lever.row_losses` for which of them its weights stand. No row stands
for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from spillway.batch import DONE, RETIRED, BatchRows
from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.ledger import TOTAL
from spillway.levers.protocol import RowLoss
from spillway.levers.windows import Window, micros_of, moment_of
from spillway.pipeline.window_grid import times_within, window_order
from spillway.registry import LEVERS, lever, loses_rows
from spillway.store.tables import Between, Tables

_CUT_MICROS = 999
"""Some writers cut times in a file's statistics down to the millisecond."""


@dataclass(frozen=True)
class BatchLoss:
    """What a batch lost, and when its rows were; without a span they may have been at any time."""

    stream: str
    batch: int
    span: tuple[int, int] | None
    """First and last microsecond since 1970."""
    loss: RowLoss

    def may_lie_in(self, begin: datetime, end: datetime) -> bool:
        """Return whether rows of the batch may lie between two moments."""
        if self.span is None:
            return True
        first, last = self.span
        return first < micros_of(end) and last >= micros_of(begin)


def losses_before(
    tables: Tables, contracts: Contracts, contract: Workload, windows: Sequence[Window], back_seconds: float
) -> tuple[BatchLoss, ...]:
    """Return the batches that lost rows and may have had some in one of these windows."""
    if not windows:
        return ()
    begin, end = _begin(windows[0], back_seconds), windows[-1].to_time
    found: list[BatchLoss] = []
    for stream in dict.fromkeys(contract.inputs):
        order = window_order(contracts, contract, stream)
        times = times_within(contracts.stream(stream).attribute(order).type, begin, end)
        numbers = {batch for window in windows for name, batch in window.inputs if name == stream}
        spans: dict[int, tuple[int, int]] = {}
        for file in tables.at("raw", stream).files(**{order: Between(*times)}):
            low, high = file.low("batch"), file.high("batch")
            if low is None or high is None:
                continue
            first, last = file.low(order), file.high(order)
            for batch in range(low, high + 1):
                numbers.add(batch)
                if first is None or last is None:
                    continue
                span = micros_of(first), micros_of(last) + _CUT_MICROS
                before = spans.get(batch, span)
                spans[batch] = (min(before[0], span[0]), max(before[1], span[1]))
        found += [
            BatchLoss(stream, batch, spans.get(batch), loss)
            for batch, loss in _losses(tables, contracts, stream, sorted(numbers)).items()
        ]
    return tuple(found)


def losses_in(found: Sequence[BatchLoss], window: Window, back_seconds: float) -> dict[str, RowLoss]:
    """Return by input stream what was lost of the batches that may have had rows in the window."""
    mine: dict[str, RowLoss] = {}
    begin = _begin(window, back_seconds)
    for one in found:
        if (one.stream, one.batch) in window.inputs or one.may_lie_in(begin, window.to_time):
            mine[one.stream] = mine.get(one.stream, RowLoss()) + one.loss
    return mine


def _losses(
    tables: Tables, contracts: Contracts, stream: str, numbers: Sequence[int]
) -> Mapping[int, RowLoss]:
    rows = tables.at("ledger").rows(
        ["batch", "stage", "offered", "lost"],
        scope="stream",
        subject=stream,
        batch=list(numbers),
        unit="rows",
        dimension_kind=TOTAL,
        stage=list(LEVERS),
    )
    lost: dict[int, RowLoss] = {}
    for row in rows.to_pylist():
        if row["lost"]:
            before = lost.get(row["batch"], RowLoss())
            lost[row["batch"]] = replace(
                before, offered=max(before.offered, row["offered"]), lost=before.lost + row["lost"]
            )
    if not lost:
        return {}
    batches = [one for one in _numbered(tables, stream, sorted(lost)) if one.batch in lost]
    known: dict[int, RowLoss] = {}
    for name in (name for name in LEVERS if loses_rows(name)):
        for batch, loss in lever(name).row_losses(contracts.stream(stream), batches, tables).items():
            known[batch] = known.get(batch, RowLoss()) + loss
    return {
        batch: replace(
            known.get(batch, RowLoss()),
            offered=loss.offered,
            lost=loss.lost,
            unweighted=loss.lost - known.get(batch, RowLoss()).lost + known.get(batch, RowLoss()).unweighted,
        )
        for batch, loss in lost.items()
    }


def _numbered(tables: Tables, stream: str, numbers: Sequence[int]) -> list[BatchRows]:
    rows = tables.at("batches").rows(
        ["batch", "batch_date", "status", "first_seq", "last_seq", "rows"],
        stream=stream,
        batch=list(numbers),
        status=[DONE, RETIRED],
    )
    return [BatchRows(**row) for row in rows.to_pylist()]


def _begin(window: Window, back_seconds: float) -> datetime:
    return moment_of(micros_of(window.from_time) - round(back_seconds * 1e6))

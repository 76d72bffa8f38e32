"""What the inputs of a window come in: portions, known by what tables say of their files.

A portion is a file, as far as it lies in the window, or a part of one of at most so many tuples. A file that lies in
one window is never opened for it; one that lies in several is read for the times of its rows, and no other column, and
is a portion of each of them: what is shed in one of its windows is then opened for another. The
portions of a batch touch one another in `seq`, so that rows which an earlier lever laid aside belong to one of them.

How many tuples a source produced for those that are here follows from the ledger: what came in, was refused, or was
shed for good by an earlier lever was produced; what was delivered twice was not produced twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.ledger import TOTAL
from spillway.levers.windows import Portion, Window
from spillway.pipeline.accounting import SENT
from spillway.pipeline.window_grid import WindowGrid, window_order
from spillway.store.files import DataFile, rows_of
from spillway.store.filters import matching
from spillway.store.tables import Tables

_ROWS_AT_A_TIME = 131_072
_INTAKE = "intake"


def window_portions(
    tables: Tables, contracts: Contracts, contract: Workload, windows: Sequence[Window], most: int | None
) -> dict[int, tuple[Portion, ...]]:
    """By window, its portions, of at most so many tuples each; in the order of streams, batches and `seq`."""
    found: dict[int, list[Portion]] = {window.window: [] for window in windows}
    for stream in dict.fromkeys(contract.inputs):
        order = window_order(contracts, contract, stream)
        batches = sorted({batch for window in windows for name, batch in window.inputs if name == stream})
        factors = _produced_for_each(tables, stream, batches)
        for batch in batches:
            of_batch: dict[int, list[Portion]] = {}
            for file in tables.at("transmitted", stream).files(batch=batch):
                for window, portion in _of_file(contract, stream, order, file, batch, factors[batch], most):
                    of_batch.setdefault(window, []).append(portion)
            for number, mine in of_batch.items():
                if number in found:
                    found[number] += _touching(mine)
    return {
        window.window: tuple(one for one in found[window.window] if (one.stream, one.batch) in window.inputs)
        for window in windows
    }


def _of_file(
    contract: Workload, stream: str, order: str, file: DataFile, batch: int, produced: float, most: int | None
) -> Iterator[tuple[int, Portion]]:
    """The portions of a batch in a file, each with its window."""
    grid = WindowGrid.of(contract)
    inside = grid.holding(file, order)
    one_batch = file.low("batch") == file.high("batch") and file.low("seq") is not None
    if one_batch and inside is not None and (most is None or file.records <= most):
        first, last = file.low("seq"), file.high("seq")
        made = Portion(stream, batch, first, last, file.records, file.size, file.records * produced)
        yield inside, made
        return
    parts = [
        part.filter(matching(part, {"batch": batch}))
        for part in rows_of(file, ["batch", "seq", order], _ROWS_AT_A_TIME)
    ]
    rows = pa.concat_tables(parts).filter(pa.concat_tables(parts)[order].is_valid())
    number, seq = grid.numbers(rows[order]), np.asarray(rows["seq"])
    share = file.size / max(1, file.records)
    for window in np.unique(number):
        mine = np.sort(seq[number == window])
        step = len(mine) if most is None else most
        pieces = max(1, round(len(mine) / step))
        for some in np.array_split(mine, pieces):
            tuples = len(some)
            yield (
                int(window),
                Portion(
                    stream,
                    batch,
                    int(some[0]),
                    int(some[-1]),
                    tuples,
                    round(tuples * share),
                    tuples * produced,
                ),
            )


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

"""Only what is delivered for the first time stays: drafts of `raw` are made anew without the rows that repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.batch import HELD, RETIRED, Batch, BatchRows
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.intake.aside import kept_aside
from spillway.intake.parse import Target
from spillway.intake.repeats import Repeated, filter_before, find_repeated
from spillway.store.delta_log import data_file
from spillway.store.files import DataFile, rows_of
from spillway.store.tables import Between, Table, Tables
from spillway.store.writing import Written, write_file

_ROWS_AT_A_TIME = 131_072


def without_repeats(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    raw: Table,
    files: dict[int, list[Written]],
    aside: list[Written],
) -> dict[int, Repeated]:
    """Find rows that were delivered before; the batches' drafts of `raw` are made anew without them.

    They are compared with what stands in `raw`, of whichever batch, and with each other in their order.
    """
    if contract.duplicates.rows == "none":
        return {}
    found: dict[int, Repeated] = {}
    mine, within = {batch.batch for batch in batches}, contract.duplicates.within
    since = Between(min(batch.first_seq for batch in batches) - within if within else None)
    standing = [one for one in _standing(tables, contract.stream, since) if one.batch not in mine]
    history = tables.at("raw", contract.stream).files(seq=since)
    state: Mapping[str, Any] | None = None
    for batch in sorted(batches, key=lambda one: one.batch):
        drafted = _drafted(raw, files[batch.batch])
        before = state if state is not None else filter_before(tables, contract, batch.batch)
        one = find_repeated(engine, contract, batch, drafted, history, before, standing)
        found[batch.batch] = one
        state = one.state if one.state is not None else state
        if len(one.rows):
            rejected = Target.of(tables.at("rejected"))
            make = partial(_parted, contract, batch, one.rows, Target.of(raw), rejected)
            parts = engine.map(make, drafted)
            raw.erase(drafted)
            files[batch.batch] = [left for left, _ in parts if left]
            aside += [gone for _, gone in parts if gone]
        history += _drafted(raw, files[batch.batch])
        standing.append(batch.numbered)
    return found


def _standing(tables: Tables, stream: str, since: Between) -> list[BatchRows]:
    """The batches that stand in `raw` from this `seq` on, or did and are retired: of each its numbers alone."""
    columns = [item.name for item in fields(BatchRows)]
    where = {"stream": stream, "status": [*HELD, RETIRED], "last_seq": since}
    rows = tables.at("batches").rows(columns, **where).to_pylist()
    return [BatchRows(**row) for row in rows if row["rows"] is not None]


def _drafted(table: Table, written: Sequence[Written]) -> list[DataFile]:
    """Files that are in no table yet, as whoever reads files takes them."""
    return [data_file(table.path, one, table.contract.arrow_schema) for one in written]


def _parted(
    contract: StreamContract,
    batch: Batch,
    seqs: np.ndarray,
    raw: Target,
    rejected: Target,
    file: DataFile,
) -> tuple[Written | None, Written | None]:
    """A drafted file as two: the rows that stay, and those that were delivered before."""
    names = raw.schema.names

    def rows(repeated: bool) -> Iterator[pa.Table]:
        for part in rows_of(file, names, _ROWS_AT_A_TIME):
            hit = np.isin(np.asarray(part["seq"]), seqs)
            found = part.filter(pa.array(hit if repeated else ~hit))
            if found.num_rows:
                yield kept_aside(contract, batch, found) if repeated else found

    day = {"batch_date": str(batch.batch_date)}
    left = write_file(raw.folder, day, raw.schema, rows(False))
    gone = write_file(rejected.folder, {"stream": contract.stream}, rejected.schema, rows(True))
    return left, gone

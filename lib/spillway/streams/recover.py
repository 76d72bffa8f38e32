"""Recover shed batches: write the table `recovered`, or return, write or publish the rows that a query asks for.

`recover_batches` runs the kernels in tasks for a range of batches. `look_up` runs the same kernels in this process for
a few rows. So both return the same values.

Recovered rows can be written to a file (Parquet, CSV or JSON lines, by the suffix of its name) or to a Delta table. A
user of the command line may write anywhere. A form is filled in by users who have no account on the machine, so a job
writes below one folder only, `SPILLWAY_OUTPUT` (`output_within`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.contracts.column_names import bounded_attribute, is_bound
from spillway.engine.protocol import Engine, Step, run_alone
from spillway.errors import SpillwayError, UsageError
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.frame_slices import split_batch
from spillway.levers.protocol import Decision
from spillway.settings import refuse_uri
from spillway.store.batches import write_ledger_together
from spillway.store.drafts import Draft, ReadBack, draft_files
from spillway.store.tables import FileTask, Tables, publish_files
from spillway.streams.query import (
    QueryPlan,
    SliceQuery,
    StreamQuery,
    answer_columns,
    plan_query,
    readable_schema,
    recovered_table,
    shed_batches,
    stored_decisions,
)
from spillway.streams.stages import RecoverTask, RecoveryPath, ShedPath

ASKED_BACK = "asked_back"
RECOVER = "recover"
"""The label of the job that recovers the batches of all streams of a run."""


@dataclass(frozen=True)
class RecoveryPlan:
    """The shed path and the recovery path of batches with the same order of levers, read back from the tables."""

    batches: tuple[Batch, ...]
    levers: tuple[str, ...]
    decisions: tuple[Decision, ...]
    up: RecoveryPath
    down: ShedPath
    found: tuple[Any, ...] = ()
    """The results of `check` for each file of `recovered` written on this path; empty without `check`."""


def recovery_plans(
    tables: Tables, contract: StreamContract, batches: Iterable[Batch] | None = None
) -> list[RecoveryPlan]:
    """Return the paths of the stream's shed batches (default: all of them), one for each order of levers.

    The decisions also cover the batches that share a frame with the given ones.
    """
    stream = contract.stream
    chosen = shed_batches(tables, stream) if batches is None else list(batches)
    days = sorted({batch.batch_date for batch in chosen})
    framed = [batch for batch in shed_batches(tables, stream, batch_date=days) if batch.is_pinned]
    found = []
    for levers in sorted({batch.levers for batch in framed}):
        mine = [batch for batch in framed if batch.levers == levers]
        decisions = stored_decisions(tables, contract, levers, mine)
        sent = tables.at("transmitted", stream).stored_files(batch_date=days)
        raw = tables.at("raw", stream).stored_files(batch_date=days)
        wanted = {batch.batch for batch in chosen}
        found.append(
            RecoveryPlan(
                tuple(batch for batch in mine if batch.batch in wanted),
                levers,
                decisions,
                RecoveryPath(sent, decisions, len(contract.attributes)),
                ShedPath(raw, decisions, len(contract.attributes)),
            )
        )
    return [way for way in found if way.batches]


def recover_batches(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    asked: bool = False,
    check: Callable[[RecoveryPlan], ReadBack] | None = None,
) -> list[RecoveryPlan]:
    """Write `recovered` for these batches of one stream and replace their earlier rows; see `recovery_step`."""
    return run_alone(engine, recovery_step(tables, contract, batches, asked, check), RECOVER)


def recovery_step(
    tables: Tables,
    contract: StreamContract,
    batches: Sequence[Batch],
    asked: bool = False,
    check: Callable[[RecoveryPlan], ReadBack] | None = None,
) -> Step[list[RecoveryPlan]]:
    """Write `recovered` for these batches and replace their earlier rows, as a step that shares its job with others.

    `asked`: if true, a user requested the rows. They are then sent from the source, and the ledger counts their bytes.
    Validation runs at the source and leaves it false.
    `check`: checks each file before it is published. Its results are in `RecoveryPlan.found`.
    """
    table = recovered_table(tables, contract)
    columns = tuple(name for name in table.contract.names if name not in ("seq", "batch", "batch_date"))
    ways = recovery_plans(tables, contract, batches)
    makers = [table.maker(RecoverTask(way.up, columns), check and check(way)) for way in ways]
    tasks = [
        {place: FileTask({"batch_date": str(batch.batch_date)}, batch.batch, piece)}
        for place, way in enumerate(ways)
        for batch in way.batches
        for piece in split_batch(batch)
    ]
    drafts = yield from draft_files(makers, tasks)
    written = [one for draft in drafts for one in draft.written]
    days = sorted({batch.batch_date for batch in batches})
    numbers = [batch.batch for batch in batches]
    yield from publish_files(table, written, batch_date=days, batch=numbers)
    if asked:
        pairs = zip(ways, drafts, strict=True)
        lines = [_recovery_line(batch, draft) for way, draft in pairs for batch in way.batches]
        yield from write_ledger_together(tables, contract.stream, numbers, [ASKED_BACK], lines)
    return [replace(way, found=draft.found) for way, draft in zip(ways, drafts, strict=True)]


def _recovery_line(batch: Batch, draft: Draft) -> LedgerRow:
    rows = draft.rows(batch.batch)
    return LedgerRow(
        "stream",
        batch.stream,
        batch.batch,
        batch.batch_date,
        ASKED_BACK,
        BESIDE,
        "rows",
        reason="given back on demand",
        offered=rows,
        kept=rows,
        bytes_requested=draft.counts.get(batch.batch, {}).get("asked_back_bytes", 0),
    )


@dataclass(frozen=True)
class RecoveredRows:
    """The recovered rows that answer a query, with bounds, and what was read for them."""

    rows: pa.Table
    synopsis_bytes_read: int
    frames: int


def look_up(tables: Tables, contract: StreamContract, question: StreamQuery) -> RecoveredRows:
    """Recover a few rows from the few files that hold them, without an engine."""
    asked, counts = plan_answer(tables, contract, question), dict[str, int]()
    found = pa.concat_tables(answer_rows(asked, contract, question, counts))
    return RecoveredRows(found, counts["asked_back_bytes"], counts["frames"])


def plan_answer(
    tables: Tables, contract: StreamContract, question: StreamQuery, own: Sequence[str] = ()
) -> QueryPlan:
    """Plan the reading that answers a query on the tables as they are now; its rows are read some at a time.

    `own`: columns to add to those that the query returns.
    """
    tables = tables.now()
    names = [*answer_columns(contract, readable_schema(tables, contract), question), *own]
    asked = plan_query(tables, contract, question, names)
    # an attribute that must not be shed any more may have been shed before
    bounded = {*contract.sheddable, *asked.bounded}
    return asked.only([name for name in names if not is_bound(name) or bounded_attribute(name) in bounded])


def answer_rows(
    asked: QueryPlan, contract: StreamContract, question: StreamQuery, counts: dict[str, int]
) -> Iterator[pa.Table]:
    """Yield the rows of the answer some at a time; raise an error if there are none."""
    rows = asked.rows(counts)
    first = next(rows, None)
    if first is None:
        raise SpillwayError(question.nothing(contract))
    yield first
    yield from rows


def write_answer_table(
    tables: Tables, engine: Engine, contract: StreamContract, question: StreamQuery, path: str
) -> Mapping[str, int]:
    """Write the answer as a Delta table at `path`, with tasks of the engine, and replace the table that was there.

    Return the counts `rows`, `frames` and `asked_back_bytes`.
    """
    asked = plan_answer(tables, contract, question, own=("batch", "batch_date"))
    if not asked.stretches:
        raise SpillwayError(question.nothing(contract))
    whole = recovered_table(tables, contract).contract
    wanted = tuple(column for column in whole.columns if column.name in asked.schema.names)
    table = tables.own(path, replace(whole, columns=wanted))
    if table.exists and set(table.schema.names) != set(asked.schema.names):
        raise UsageError(
            f"`output` must be a new table, or one of the same columns, got {path} with "
            f"{', '.join(table.schema.names)}; name another"
        )
    cut = [FileTask({"batch_date": str(one.day)}, one.parts[0].batch, one) for one in asked.stretches]
    draft = table.draft(engine, cut, _rows_of)
    if not draft.written:
        raise SpillwayError(question.nothing(contract))
    table.publish(draft.written)
    counts = {"rows": sum(one.rows for one in draft.written)}
    for name in ("frames", "asked_back_bytes"):
        counts[name] = sum(found.get(name, 0) for found in draft.counts.values())
    return counts


def _rows_of(stretch: SliceQuery, counts: dict[str, int]) -> Iterator[pa.Table]:
    return stretch.rows(counts)


@dataclass(frozen=True)
class Output:
    """A file, or the folder of a Delta table."""

    path: Path
    is_table: bool = False


def output_path(text: str) -> Path:
    """Return the path of the file to write; refuse a suffix that names no format before any work is done.

    >>> output_path("out/temps.csv").suffix
    '.csv'
    >>> output_path("recovered/")
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `output` must end in .parquet, .csv or .json, got 'recovered/'; name a file so
    """
    refuse_uri("output", text)
    if Path(text).suffix not in _WRITERS or text.endswith("/"):
        raise UsageError(f"`output` must end in {_formats()}, got {text!r}; name a file so")
    return Path(text)


def output_within(root: str, text: str) -> Output:
    """Return the output below `root` that a name stands for: a file, or a Delta table if the name has no suffix.

    A name that leads out of `root` is refused.

    >>> output_within("/srv/out", "storms").is_table, output_within("/srv/out", "a/b.csv").path.as_posix()
    (True, '/srv/out/a/b.csv')
    >>> output_within("/srv/out", "../b.csv")
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `output` must lie below SPILLWAY_OUTPUT (/srv/out), got '../b.csv'; write e.g. b.csv
    """
    inside = Path(root).resolve()
    # follow links: the folder that is written to must be below the root
    path = inside if "\0" in text else (inside / text).resolve()
    if path == inside or not path.is_relative_to(inside):
        raise UsageError(
            f"`output` must lie below SPILLWAY_OUTPUT ({root}), got {text!r}; write e.g. {Path(text).name or 'found'}"
        )
    if path.suffix and path.suffix not in _WRITERS:
        raise UsageError(
            f"`output` must end in {_formats()}, or in nothing to be a Delta table, got {text!r}; name it so"
        )
    return Output(path, not path.suffix)


def write_output(rows: Iterable[pa.Table], path: Path) -> int:
    """Write the rows in the format of the path's suffix and return their number; create the folders above it.

    The rows are written some at a time to a temporary file in the same folder. The temporary file is renamed when it is
    complete.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        count = _WRITERS[path.suffix](rows, beside)
        beside.replace(path)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
    return count


def _formats() -> str:
    *first, last = _WRITERS
    return f"{', '.join(first)} or {last}"


def _by(writer: Callable[[Path, pa.Schema], Any]) -> Callable[[Iterable[pa.Table], Path], int]:
    """Return a function that writes rows with one of Arrow's writers, opened with the schema of the first rows."""

    def write(rows: Iterable[pa.Table], path: Path) -> int:
        parts = iter(rows)
        first = next(parts)
        count = first.num_rows
        with writer(path, first.schema) as sink:
            sink.write_table(first)
            for part in parts:
                sink.write_table(part)
                count += part.num_rows
        return count

    return write


def _write_json(rows: Iterable[pa.Table], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as sink:
        for batch in (batch for part in rows for batch in part.to_batches(1024)):
            sink.writelines(
                json.dumps(row, ensure_ascii=False, default=_sortable_text) + "\n"
                for row in batch.to_pylist()
            )
            count += batch.num_rows
    return count


def _sortable_text(value: Any) -> str:
    """Return a date or a time as text that sorts in the order of time."""
    text: str = value.isoformat()
    return text


_WRITERS: dict[str, Callable[[Iterable[pa.Table], Path], int]] = {
    ".parquet": _by(pyarrow.parquet.ParquetWriter),
    ".csv": _by(pyarrow.csv.CSVWriter),
    ".json": _write_json,
}

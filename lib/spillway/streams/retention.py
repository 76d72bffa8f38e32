"""Maintain a lake: delete old rows, put delivered files away, compact small files, delete unused files, shorten logs.

The steps run in this order:

1. rows past their retention are deleted;
2. files in the landing zone whose batch is done are archived or removed, if the contract says so;
3. closed dates and small tables are compacted;
4. files that no table has needed for a week are deleted, and logs are shortened.

Each table is handled alone. If another run writes to a table, the table stays as that run left it. A failure in one
table does not stop the others. A dry run reports the same and changes nothing.

Retention: rows that are older than the retention of their table are deleted, unless they are still needed.

- The retention is stated in the table's column contract (`retain_days`). A stream's contract can replace it for some
  tables (`retain`), and the contract of a join or query states it for its results.
- It counts from the date of the data, or from the time when the batch was taken in or the window computed if that is
  later. So a backlog is not deleted at once.
- A row of a batch stays as long as the tables that its table's contract names (`kept_for`) have rows of that batch.
  What recovery needs stays with the transmitted rows, also facts that an expired batch brought to the destination.
  Transmitted rows stay with the raw rows that validate them. A row of `batches` is deleted last.
- Rows of `raw` are not deleted here: `pipeline.validate` retires them (`retain_raw`) once their recovery is validated.
- A row of `batches` also stays while one of the batch's files is in the landing folder, because the file would
  otherwise be taken in again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from spillway.batch import DONE, DUPLICATE, FILE_INGESTED, PENDING, QUARANTINED, RETIRED, LandingFile
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract
from spillway.contracts.workload import Workload
from spillway.errors import ConcurrentRun, SpillwayError
from spillway.intake.landing import DeliveredFile, landing_root, list_delivered_files
from spillway.levers.protocol import Say
from spillway.levers.windows import PLANNED
from spillway.store import blobs
from spillway.store.files import DataFile, as_date
from spillway.store.maintenance import MaintenanceResult, compact, shorten_log, vacuum
from spillway.store.schemas import TableContract
from spillway.store.tables import Between, Table, Tables
from spillway.streams.destination import DESTINATION_METADATA, batches_with_needed_facts

BATCHES, MODELS, WINDOWS, VALIDATIONS = "batches", "models", "windows", "validations"
TRANSMITTED = "transmitted"
ALERTS, LEDGER = "alerts", "ledger"


@dataclass(frozen=True)
class ExpiredRows:
    """Rows of a table that may be deleted: their number, and the filter that selects them."""

    table: Table
    rows: int
    where: Mapping[str, Any]


@dataclass
class Retention:
    """Finds the rows of all tables that may be deleted now."""

    tables: Tables
    contracts: Contracts
    now: datetime
    shared: bool = True
    """Whether tables that belong to no stream are included."""

    def take_expired(self, take_out: Callable[[ExpiredRows], None]) -> None:
        """Pass the rows that may be deleted to `take_out`, table by table: first those that others are kept for."""
        for contract in self.contracts.streams.values():
            for table in _deletion_order(self.tables.contracts):
                for found in self._of_stream(table, contract):
                    take_out(found)
            for found in self._models(contract.stream):
                take_out(found)
        if self.shared:
            for workload in [*self.contracts.joins.values(), *self.contracts.queries.values()]:
                for found in self._of_workload(workload):
                    take_out(found)
            dated = ((VALIDATIONS, "validated_at"), (ALERTS, "tried_at"))
            for found in [*(one for name, at in dated for one in self._dated(name, at)), *self._windows()]:
                take_out(found)

    def _limit(self, table: TableContract, stream: StreamContract | None = None) -> date | None:
        """Return the first date that stays; None if the table has no retention."""
        stated = stream.retain.days_of(table.table) if stream is not None else None
        days = table.retain_days if stated is None else stated
        return None if days is None else self.now.date() - timedelta(days=days)

    def _of_stream(self, contract: TableContract, stream: StreamContract) -> Iterator[ExpiredRows]:
        limit = self._limit(contract, stream)
        subject = next((name for name in ("stream", "subject") if name in contract.names), None)
        if limit is None or "batch" not in contract.names or contract.table == "raw":
            return
        own = contract.scope == "stream"
        table = self.tables.at(contract.table, stream.stream if own else None)
        if not table.exists or (subject is None and not own):
            return
        mine = {} if own else {str(subject): stream.stream}
        dates = self._closed(stream.stream, limit)
        held = self._held_by(contract.table, stream.stream, dates)
        of = {number: dates[number] for number in held}
        needed = {number for name in contract.kept_for for number in self._held_by(name, stream.stream, of)}
        if contract.table == BATCHES:
            needed |= self._last_or_delivered(stream, held)
        if contract.table == TRANSMITTED:
            needed |= self._waited_for(stream.stream)
        if contract.table == DESTINATION_METADATA:
            needed |= batches_with_needed_facts(self.tables, stream.stream, held - needed)
        gone = sorted(held - needed)
        if gone:
            where = {**mine, "batch": gone}
            if "batch_date" in contract.partitioned_by:
                where["batch_date"] = sorted({dates[number] for number in gone})
            yield ExpiredRows(table, table.rows(["batch"], **where).num_rows, where)

    def _closed(self, stream: str, limit: date) -> dict[int, date]:
        """Return the finished batches before a date, with their dates; a late batch counts from its intake."""
        where = {
            "status": [DONE, RETIRED, QUARANTINED],
            "batch_date": Between(high=limit - timedelta(days=1)),
        }
        where["created_at"] = Between(high=_last_moment_before(limit, self.now))
        rows = self.tables.at(BATCHES).rows(["batch", "batch_date"], stream=stream, **where)
        return dict(zip(rows["batch"].to_pylist(), rows["batch_date"].to_pylist(), strict=True))

    def _held_by(self, name: str, stream: str, dates: Mapping[int, date]) -> set[int]:
        """Return which of these batches have rows in a table, or may have, if the table is partitioned by date."""
        contract = self.tables.contract(name)
        own = contract.scope == "stream"
        subject = "subject" if "subject" in contract.names else "stream"
        table = self.tables.at(name, stream if own else None)
        where: dict[str, Any] = {} if own else {subject: stream}
        if not dates or not table.exists:
            return set()
        if "batch_date" not in contract.partitioned_by:
            return set(table.rows(["batch"], **where, batch=list(dates))["batch"].to_pylist())
        of_day: dict[date | None, list[int]] = {}
        for number, day in dates.items():
            of_day.setdefault(day, []).append(number)
        found: set[int] = set()
        for file in table.files(**where):
            low, high = file.low("batch"), file.high("batch")
            near = of_day.get(as_date(file.value("batch_date")), [])
            found |= {n for n in near if low is None or high is None or low <= n <= high}
        return found

    def _last_or_delivered(self, stream: StreamContract, numbers: Collection[int]) -> set[int]:
        """Return the last batch, which the next batch number follows, and those with a file that is still delivered."""
        table = self.tables.at(BATCHES)
        last = set(table.newest("batch", ["batch"], stream=stream.stream)["batch"].to_pylist())
        there = {one.name for one in list_delivered_files(stream, self.tables.settings)}
        rows = table.rows(["batch", "files"], stream=stream.stream, batch=list(numbers)) if numbers else None
        files = rows.to_pylist() if rows is not None else []
        return last | {
            row["batch"] for row in files if any(one["name"] in there for one in row["files"] or ())
        }

    def _waited_for(self, stream: str) -> set[int]:
        """Return the batches that a pinned window is going to read."""
        rows = self.tables.at(WINDOWS).rows(["inputs"], status=PLANNED).to_pylist()
        return {one["batch"] for row in rows for one in row["inputs"] if one["stream"] == stream}

    def _models(self, stream: str) -> Iterator[ExpiredRows]:
        """Yield old versions of facts that no remaining batch was shed with; the newest version stays."""
        table, limit = self.tables.at(MODELS), self._limit(self.tables.contract(MODELS))
        if limit is None or not table.exists:
            return
        used = {
            (name, version)
            for models in self.tables.at(BATCHES).rows(["models"], stream=stream)["models"].to_pylist()
            for name, version in models or ()
        }
        newest: dict[str, int] = {}
        old: dict[str, set[int]] = {}
        rows = table.rows(["lever", "version", "created_at"], stream=stream)
        for row in {(r["lever"], r["version"], r["created_at"].date()) for r in rows.to_pylist()}:
            lever, version, made = row
            newest[lever] = max(version, newest.get(lever, 0))
            if made < limit and (lever, version) not in used:
                old.setdefault(lever, set()).add(version)
        for lever, versions in sorted(old.items()):
            gone = sorted(versions - {newest[lever]})
            if gone:
                where = {"stream": stream, "lever": lever, "version": gone}
                yield ExpiredRows(table, table.rows(["version"], **where).num_rows, where)

    def _dated(self, name: str, column: str) -> Iterator[ExpiredRows]:
        table, limit = self.tables.at(name), self._limit(self.tables.contract(name))
        if limit is not None and table.exists:
            yield from _before(table, column, limit, self.now)

    def _of_workload(self, workload: Workload) -> Iterator[ExpiredRows]:
        """Yield the rows of old windows of a join or query; those of the last window stay for the next one."""
        for name, contract in sorted(self.tables.contracts.items()):
            own = contract.scope == "stream"
            if name == WINDOWS or not ("window" in contract.names or name == LEDGER):
                continue
            days = workload.retain_days if own else contract.retain_days
            table = self.tables.at(name, workload.subject if own else None)
            if days is None or not table.exists:
                continue
            number = "window" if "window" in contract.names else "batch"
            mine: dict[str, Any] = {} if own else {"subject": workload.subject}
            limit = self.now.date() - timedelta(days=days)
            before = Between(high=limit - timedelta(days=1))
            old = table.rows([number], **mine, batch_date=before)[number]
            gone = set(old.to_pylist()) - self._worked_out_since(limit, workload.subject)
            if not own:
                gone -= set(table.newest(number, [number], **mine)[number].to_pylist())
            if gone:
                rows = sum(one in gone for one in old.to_pylist())
                yield ExpiredRows(table, rows, {**mine, "batch_date": before, number: sorted(gone)})

    def _worked_out_since(self, limit: date, subject: str) -> set[int]:
        """Return the windows of a join or query that changed on this date or later."""
        changed = Between(_last_moment_before(limit, self.now) + timedelta(microseconds=1))
        found = self.tables.at(WINDOWS).rows(["window"], subject=subject, updated_at=changed)["window"]
        return set(found.to_pylist())

    def _still_sent(self, stream: str, numbers: Collection[int]) -> set[int]:
        """Return which of these batches have transmitted rows; a batch without a row in `batches` has none."""
        rows = self.tables.at(BATCHES).rows(["batch", "batch_date"], stream=stream, batch=list(numbers))
        dates = dict(zip(rows["batch"].to_pylist(), rows["batch_date"].to_pylist(), strict=True))
        return self._held_by("transmitted", stream, dates)

    def _windows(self) -> Iterator[ExpiredRows]:
        """Yield old windows whose inputs are all gone; a deleted window with inputs would be computed again."""
        table, limit = self.tables.at(WINDOWS), self._limit(self.tables.contract(WINDOWS))
        if limit is None or not table.exists:
            return
        eve = Between(high=_last_moment_before(limit, self.now))
        columns = ["subject", "window", "inputs", "too_late"]
        rows = table.rows(columns, to_time=eve, updated_at=eve).to_pylist()
        for row in rows:
            row["inputs"] = [*row["inputs"], *(row["too_late"] or ())]
        inputs: dict[str, set[int]] = {}
        for one in (one for row in rows for one in row["inputs"]):
            inputs.setdefault(one["stream"], set()).add(one["batch"])
        left = {name: self._still_sent(name, found) for name, found in inputs.items()}
        gone: dict[str, list[int]] = {}
        for row in rows:
            if not any(one["batch"] in left[one["stream"]] for one in row["inputs"]):
                gone.setdefault(row["subject"], []).append(row["window"])
        for subject, windows in sorted(gone.items()):
            yield ExpiredRows(table, len(windows), {"subject": subject, "window": windows})


def _deletion_order(contracts: Mapping[str, TableContract]) -> list[TableContract]:
    """Return the tables in an order in which those that others are kept for come first."""
    found: dict[str, TableContract] = {}
    while len(found) < len(contracts):
        ready = [
            one
            for name, one in sorted(contracts.items())
            if name not in found and all(other in found or other not in contracts for other in one.kept_for)
        ]
        # if tables are kept for one another, none of them can come first, so none waits
        for one in ready or [one for name, one in sorted(contracts.items()) if name not in found]:
            found[one.table] = one
    return list(found.values())


def _last_moment_before(day: date, now: datetime) -> datetime:
    """Return the last moment before a day."""
    return datetime(day.year, day.month, day.day, tzinfo=now.tzinfo) - timedelta(microseconds=1)


def _before(table: Table, column: str, limit: date, now: datetime) -> Iterator[ExpiredRows]:
    where = {column: Between(high=_last_moment_before(limit, now))}
    rows = table.rows([column], **where).num_rows
    if rows:
        yield ExpiredRows(table, rows, where)


def first_open_batch(tables: Tables, stream: str, today: date) -> int | None:
    """Return the first batch of a stream that a run may still work on; None if there is none."""
    batches = tables.at(BATCHES)
    waiting = batches.rows(["batch"], stream=stream, status=list(PENDING))["batch"].to_pylist()
    fresh = batches.rows(["batch"], stream=stream, batch_date=Between(today))["batch"].to_pylist()
    return min([*waiting, *fresh], default=None)


ARCHIVED = ".archived"
"""A folder below a landing folder; its name is hidden, so nothing in it counts as delivered."""
_AT_A_TIME = 1 << 20


@dataclass
class RetentionResult:
    """The result of a maintenance run; for a dry run, what it would do."""

    dry_run: bool
    rows_removed: dict[str, int] = field(default_factory=dict)
    """The number of deleted rows by table."""
    files_archived: int = 0
    files_removed: int = 0
    landing_bytes: int = 0
    """The bytes of the files in the landing zone that were archived or removed."""
    tables: MaintenanceResult = field(default_factory=MaintenanceResult)
    conflicts: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """Return all figures in one sentence."""
        rows, found = sum(self.rows_removed.values()), self.tables
        would = "would be " if self.dry_run else ""
        parts = [
            f"{found.files_before:,} small files {would}put together to {found.files_after:,}",
            f"{rows:,} rows {would}removed from {len(self.rows_removed)} tables",
            f"{self.files_archived:,} delivered files {would}archived and {self.files_removed:,} removed "
            f"({self.landing_bytes:,} bytes)",
            f"{found.bytes_freed:,} bytes of {found.files_removed:,} files that no table needs {would}freed",
        ]
        return "; ".join(parts)


def maintain_lake(
    tables: Tables,
    contracts: Contracts,
    say: Say = lambda _: None,
    dry_run: bool = False,
    now: datetime | None = None,
    streams: Collection[str] | None = None,
    shared: bool = True,
) -> RetentionResult:
    """Maintain the lake; after all steps were tried, raise the errors of those that failed.

    `now`: the time for retention. `streams`: if given, only tables of these streams. `shared`: also the shared tables.
    """
    tables, now = tables.now(), now or utc_now()
    if streams is not None:
        mine = {name: one for name, one in contracts.streams.items() if name in streams}
        contracts = replace(contracts, streams=mine)
    if not shared:
        contracts = replace(contracts, joins={}, queries={})
    done = RetentionResult(dry_run)

    attempt = _attempts(done, say)

    def take_out(found: ExpiredRows) -> None:
        name = found.table.contract.table

        def delete() -> None:
            if not dry_run:
                found.table.delete(**found.where)
            say(f"{name}: {found.rows:,} rows have outlived their retention")
            done.rows_removed[name] = done.rows_removed.get(name, 0) + found.rows

        attempt(name, delete)

    attempt("retention", partial(Retention(tables, contracts, now, shared).take_expired, take_out))
    for contract in contracts.streams.values():
        if contract.source.after_ingest != "keep":
            attempt(contract.stream, partial(_archive_files, tables, contract, done, say))
    if shared:
        attempt("files of ended jobs", partial(_remove_task_files, tables, now, done))
    is_closed = _is_idle(tables, now)
    for name, table in _every_table(tables, contracts, shared):

        def tidy(name: str = name, table: Table = table) -> None:
            found = compact(table, is_closed(table), dry_run)
            if not dry_run:
                shorten_log(table)
            found += vacuum(table, dry_run)
            done.tables += found
            if found != MaintenanceResult():
                say(
                    f"{name}: {found.files_before} files put together to {found.files_after}, "
                    f"{found.files_removed} removed, {found.bytes_freed:,} bytes freed"
                )

        attempt(name, tidy)
    say(done.sentence)
    if done.failed:
        raise SpillwayError("\n".join(done.failed))
    return done


def _remove_task_files(tables: Tables, now: datetime, done: RetentionResult) -> None:
    """Remove the inputs of Spark's tasks that a killed job left more than a day ago."""
    found = MaintenanceResult()
    for file in blobs.list_files(tables.settings.tasks_folder):
        if file.modified_at < now - timedelta(days=1):
            if not done.dry_run:
                blobs.remove(file.path)
            found += MaintenanceResult(files_removed=1, bytes_freed=file.size)
    done.tables += found


def _attempts(done: RetentionResult, say: Say) -> Callable[[str, Callable[[], None]], None]:
    """Return a function that tries a step: it gives way to another run, and collects failures for the end."""

    def attempt(name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except ConcurrentRun as problem:
            say(f"{name}: gave way: {problem}")
            done.conflicts.append(f"{name}: {problem}")
        except SpillwayError as problem:
            say(f"{name}: failed: {problem}")
            done.failed.append(f"{name}: {problem}")

    return attempt


def _every_table(tables: Tables, contracts: Contracts, shared: bool) -> Iterator[tuple[str, Table]]:
    """Yield every existing table of the streams, joins and queries, and the shared tables."""
    subjects = [*contracts.streams, *contracts.joins, *contracts.queries]
    for name, contract in sorted(tables.contracts.items()):
        for subject in subjects if contract.scope == "stream" else [None] * shared:
            table = tables.at(name, subject)
            if table.exists:
                yield name if subject is None else f"{name}/{subject}", table


def _is_idle(tables: Tables, now: datetime) -> Callable[[Table], Callable[[DataFile], bool]]:
    """Return, by table, a test whether no run works on a file any more: earlier dates, and batches that are done."""
    today = now.date()
    midnight = datetime(today.year, today.month, today.day, tzinfo=now.tzinfo)
    opened: dict[str, int | None] = {}

    def of(table: Table) -> Callable[[DataFile], bool]:
        own = table.path.rsplit("/", 1)[-1] if table.contract.scope == "stream" else None

        def closed(file: DataFile) -> bool:
            if "batch_date" in table.contract.partitioned_by:
                day = as_date(file.value("batch_date"))
                if day is None or day >= today:
                    return False
            for column in ("validated_at", "to_time"):
                if file.high(column) is not None and file.high(column) >= midnight:
                    return False
            subject, high = str(own or file.value("stream") or file.value("subject")), file.high("batch")
            if high is None and "batch" in table.contract.names:
                return False  # another program wrote the file without statistics
            if subject not in opened:
                opened[subject] = first_open_batch(tables, subject, today)
            first = opened[subject]
            return first is None or high is None or bool(high < first)

        return closed

    return of


def _archive_files(tables: Tables, contract: StreamContract, done: RetentionResult, say: Say) -> None:
    """Archive or remove the delivered files whose batch is done; name, size and digest must be the same."""
    landing = tables.settings.landing
    known = _done_files(tables, contract.stream)
    root = landing_root(contract, landing).rstrip("/")
    archive = contract.source.after_ingest == "archive"
    files = bytes_ = 0
    for one in list_delivered_files(contract, tables.settings):
        if one.problem or not any(_is_same(one, file) for file in known.get(one.name, ())):
            continue
        if not done.dry_run:
            if archive:
                blobs.move(one.path, f"{root}/{ARCHIVED}/{one.path.removeprefix(root + '/')}")
            else:
                blobs.remove(one.path)
        files, bytes_ = files + 1, bytes_ + one.size
    done.landing_bytes += bytes_
    if archive:
        done.files_archived += files
    else:
        done.files_removed += files
    if files:
        what = "archived" if archive else "removed"
        say(f"{contract.stream}: {files:,} delivered files {what}, {bytes_:,} bytes")


def _done_files(tables: Tables, stream: str) -> dict[str, list[LandingFile]]:
    """Return the files of finished batches by name."""
    rows = tables.at("batches").rows(["files"], stream=stream, status=[DONE, RETIRED])["files"]
    found: dict[str, list[LandingFile]] = {}
    for files in rows.to_pylist():
        for one in (LandingFile(**file) for file in files or ()):
            if one.status in (FILE_INGESTED, DUPLICATE):
                found.setdefault(one.name, []).append(one)
    return found


def _is_same(one: DeliveredFile, file: LandingFile) -> bool:
    """Return whether the delivered file is the one that was taken in, by size and SHA-256 digest."""
    if one.size != file.size:
        return False
    found = hashlib.sha256()
    with blobs.open_for_reading(one.path) as source:
        while part := source.read(_AT_A_TIME):
            found.update(part)
    return found.hexdigest() == file.digest

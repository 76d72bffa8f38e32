"""Keeping a lake fit: rows past their time go, delivered files as the contract says, small files are put together.

In this order: what has outlived its retention is taken out; files in the landing zone whose batch is done are archived
or removed where the contract asks for it; closed dates and small tables are compacted; then files that no table has
needed for a week leave the disk, and logs are shortened. Each table is looked at by itself: one that another run writes
to is left as that run left it, and what goes wrong with one keeps no other back. A dry run says the same and does none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from spillway.batch import DONE, DUPLICATE, RETIRED, TAKEN, LandingFile
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract
from spillway.errors import ConcurrentRun, SpillwayError
from spillway.intake.landing import Delivered, delivered, landing_root
from spillway.levers.protocol import Say
from spillway.pipeline.retention import Outlived, Retention, first_open
from spillway.store import blobs
from spillway.store.files import DataFile, as_date
from spillway.store.tables import Table, Tables
from spillway.store.upkeep import Upkept, compact, shorten_log, sweep

ARCHIVED = ".archived"
"""Below a landing folder; hidden, so that nothing in it counts as delivered."""
_AT_A_TIME = 1 << 20


@dataclass
class Kept:
    """What a run did, or, dry, would do."""

    dry_run: bool
    rows_removed: dict[str, int] = field(default_factory=dict)
    """By table."""
    files_archived: int = 0
    files_removed: int = 0
    landing_bytes: int = 0
    """Of the files in the landing zone that were archived or removed."""
    tables: Upkept = field(default_factory=Upkept)
    gave_way: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def said(self) -> str:
        """All of it in a sentence."""
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


def keep(
    tables: Tables,
    contracts: Contracts,
    say: Say = lambda _: None,
    dry_run: bool = False,
    now: datetime | None = None,
    streams: Collection[str] | None = None,
    shared: bool = True,
) -> Kept:
    """Keep the lake; `now` is the clock that retention goes by. What failed is raised after all is tried.

    Of the whole lake, or of what belongs to some `streams`, and of what all share where `shared` is said.
    """
    tables, now = tables.now(), now or utc_now()
    if streams is not None:
        mine = {name: one for name, one in contracts.streams.items() if name in streams}
        contracts = replace(contracts, streams=mine)
    if not shared:
        contracts = replace(contracts, joins={}, queries={})
    done = Kept(dry_run)

    attempt = _attempts(done, say)

    def take_out(found: Outlived) -> None:
        name = found.table.contract.table

        def delete() -> None:
            if not dry_run:
                found.table.delete(**found.where)
            say(f"{name}: {found.rows:,} rows have outlived their retention")
            done.rows_removed[name] = done.rows_removed.get(name, 0) + found.rows

        attempt(name, delete)

    attempt("retention", partial(Retention(tables, contracts, now, shared).outlived, take_out))
    for contract in contracts.streams.values():
        if contract.source.after_taken_in != "keep":
            attempt(contract.stream, partial(_put_away, tables, contract, done, say))
    is_closed = _closed(tables, now)
    for name, table in _every_table(tables, contracts, shared):

        def tidy(name: str = name, table: Table = table) -> None:
            found = compact(table, is_closed(table), dry_run)
            if not dry_run:
                shorten_log(table)
            found += sweep(table, dry_run)
            done.tables += found
            if found != Upkept():
                say(
                    f"{name}: {found.files_before} files put together to {found.files_after}, "
                    f"{found.files_removed} removed, {found.bytes_freed:,} bytes freed"
                )

        attempt(name, tidy)
    say(done.said)
    if done.failed:
        raise SpillwayError("\n".join(done.failed))
    return done


def _attempts(done: Kept, say: Say) -> Callable[[str, Callable[[], None]], None]:
    """Tries a step; another run comes first, and what fails is told at the end."""

    def attempt(name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except ConcurrentRun as problem:
            say(f"{name}: gave way: {problem}")
            done.gave_way.append(f"{name}: {problem}")
        except SpillwayError as problem:
            say(f"{name}: failed: {problem}")
            done.failed.append(f"{name}: {problem}")

    return attempt


def _every_table(tables: Tables, contracts: Contracts, shared: bool) -> Iterator[tuple[str, Table]]:
    """Every table there is of these subjects, and those that all share."""
    subjects = [*contracts.streams, *contracts.joins, *contracts.queries]
    for name, contract in sorted(tables.contracts.items()):
        for subject in subjects if contract.scope == "stream" else [None] * shared:
            table = tables.at(name, subject)
            if table.exists:
                yield name if subject is None else f"{name}/{subject}", table


def _closed(tables: Tables, now: datetime) -> Callable[[Table], Callable[[DataFile], bool]]:
    """By table, which files hold nothing that anybody still works on: dates before today, batches that are done."""
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
                opened[subject] = first_open(tables, subject, today)
            first = opened[subject]
            return first is None or high is None or bool(high < first)

        return closed

    return of


def _put_away(tables: Tables, contract: StreamContract, done: Kept, say: Say) -> None:
    """Archive or remove the delivered files whose batch is done: same name, same size, same bytes."""
    landing = tables.settings.landing
    known = _done_files(tables, contract.stream)
    root = landing_root(contract, landing).rstrip("/")
    archive = contract.source.after_taken_in == "archive"
    files = bytes_ = 0
    for one in delivered(contract, tables.settings):
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
    """The files of batches that are through, by name."""
    rows = tables.at("batches").rows(["files"], stream=stream, status=[DONE, RETIRED])["files"]
    found: dict[str, list[LandingFile]] = {}
    for files in rows.to_pylist():
        for one in (LandingFile(**file) for file in files or ()):
            if one.status in (TAKEN, DUPLICATE):
                found.setdefault(one.name, []).append(one)
    return found


def _is_same(one: Delivered, file: LandingFile) -> bool:
    """Whether the file that lies there is the one that was taken in."""
    if one.size != file.size:
        return False
    found = hashlib.sha256()
    with blobs.reading(one.path) as source:
        while part := source.read(_AT_A_TIME):
            found.update(part)
    return found.hexdigest() == file.digest

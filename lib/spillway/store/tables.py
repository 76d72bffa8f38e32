"""Delta tables (or tables in memory): open them, read rows by a filter, and replace rows by compare-and-swap.

`Tables.at(name)` is a table as it was when this `Tables` first read it (or last wrote it). Each step makes a `Tables`
of its own. A write replaces the rows that match a filter (`stream=..., batch=[...]`) in one commit. So a rerun, a
retry, or a kill at any time leads to the same rows. Each write is a compare-and-swap: if another writer has changed
these rows since they were read, nothing is written and `ConcurrentRun` is raised. Writers of other rows of the same
table do not disturb each other.

Tasks write *drafts* first: files that no table has yet. A draft can be measured, thrown away, or published.

A read decodes only the row groups that may hold matching rows. Tasks read the files of one batch date, along an ordered
column (`StoredFiles`).

>>> from datetime import UTC, datetime
>>> from spillway.settings import Settings
>>> tables = Tables(Settings.in_memory("doctest"))
>>> fact = {"stream": "s", "lever": "thin", "fact": "share", "subject": "", "version": 1, "value": "9",
...         "evidence": "{}", "trained_from_seq": 0, "trained_to_seq": 9,
...         "created_at": datetime(2026, 1, 1, tzinfo=UTC)}
>>> tables.at("models").replace([fact], stream="s", lever="thin", version=1)
>>> tables.at("models").replace([{**fact, "value": "8"}], stream="s", lever="thin", version=1)
>>> tables.at("models").rows(["value"], stream="s", version=[1, 2]).to_pylist()
[{'value': '8'}]
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from spillway.engine.protocol import Engine, Step, run_alone
from spillway.errors import (
    ConcurrentRun,
    ExternalFault,
    InvalidExternalValue,
    InvalidValue,
    SpillwayError,
    StoreFault,
)
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store import delta_log as logs
from spillway.store.delta_log import CommitConflict, Log, data_file, open_log
from spillway.store.drafts import Draft, FileMaker, FileTask, Make, ReadBack, discard, draft_files
from spillway.store.file_writer import WrittenFile, conform_to_schema, write_file
from spillway.store.files import (
    DataFile,
    RowReader,
    as_date,
    groups_of,
    row_count,
    rows_of,
    sort_keys_of,
    whole_rows,
)
from spillway.store.filters import Between, Filter, all_match, format_filter, integer_ranges, match_mask
from spillway.store.listing import Listing
from spillway.store.renames import refuse_earlier_names
from spillway.store.schemas import (
    TableContract,
    refuse_newer,
    schema_differences,
    spark_type,
    table_contracts,
)

Value = TypeVar("Value")

SMALL_BYTES = 1 << 16
"""The size up to which a file of a shared table is decoded as a whole, once, for all reads of a run."""
MOST_SMALL_BYTES = 64 << 20
"""The bytes of decoded small files that stay in memory."""
MOST_VALUES = 1_024
"""The number of values that are made of rows of a table and stay in memory."""


class ReadCache:
    """Cache what a run reads of shared tables: lists of files, rows of small files, and values made of rows.

    A shared table has a few small files per stream, and each step reads them several times. Files of tables never
    change. So a cached value is right as long as its files are listed, also after other commits.
    """

    def __init__(self, most_bytes: int = MOST_SMALL_BYTES, most_values: int = MOST_VALUES) -> None:
        self._most_bytes, self._most_values, self._bytes = most_bytes, most_values, 0
        self._lock = threading.Lock()
        self._listings: dict[str, Listing] = {}
        self._rows: OrderedDict[str, pa.Table] = OrderedDict()
        self._made: OrderedDict[tuple[Any, ...], tuple[tuple[str, ...], Any]] = OrderedDict()

    def listing(self, table: str, found: Listing) -> Listing:
        """Return the listing of a table; an earlier one if it lists the same files, because they are known there."""
        with self._lock:
            known = self._listings.get(table)
            if known is None or known.paths != found.paths:
                known = self._listings[table] = found
            return known

    def rows(self, file: DataFile) -> pa.Table:
        """Return all columns of a small file without its partition columns; the file is decoded once."""
        with self._lock:
            if file.path in self._rows:
                self._rows.move_to_end(file.path)
                return self._rows[file.path]
        found = whole_rows(file)
        with self._lock:
            if file.path not in self._rows:
                self._rows[file.path] = found
                self._bytes += found.nbytes
            while self._bytes > self._most_bytes:
                self._bytes -= self._rows.popitem(last=False)[1].nbytes
        return found

    def make_once(self, key: tuple[Any, ...], files: Sequence[DataFile], make: Callable[[], Value]) -> Value:
        """Return what `make` makes of the rows of these files; it is made again if the files are others."""
        paths = tuple(file.path for file in files)
        with self._lock:
            if key in self._made and self._made[key][0] == paths:
                self._made.move_to_end(key)
                known: Value = self._made[key][1]
                return known
        found = make()
        with self._lock:
            self._made[key] = paths, found
            while len(self._made) > self._most_values:
                self._made.popitem(last=False)
        return found


@dataclass
class OpenedLog:
    """A table's log, and the files that are known since it was opened.

    Known files are those found at the first read, with the changes of this object's own commits.
    """

    path: str
    log: Log
    cache: ReadCache = field(default_factory=ReadCache)
    lock: threading.RLock = field(default_factory=threading.RLock)
    known: Listing | None = None
    _last: tuple[Listing, Listing] | None = None
    """The last listing of the log, and the one that is used for it."""

    def listing(self) -> Listing:
        """Return the live files."""
        found = self.log.listing()
        if self._last is None or self._last[0] is not found:
            self._last = found, self.cache.listing(self.path, found)
        return self._last[1]

    def found(self) -> Listing:
        if self.known is None:
            self.known = self.listing()
        return self.known

    def note(self, before: tuple[int, Listing], gone: Iterable[DataFile], added: Iterable[DataFile]) -> None:
        """Note the files that a commit removed and added; `before`: the version that it was made from, and its files.

        If no other writer has committed since these files were known, the files of the new version are known.
        """
        version, listing = before
        alone = self.found() is listing and self.log.version == version + 1
        self.known = self.listing() if alone else self.found().changed(gone, added)

    def is_overtaken(self, where: Filter) -> bool:
        """Return whether another writer may have changed rows that match `where` since the table was opened."""
        known, live = self.found(), self.listing()
        if known is live:
            return False
        return {file.path for file in known.matching(where)} != {file.path for file in live.matching(where)}


def arrow_rows(contract: TableContract, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table with the contract's schema.

    Raise an error if a row has an unknown column, a value of another type, or a null that the contract does not allow.
    """
    known = set(contract.names)
    for row in rows:
        strange = sorted(set(row) - known)
        missing = [c.name for c in contract.columns if not c.nullable and row.get(c.name) is None]
        empty = [name for name in contract.partitioned_by if row.get(name) == ""]  # Delta stores it as null
        if strange or missing or empty:
            problems = [f"`{name}` is not in the contract" for name in strange]
            problems += [f"`{name}` must not be null" for name in missing]
            problems += [f"`{name}` must not be empty" for name in empty]
            raise SpillwayError(
                f"{contract.table} must be written as its column contract says: " + "; ".join(problems)
            )
    schema = pa.schema([pa.field(f.name, f.type) for f in contract.arrow_schema])
    columns = [_array(contract, f, [row.get(f.name) for row in rows]) for f in schema]
    return pa.table(columns, schema=schema)


def _array(contract: TableContract, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array([_to_structs(value, field.type) for value in values], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise SpillwayError(
            f"{contract.table} must be written as its column contract says: `{field.name}`: {problem}"
        ) from problem


def _to_structs(value: Any, kind: pa.DataType) -> Any:
    """Convert tuples to the structs that they represent, and mappings to lists of pairs, as Arrow requires."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, tuple):
        return {
            kind.field(i).name: _to_structs(item, kind.field(i).type)
            for i, item in zip(range(kind.num_fields), value, strict=True)
        }
    if pa.types.is_list(kind):
        return [_to_structs(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return list(value.items())
    return value


ROWS_AT_A_TIME = 131_072


def matching_rows(
    file: DataFile,
    asked: pa.Schema,
    where: Filter,
    never_null: Container[str] = (),
    cache: ReadCache | None = None,
) -> pa.Table:
    """Return the rows of a file that match `where`, with the columns of `asked`, including partition columns.

    `never_null`: columns without nulls, for which the log may prove that all rows match. `cache`: decodes the file, if
    it is small, and keeps its rows for the next question.
    """
    if all_match(file, where, never_null):
        where = {}
    partition = dict(file.partition)
    inside = pa.schema([one for one in asked if one.name not in partition])
    parts = []
    for part in _parts(file, inside, where, cache):
        for one in (one for one in asked if one.name in partition):
            value = pa.repeat(pa.scalar(partition[one.name], one.type), part.num_rows)
            part = part.append_column(one, value)
        part = part.filter(match_mask(part, where)) if where else part
        parts.append(part.select(asked.names))
    return pa.concat_tables(parts) if parts else asked.empty_table()


def largest_value(
    files: Iterable[DataFile],
    asked: pa.Schema,
    by: str,
    where: Filter,
    never_null: Container[str] = (),
    cache: ReadCache | None = None,
) -> Any:
    """Return the largest value of an integer column among the rows that match; None if no row matches.

    Files are read in descending order of their largest possible value, until no other file can have a larger one.
    """

    def order(file: DataFile) -> tuple[bool, int]:
        high = file.high(by)
        return high is not None, 0 if high is None else -high

    best: Any = None
    for file in sorted(files, key=order):
        if best is not None and file.high(by) is not None and file.high(by) <= best:
            break
        found = pc.max(matching_rows(file, asked, where, never_null, cache)[by]).as_py()
        best = found if best is None else best if found is None else max(best, found)
    return best


def _parts(file: DataFile, inside: pa.Schema, where: Filter, cache: ReadCache | None) -> Iterator[pa.Table]:
    if not inside.names:
        # only partition columns are read: return as many rows as the file has
        yield pa.table({"": pa.nulls(file.records or row_count(file))})
        return
    if cache is not None and file.size <= SMALL_BYTES:
        yield conform_to_schema(cache.rows(file), inside)
        return
    ranges = [one for one in integer_ranges(where) if one[0] in inside.names]
    for part in rows_of(file, inside.names, ROWS_AT_A_TIME, ranges):
        yield conform_to_schema(part, inside)


@dataclass(frozen=True)
class StoredFiles:
    """Files of a table, small enough to send to a task; `on` returns a reader for one date.

    The reader goes forward through the files and decodes every row group once.
    """

    files: tuple[DataFile, ...]
    order: str = "seq"

    def reader_for(self, day: date) -> RowReader:
        """Return a reader of the files of one batch date: a frame has no rows in other files."""
        return RowReader(
            [file for file in self.files if as_date(file.value("batch_date")) == day], self.order
        )


__all__ = ["Between", "Draft", "FileTask", "Make", "Table", "Tables"]

ATTEMPTS = 8
"""The number of attempts at a commit that is refused although no other writer has committed."""
_NOTHING: Sequence[tuple[str, str, str]] = ()


class Tables:
    """All tables below the roots of `settings`. Each is opened when it is first used, and only once."""

    def __init__(self, settings: Settings, cache: ReadCache | None = None) -> None:
        """`cache`: the cache of another opening of these tables."""
        self.settings = settings
        self.contracts = table_contracts()
        self._cache = ReadCache() if cache is None else cache
        self._open: dict[tuple[str, str | None], Table] = {}
        self._lock = threading.Lock()

    def now(self) -> Tables:
        """Return the tables as they are now; a step begins with this."""
        return Tables(self.settings, self._cache)

    def contract(self, table: str) -> TableContract:
        if table not in self.contracts:
            raise InvalidValue(
                "table", "have a column contract", table, f"write {table}.yaml, see schemas/tables"
            )
        return self.contracts[table]

    def path(self, table: str, stream: str | None = None) -> str:
        """Return the path of a table below its root; a table per stream has one folder per stream."""
        contract = self.contract(table)
        root = self.settings.destination if contract.root == "destination" else self.settings.lake
        if (contract.scope == "stream") != (stream is not None):
            rule = "name a stream" if contract.scope == "stream" else "name no stream"
            raise SpillwayError(f"table {table} must {rule}, got {stream!r}; see its column contract")
        return f"{root}/{table}" + (f"/{stream}" if stream else "")

    def names(self) -> list[tuple[str, str | None]]:
        """Return the names of all tables that may exist: table and, if it is a table per stream, stream."""
        found: list[tuple[str, str | None]] = []
        for name, contract in sorted(self.contracts.items()):
            root = self.settings.destination if contract.root == "destination" else self.settings.lake
            if contract.scope == "stream":
                found += [(name, stream) for stream in blobs.list_folders(f"{root}/{name}")]
            else:
                found.append((name, None))
        return found

    def at(self, table: str, stream: str | None = None) -> Table:
        """Return a table; `stream` is required if there is a table per stream."""
        with self._lock:
            if (table, stream) not in self._open:
                path, contract = self.path(table, stream), self.contract(table)
                log = open_log(path)
                refuse_newer(path, contract, log.format_version)
                refuse_earlier_names(path, contract, log.version, log.format_version)
                # a table of one stream may have many files, and each step opens it once
                cache = self._cache if contract.scope == "shared" else ReadCache()
                self._open[table, stream] = Table(path, contract, OpenedLog(path, log, cache))
            return self._open[table, stream]

    def own(self, path: str, contract: TableContract) -> Table:
        """Return a table at any path outside the lake, for a caller that requested it."""
        return Table(path, contract, OpenedLog(path, open_log(path)))

    def forget_lake(self) -> None:
        """Free the memory that is used below the lake's root alone."""
        self._forget({self.settings.lake})

    def forget(self) -> None:
        """Free the memory that these tables use; files on a disk stay."""
        self._forget({self.settings.lake, self.settings.destination, self.settings.landing})

    def _forget(self, roots: set[str]) -> None:
        for root in roots:
            if root.startswith(blobs.MEMORY):
                blobs.free_memory(root)
                logs.forget_tables(root)


class Table:
    """A table as it was when it was opened, or directly after the last write through this object."""

    def __init__(self, path: str, contract: TableContract, opened: OpenedLog) -> None:
        self.path, self.contract = path, contract
        self._opened = opened
        self._log, self._lock = opened.log, opened.lock
        self._known_fields: tuple[pa.Schema | None, dict[tuple[str, ...], pa.Schema]] = (None, {})

    def with_attributes(
        self,
        attributes: Sequence[tuple[str, str]],
        added: Sequence[tuple[str, str, str]] = _NOTHING,
        own_bounds: Sequence[str] = (),
    ) -> Table:
        """Return a stream's table with the columns that its contract and its levers write."""
        return Table(self.path, self.contract.with_attributes(attributes, added, own_bounds), self._opened)

    @property
    def exists(self) -> bool:
        return self._log.version >= 0

    @property
    def version(self) -> int:
        return self._log.version

    @property
    def format_version(self) -> int | None:
        """The version of the column contract by which the table was written; None if the table does not state it."""
        return self._log.format_version

    @property
    def lacks_change_feed(self) -> bool:
        """Whether the contract states a change data feed that the table does not have."""
        return self.contract.change_feed and self.exists and not self._log.has_change_feed

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, or the columns of its contract if there is no table yet."""
        found = self._log.schema
        return self.contract.arrow_schema if found is None else found

    def types(self) -> dict[str, str]:
        """Return the type of each column, by name, in the spelling of column contracts."""
        return {field.name: spark_type(field.type) for field in self.schema}

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the live files, in order."""
        with self._lock:
            return self._opened.listing().paths

    def files(self, **where: Any) -> list[DataFile]:
        """Return the live files that may hold rows that match, in path order."""
        with self._lock:
            return self._opened.listing().matching(where)

    def stored_files(self, order: str = "seq", **where: Any) -> StoredFiles:
        """Return what tasks read of the table, along an ordered column."""
        return StoredFiles(tuple(self.files(**where)), order)

    def rows(self, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """Return the rows that match; no rows if there is no table."""
        names = list(columns) if columns is not None else self._every_column
        asked = self._fields(dict.fromkeys([*names, *where]))
        never_null, cache = self._never_null, self._cache
        parts = [
            matching_rows(file, asked, where, never_null, cache).select(names) for file in self.files(**where)
        ]
        return pa.concat_tables(parts) if parts else self._fields(names).empty_table()

    def has_rows(self, **where: Any) -> bool:
        """Return whether a row matches; if the log proves it, no file is read."""
        files = [file for file in self.files(**where) if file.records]
        if any(all_match(file, where, self._never_null) for file in files):
            return True
        asked = self._fields(where)
        return any(matching_rows(file, asked, where, (), self._cache).num_rows for file in files)

    def make_once(self, key: tuple[Any, ...], make: Callable[[Table], Value], **where: Any) -> Value:
        """Return what `make` makes of the rows that match; it is made once as long as their files are the same.

        `key` tells values row_group_column that are made of the same rows.
        """
        return self._opened.cache.make_once((self.path, *key), self.files(**where), lambda: make(self))

    @cached_property
    def _never_null(self) -> frozenset[str]:
        return frozenset(column.name for column in self.contract.columns if not column.nullable)

    def newest(
        self, by: str, columns: Sequence[str] | None = None, below: int | None = None, **where: Any
    ) -> pa.Table:
        """Return those of the matching rows that have the largest `by`, below `below` if it is given.

        Only files that may hold that value are read.
        """
        where |= {} if below is None else {by: Between(high=below - 1)}
        asked = self._fields(dict.fromkeys([by, *where]))
        best = largest_value(self.files(**where), asked, by, where, self._never_null, self._cache)
        names = list(columns) if columns is not None else self._every_column
        return self._fields(names).empty_table() if best is None else self.rows(names, **{**where, by: best})

    def last(self, by: str, most: int, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """Return those of the matching rows that have the `most` largest values of `by`.

        Of other rows, only the column `by` is read.
        """
        held = self.rows([by], **where)[by].unique().sort(order="descending")
        since = {by: Between(held[most - 1].as_py())} if len(held) > most else {}
        return self.rows(columns, **where, **since)

    @property
    def _cache(self) -> ReadCache | None:
        """Where the rows of small files are kept; only shared tables are read often."""
        return self._opened.cache if self.contract.scope == "shared" else None

    @property
    def _every_column(self) -> list[str]:
        """The columns of the table, and those that its contract has gained since the table was last written."""
        return list(dict.fromkeys([*self.schema.names, *self.contract.names]))

    def _fields(self, names: Iterable[str]) -> pa.Schema:
        """Return columns by name, with the types of the table.

        A column that the table lacks has the type of the contract.
        """
        have, wanted, names = self.schema, self.contract.arrow_schema, tuple(names)
        known = self._known_fields
        if known[0] is not have:
            known = self._known_fields = (have, {})
        if names in known[1]:
            return known[1][names]
        found = []
        for name in names:
            schema = have if name in have.names else wanted
            if name not in schema.names:
                raise InvalidValue(
                    "column", f"be one of {', '.join(have.names)}", name, "ask for another", self.path
                )
            found.append(pa.field(name, schema.field(name).type))
        known[1][names] = pa.schema(found)
        return known[1][names]

    def draft(
        self,
        engine: Engine,
        pieces: Sequence[FileTask],
        make: Make,
        check: ReadBack | None = None,
        rows_in_a_group: int | None = None,
        keys: Sequence[str] = (),
    ) -> Draft:
        """Write one file per piece, by the engine's tasks; a piece without rows has no file.

        `check`: called by the task with each file that it wrote. `keys`: columns by which a file's rows are stored if
        that takes fewer bytes.
        """
        maker = self.maker(make, check, rows_in_a_group, keys)
        name = self.contract.table
        label = name if self.contract.scope == "shared" else f"{name}/{self.path.rpartition('/')[2]}"
        (draft,) = run_alone(engine, draft_files([maker], [{0: piece} for piece in pieces]), label)
        return draft

    def maker(
        self,
        make: Make,
        check: ReadBack | None = None,
        rows_in_a_group: int | None = None,
        keys: Sequence[str] = (),
    ) -> FileMaker:
        """Return what tasks write files of this table with; see `draft`."""
        schema, name = self.contract.file_schema, self.contract.table
        return FileMaker(name, self.path, schema, make, check, rows_in_a_group, tuple(keys))

    def discard(self, draft: Draft) -> None:
        """Remove the files of a draft, which no table has."""
        discard(self.path, draft.written)

    def publish(self, written: Iterable[WrittenFile], **where: Any) -> list[DataFile]:
        """Replace the rows that match by the rows of these files, in one commit; return the removed files."""
        return self._commit(list(written), where)

    def replace(self, rows: Iterable[Mapping[str, Any]], **where: Any) -> None:
        """Replace the rows that match by a small number of rows, in one commit."""
        self._commit_small(self._replacing(rows, where), where)

    def write_replacement(self, rows: Iterable[Mapping[str, Any]], where: Filter) -> list[WrittenFile]:
        """Write the files of rows that replace those that match; no commit has them yet."""
        return self._write(self._replacing(rows, where))

    def _replacing(self, rows: Iterable[Mapping[str, Any]], where: Filter) -> pa.Table:
        """Return rows that replace those that match; refuse rows that do not match themselves."""
        data = arrow_rows(self.contract, list(rows))
        if not pc.all(match_mask(data, where), min_count=0).as_py():
            raise SpillwayError(
                f"{self.path}: rows must match {format_filter(where)}, which they replace, or a rerun would double "
                "them, got others among them; this is a fault of the stage, report it"
            )
        return data

    def publish_together(self, changes: Sequence[Change]) -> list[list[DataFile] | Exception]:
        """Make several replacements in one commit; return for each the removed files, or its error.

        A replacement that another writer has overtaken is refused alone. If the commit fails for another reason, each
        replacement is committed alone, so that one fault stays one fault. At the destination, each is committed alone,
        because its commit counts as sent.
        """
        if len(changes) > 1 and self.contract.root != "destination":
            try:
                return [*self._commit_all([_Write(one.written, one.where, one.where) for one in changes])]
            except StoreFault as problem:
                return [problem for _ in changes]  # the commit may have succeeded
            except Exception:
                pass  # find out below which of them is at fault
        found: list[list[DataFile] | Exception] = []
        for one in changes:
            try:
                found.append(self.publish(one.written, **one.where))
            except Exception as problem:
                found.append(problem)
        return found

    def append(self, rows: Iterable[Mapping[str, Any]], unless_written: Filter | None = None) -> None:
        """Add a small number of rows.

        `unless_written`: raise `ConcurrentRun` if another writer has changed rows that match it since they were read.
        """
        self._commit_small(arrow_rows(self.contract, list(rows)), None, unless_written)

    def delete(self, **where: Any) -> list[DataFile]:
        """Delete the rows that match; return the removed files."""
        return self._commit([], where) if self.exists else []

    def erase(self, files: Iterable[DataFile]) -> None:
        """Remove files from the disk that are in no commit."""
        for file in files:
            blobs.remove(file.path)

    def _commit_small(self, data: pa.Table, where: Filter | None, watched: Filter | None = None) -> None:
        written = self._write(data)
        try:
            self._commit(written, where, watched)
        except StoreFault:
            raise  # the commit may have succeeded; if not, `spillway keep` removes the files
        except SpillwayError:
            discard(self.path, written)
            raise

    def _commit(
        self, written: list[WrittenFile], where: Filter | None, watched: Filter | None = None
    ) -> list[DataFile]:
        """Replace the rows that match `where`; refuse if another writer has changed rows that match `watched`."""
        (found,) = self._commit_all([_Write(written, where, where if watched is None else watched)])
        if isinstance(found, ConcurrentRun):
            raise found
        return found

    def _commit_all(self, writes: Sequence[_Write]) -> list[list[DataFile] | ConcurrentRun]:
        """Make all writes in one commit; return the removed files of each, or an error if it was overtaken.

        Two writes must not match rows of the same file.
        """
        found: dict[int, list[DataFile] | ConcurrentRun] = {}
        with self._lock:
            self._opened.found()  # list the known files before anything is committed
            if not self.exists:
                if not any(one.written for one in writes):
                    return [[] for _ in writes]
                self._log.create(self.contract)
            self.evolve_schema()
            refused = 0
            # a commit that lost against another one is tried again: one of any number of writers always succeeds
            while going := self._not_overtaken(writes, found):
                removals = {place: self._find_removals(one.where) for place, one in going.items()}
                gone = [file for files, _ in removals.values() for file in files]
                left = [one for _, files in removals.values() for one in files]
                written = [one for write in going.values() for one in write.written]
                if len({file.path for file in gone}) < len(gone):
                    discard(self.path, left)
                    raise SpillwayError(
                        f"{self.path}: writes of one commit must change different files, got one twice"
                    )
                if not (gone or written):
                    self._log.refresh()  # only a refresh shows another writer's commit here
                    found |= {place: [] for place in self._not_overtaken(going, found)}
                    break
                added, before = [*written, *left], (self._log.version, self._opened.listing())
                try:
                    self._log.commit(added, gone)
                except StoreFault:
                    raise  # the commit may have succeeded
                except SpillwayError:
                    discard(self.path, left)
                    raise
                except CommitConflict as problem:
                    self._log.refresh()
                    if not self._is_committed(added):
                        discard(self.path, left)
                        refused += self._log.version == before[0]
                        if refused >= ATTEMPTS:
                            raise ExternalFault(
                                f"{self.path} must take the commit, got {problem}; see whether the store can be written"
                            ) from problem
                        continue
                self._opened.note(before, gone, (data_file(self.path, one, self.schema) for one in added))
                found |= {place: files for place, (files, _) in removals.items()}
                break
            return [found[place] for place in range(len(writes))]

    def _not_overtaken(
        self,
        writes: Sequence[_Write] | Mapping[int, _Write],
        found: dict[int, list[DataFile] | ConcurrentRun],
    ) -> dict[int, _Write]:
        """Return the writes, by place, that may be committed; note an error in `found` for those that may not."""
        going = {}
        for place, one in writes.items() if isinstance(writes, Mapping) else enumerate(writes):
            if place in found:
                continue
            if one.watched is None or not self._opened.is_overtaken(one.watched):
                going[place] = one
            else:
                found[place] = ConcurrentRun(
                    f"{self.path}: another run wrote {format_filter(one.watched)} at the same time; nothing was "
                    "doubled, run it again"
                )
        return going

    def rewrite(self, gone: Sequence[DataFile], written: Sequence[WrittenFile]) -> None:
        """Replace files by others with the same rows.

        Raise `ConcurrentRun` if another writer has changed the replaced files.
        """
        with self._lock:
            self._opened.found()  # list the known files before anything is committed
            for _ in range(ATTEMPTS):
                before = self._log.version, self._opened.listing()
                if any(file.path not in before[1] for file in gone):
                    break
                try:
                    self._log.commit(written, gone, same_rows=True)
                except CommitConflict:
                    self._log.refresh()
                    continue
                self._opened.note(before, gone, (data_file(self.path, one, self.schema) for one in written))
                return
            if not self._is_committed(written):
                discard(self.path, written)
                raise ConcurrentRun(
                    f"{self.path}: another run changed the files during compaction; nothing was compacted, "
                    "and the next spillway_keep tries again"
                )

    def overwrite(self, written: Sequence[WrittenFile], schema: pa.Schema) -> None:
        """Replace all rows and the columns in one commit; create the table if there is none.

        Raise `ConcurrentRun` if another writer has committed to the table since it was opened.
        """
        with self._lock:
            if not self.exists:
                self._log.create(self.contract)
            try:
                self._log.overwrite(written, schema)
            except CommitConflict as problem:
                discard(self.path, written)
                raise ConcurrentRun(
                    f"{self.path}: another run wrote to the table while it was migrated; nothing was changed, stop "
                    "the runs of this lake and migrate it again"
                ) from problem
            self._opened.known = self._opened.listing()

    def _is_committed(self, added: Sequence[WrittenFile]) -> bool:
        """Return whether a commit succeeded although its answer was lost."""
        live = self._opened.listing()
        return bool(added) and all(f"{self.path}/{one.path}" in live for one in added)

    def _find_removals(self, where: Filter | None) -> tuple[list[DataFile], list[WrittenFile]]:
        """Return the files to remove, and new files with those of their rows that do not match `where`."""
        gone: list[DataFile] = []
        left: list[WrittenFile] = []
        if where is None:
            return gone, left
        for file in self._opened.listing().matching(where):
            if not all_match(file, where, self._never_null):
                partition = {name: str(value) for name, value in file.partition}
                # batches keep their row groups: shared ones stay shared, separate ones stay separate
                others, as_they_come = (
                    self._rows_not_matching(file, where),
                    bool(self.contract.row_group_column),
                )
                one = write_file(
                    self.path,
                    partition,
                    self.file_schema,
                    others,
                    as_they_come=as_they_come,
                    keys=sort_keys_of(file),
                    order_stays=True,
                )
                if one is not None and one.rows == file.records:
                    discard(self.path, [one])  # no row of it matched
                    continue
                if one is not None:
                    left.append(one)
            gone.append(file)
        return gone, left

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are stored in the table's files: all but the partition columns."""
        names = [name for name in self.schema.names if name not in self.contract.partitioned_by]
        return self._fields(names)

    def _rows_not_matching(self, file: DataFile, where: Filter) -> Iterator[pa.Table]:
        """Yield the rows of a file that do not match."""
        schema = self.file_schema
        inside = {name: value for name, value in where.items() if name not in self.contract.partitioned_by}
        parts = (
            groups_of(file, schema.names)
            if self.contract.row_group_column
            else rows_of(file, schema.names, ROWS_AT_A_TIME)
        )
        for part in parts:
            part = conform_to_schema(part, schema)
            rest = part.filter(pc.invert(match_mask(part, inside)))
            if rest.num_rows:
                yield rest

    def evolve_schema(self, relax: bool = False) -> None:
        """Add the columns, and the fields of structs, that the contract has gained. A type never changes otherwise.

        `relax`: also let columns be null that could not be null before, and begin the change data feed that the
        contract states.
        """
        for attempt in range(ATTEMPTS):
            lacks, version = schema_differences(self.schema, self.contract), self._log.format_version
            refuse_newer(self.path, self.contract, version)
            for name, was, now in lacks.impossible:
                raise ExternalFault(
                    f"{self.path}: column `{name}` must stay {was}, got {now}; "
                    "give the changed attribute a new name in the contract"
                )
            for name in lacks.relaxed if not relax else ():
                rule = f"let `{name}` be null, as version {self.contract.version} does"
                raise InvalidExternalValue(
                    "format version", rule, version, "run `spillway migrate`", self.path
                )
            try:
                if lacks.added or lacks.grown:
                    self._log.add_columns(pa.schema([*lacks.added, *lacks.grown]))
                feed = relax and self.lacks_change_feed
                if lacks.relaxed or feed or version != self.contract.version:
                    self._log.set_format(self.contract.version, lacks.relaxed, feed)
                return
            except CommitConflict:
                self._log.refresh()
                if attempt == ATTEMPTS - 1:
                    raise

    def _write(self, data: pa.Table) -> list[WrittenFile]:
        """Write the rows as files, one per partition."""
        names = list(self.contract.partitioned_by)
        if not data.num_rows:
            return []
        keys = data.select(names).group_by(names).aggregate([]).to_pylist() if names else [{}]
        files = []
        for key in keys:
            part = data.filter(match_mask(data, key))
            text = {name: str(value) for name, value in key.items()}
            one = write_file(self.path, text, self.contract.file_schema, [part])
            assert one is not None, "a partition that was found has rows"
            files.append(one)
        return files


@dataclass(frozen=True)
class _Write:
    """New files of a commit, the filter of the rows that they replace, and that of rows that others must not change."""

    written: Sequence[WrittenFile]
    where: Filter | None
    watched: Filter | None


@dataclass(frozen=True)
class Change:
    """A request of a step to replace rows of a table; the changes that several streams request share a commit."""

    table: Table
    written: tuple[WrittenFile, ...]
    where: Filter

    def answer_all(self, requests: Sequence[Change]) -> list[list[DataFile] | Exception]:
        """Commit the changes, those of a table in one commit; return for each the removed files, or its error."""
        tables = {id(one.table): one.table for one in requests}
        answers: dict[int, list[DataFile] | Exception] = {}
        for name, table in tables.items():
            places = [place for place, one in enumerate(requests) if id(one.table) == name]
            made = table.publish_together([requests[place] for place in places])
            answers |= dict(zip(places, made, strict=True))
        return [answers[place] for place in range(len(requests))]


def publish_files(table: Table, written: Iterable[WrittenFile], **where: Any) -> Step[list[DataFile]]:
    """Do what `Table.publish` does, as a step that shares its commit with other streams."""
    (found,) = yield Change(table, tuple(written), where)
    if isinstance(found, Exception):
        raise found
    files: list[DataFile] = found
    return files


def replace_rows(table: Table, rows: Iterable[Mapping[str, Any]], **where: Any) -> Step[None]:
    """Do what `Table.replace` does, as a step that shares its commit with other streams."""
    written = table.write_replacement(rows, where)
    try:
        yield from publish_files(table, written, **where)
    except StoreFault:
        raise  # the commit may have succeeded; if not, `spillway keep` removes the files
    except SpillwayError:
        discard(table.path, written)
        raise

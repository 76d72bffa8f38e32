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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.engine.protocol import Engine
from spillway.errors import ConcurrentRun, LiesElsewhere, Refused, RefusedElsewhere, SpillwayError, StoreFault
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store import delta_log as logs
from spillway.store.delta_log import Log, Stale, data_file, log_of
from spillway.store.drafts import Draft, Make, Piece, ReadBack, discard, drafted
from spillway.store.files import DataFile, RowReader, as_date, groups_of, keys_of, row_count, rows_of
from spillway.store.filters import Between, Filter, all_match, in_words, matching, may_hold, spans
from spillway.store.schemas import TableContract, differences, refuse_newer, spark_type, table_contracts
from spillway.store.writing import Written, shaped, write_file


@dataclass
class OpenedLog:
    """A table's log, and the files that are known since it was opened.

    Known files are those found at the first read, with the changes of this object's own commits.
    """

    log: Log
    lock: threading.RLock = field(default_factory=threading.RLock)
    known: dict[str, DataFile] | None = None

    def found(self) -> dict[str, DataFile]:
        if self.known is None:
            self.known = {file.path: file for file in self.log.files()}
        return self.known

    def note(self, gone: Iterable[DataFile], added: Iterable[DataFile]) -> None:
        """Note the files that a commit removed and added."""
        known = self.found()
        for file in gone:
            known.pop(file.path, None)
        known |= {file.path: file for file in added}

    def is_overtaken(self, where: Filter) -> bool:
        """Return whether another writer may have changed rows that match `where` since the table was opened."""
        known, live = self.found(), {file.path: file for file in self.log.files()}
        strange = [live[path] if path in live else known[path] for path in live.keys() ^ known.keys()]
        return any(may_hold(file, where) for file in strange)


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
        return pa.array([_named(value, field.type) for value in values], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise SpillwayError(
            f"{contract.table} must be written as its column contract says: `{field.name}`: {problem}"
        ) from problem


def _named(value: Any, kind: pa.DataType) -> Any:
    """Convert tuples to the structs that they represent, and mappings to lists of pairs, as Arrow requires."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, tuple):
        return {
            kind.field(i).name: _named(item, kind.field(i).type)
            for i, item in zip(range(kind.num_fields), value, strict=True)
        }
    if pa.types.is_list(kind):
        return [_named(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return list(value.items())
    return value


ROWS_AT_A_TIME = 131_072


def matching_rows(file: DataFile, asked: pa.Schema, where: Filter) -> pa.Table:
    """Return the rows of a file that match `where`, with the columns of `asked`, including partition columns."""
    partition = dict(file.partition)
    inside = pa.schema([one for one in asked if one.name not in partition])
    parts = []
    for part in _parts(file, inside, where):
        for one in (one for one in asked if one.name in partition):
            value = pa.repeat(pa.scalar(partition[one.name], one.type), part.num_rows)
            part = part.append_column(one, value)
        part = part.filter(matching(part, where)) if where else part
        parts.append(part.select(asked.names))
    return pa.concat_tables(parts) if parts else asked.empty_table()


def largest(files: Iterable[DataFile], asked: pa.Schema, by: str, where: Filter) -> Any:
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
        found = pc.max(matching_rows(file, asked, where)[by]).as_py()
        best = found if best is None else best if found is None else max(best, found)
    return best


def _parts(file: DataFile, inside: pa.Schema, where: Filter) -> Iterator[pa.Table]:
    if not inside.names:
        # only partition columns are read: return as many rows as the file has
        yield pa.table({"": pa.nulls(file.records or row_count(file))})
        return
    ranges = [one for one in spans(where) if one[0] in inside.names]
    for part in rows_of(file, inside.names, ROWS_AT_A_TIME, ranges):
        yield shaped(part, inside)


@dataclass(frozen=True)
class StoredFiles:
    """Files of a table, small enough to send to a task; `on` returns a reader for one date.

    The reader goes forward through the files and decodes every row group once.
    """

    files: tuple[DataFile, ...]
    order: str = "seq"

    def on(self, day: date) -> RowReader:
        """Return a reader of the files of one batch date: a frame has no rows in other files."""
        return RowReader(
            [file for file in self.files if as_date(file.value("batch_date")) == day], self.order
        )


__all__ = ["Between", "Draft", "Make", "Piece", "Table", "Tables"]

ATTEMPTS = 8
"""The number of attempts at a commit that is refused although no other writer has committed."""
_NOTHING: Sequence[tuple[str, str, str]] = ()


class Tables:
    """All tables below the roots of `settings`. Each is opened when it is first used, and only once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.contracts = table_contracts()
        self._open: dict[tuple[str, str | None], Table] = {}
        self._lock = threading.Lock()

    def now(self) -> Tables:
        """Return the tables as they are now; a step begins with this."""
        return Tables(self.settings)

    def contract(self, table: str) -> TableContract:
        if table not in self.contracts:
            raise Refused("table", "have a column contract", table, f"write {table}.yaml, see schemas/tables")
        return self.contracts[table]

    def path(self, table: str, stream: str | None = None) -> str:
        """Return the path of a table below its root; a table per stream has one folder per stream."""
        contract = self.contract(table)
        root = self.settings.destination if contract.root == "destination" else self.settings.lake
        if (contract.scope == "stream") != (stream is not None):
            rule = "name a stream" if contract.scope == "stream" else "name no stream"
            raise SpillwayError(f"table {table} must {rule}, got {stream!r}; see its column contract")
        return f"{root}/{table}" + (f"/{stream}" if stream else "")

    def at(self, table: str, stream: str | None = None) -> Table:
        """Return a table; `stream` is required if the table exists once per stream."""
        with self._lock:
            if (table, stream) not in self._open:
                path, contract = self.path(table, stream), self.contract(table)
                log = log_of(path)
                refuse_newer(path, contract, log.format_version)
                self._open[table, stream] = Table(path, contract, OpenedLog(log))
            return self._open[table, stream]

    def own(self, path: str, contract: TableContract) -> Table:
        """Return a table at any path outside the lake, for a caller that requested it."""
        return Table(path, contract, OpenedLog(log_of(path)))

    def forget_lake(self) -> None:
        """Free the memory that is used below the lake's root alone."""
        self._forget({self.settings.lake})

    def forget(self) -> None:
        """Free the memory that these tables use; files on a disk stay."""
        self._forget({self.settings.lake, self.settings.destination, self.settings.landing})

    def _forget(self, roots: set[str]) -> None:
        for root in roots:
            if root.startswith(blobs.MEMORY):
                blobs.forget(root)
                logs.forget_tables(root)


class Table:
    """A table as it was when it was opened, or directly after the last write through this object."""

    def __init__(self, path: str, contract: TableContract, opened: OpenedLog) -> None:
        self.path, self.contract = path, contract
        self._opened = opened
        self._log, self._lock = opened.log, opened.lock

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
    def schema(self) -> pa.Schema:
        """The table's columns, or the columns of its contract if there is no table yet."""
        found = self._log.schema
        return self.contract.arrow_schema if found is None else found

    def types(self) -> dict[str, str]:
        """Return the type of each column, by name, in the spelling of column contracts."""
        return {field.name: spark_type(field.type) for field in self.schema}

    def files(self, **where: Any) -> list[DataFile]:
        """Return the live files that may hold rows that match, in path order."""
        with self._lock:
            return [file for file in self._log.files() if may_hold(file, where)]

    def stored(self, order: str = "seq", **where: Any) -> StoredFiles:
        """Return what tasks read of the table, along an ordered column."""
        return StoredFiles(tuple(self.files(**where)), order)

    def rows(self, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """Return the rows that match; no rows if there is no table."""
        names = list(columns) if columns is not None else self._every_column
        asked = self._fields(dict.fromkeys([*names, *where]))
        parts = [matching_rows(file, asked, where).select(names) for file in self.files(**where)]
        return pa.concat_tables(parts) if parts else self._fields(names).empty_table()

    def newest(
        self, by: str, columns: Sequence[str] | None = None, below: int | None = None, **where: Any
    ) -> pa.Table:
        """Return those of the matching rows that have the largest `by`, below `below` if it is given.

        Only files that may hold that value are read.
        """
        where |= {} if below is None else {by: Between(high=below - 1)}
        best = largest(self.files(**where), self._fields(dict.fromkeys([by, *where])), by, where)
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
    def _every_column(self) -> list[str]:
        """The columns of the table, and those that its contract has gained since the table was last written."""
        return list(dict.fromkeys([*self.schema.names, *self.contract.names]))

    def _fields(self, names: Iterable[str]) -> pa.Schema:
        """Return columns by name, with the types of the table.

        A column that the table lacks has the type of the contract.
        """
        have, wanted = self.schema, self.contract.arrow_schema
        found = []
        for name in names:
            schema = have if name in have.names else wanted
            if name not in schema.names:
                raise Refused(
                    "column", f"be one of {', '.join(have.names)}", name, "ask for another", self.path
                )
            found.append(pa.field(name, schema.field(name).type))
        return pa.schema(found)

    def draft(
        self,
        engine: Engine,
        pieces: Sequence[Piece],
        make: Make,
        check: ReadBack | None = None,
        rows_in_a_group: int | None = None,
        keys: Sequence[str] = (),
    ) -> Draft:
        """Write one file per piece, by the engine's tasks; a piece without rows has no file.

        `check`: called by the task with each file that it wrote. `keys`: columns by which a file's rows are stored if
        that takes fewer bytes.
        """
        schema, name = self.contract.file_schema, self.contract.table
        label = name if self.contract.scope == "shared" else f"{name}/{self.path.rpartition('/')[2]}"
        return drafted(engine, pieces, make, name, self.path, schema, check, rows_in_a_group, keys, label)

    def discard(self, draft: Draft) -> None:
        """Remove the files of a draft, which no table has."""
        discard(self.path, draft.written)

    def publish(self, written: Iterable[Written], **where: Any) -> list[DataFile]:
        """Replace the rows that match by the rows of these files, in one commit; return the removed files."""
        return self._commit(list(written), where)

    def replace(self, rows: Iterable[Mapping[str, Any]], **where: Any) -> None:
        """Replace the rows that match by a small number of rows, in one commit."""
        data = arrow_rows(self.contract, list(rows))
        if not pc.all(matching(data, where), min_count=0).as_py():
            raise SpillwayError(
                f"{self.path}: rows must match {in_words(where)}, which they replace, or a rerun would double them, "
                "got others among them; this is a fault of the stage, report it"
            )
        self._commit_small(data, where)

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
        self, written: list[Written], where: Filter | None, watched: Filter | None = None
    ) -> list[DataFile]:
        """Replace the rows that match `where`; refuse if another writer has changed rows that match `watched`."""
        watched = where if watched is None else watched
        with self._lock:
            self._opened.found()  # list the known files before anything is committed
            if not self.exists:
                if not written:
                    return []
                self._log.create(self.contract)
            self.fit()
            refused = 0
            # a commit that lost against another one is tried again: one of any number of writers always succeeds
            while watched is None or not self._opened.is_overtaken(watched):
                gone, left = self._taken_out(where)
                if not (gone or written):
                    self._log.refresh()  # only a refresh shows another writer's commit here
                    if watched is None or not self._opened.is_overtaken(watched):
                        return []
                    continue
                added, version = [*written, *left], self._log.version
                try:
                    self._log.commit(added, gone)
                except StoreFault:
                    raise  # the commit may have succeeded
                except SpillwayError:
                    discard(self.path, left)
                    raise
                except Stale as problem:
                    self._log.refresh()
                    if not self._stand(added):
                        discard(self.path, left)
                        refused += self._log.version == version
                        if refused >= ATTEMPTS:
                            raise LiesElsewhere(
                                f"{self.path} must take the commit, got {problem}; see whether the store can be written"
                            ) from problem
                        continue
                self._opened.note(gone, (data_file(self.path, one, self.schema) for one in added))
                return gone
            raise ConcurrentRun(
                f"{self.path}: another run wrote {in_words(watched)} at the same time; nothing was doubled, "
                "run it again"
            )

    def rewrite(self, gone: Sequence[DataFile], written: Sequence[Written]) -> None:
        """Replace files by others with the same rows.

        Raise `ConcurrentRun` if another writer has changed the replaced files.
        """
        with self._lock:
            self._opened.found()  # list the known files before anything is committed
            for _ in range(ATTEMPTS):
                live = {file.path for file in self._log.files()}
                if any(file.path not in live for file in gone):
                    break
                try:
                    self._log.commit(written, gone, same_rows=True)
                except Stale:
                    self._log.refresh()
                    continue
                self._opened.note(gone, (data_file(self.path, one, self.schema) for one in written))
                return
            if not self._stand(written):
                discard(self.path, written)
                raise ConcurrentRun(
                    f"{self.path}: another run wrote what was to be put together at the same time; it stays as that "
                    "run left it, the next spillway_keep looks at it again"
                )

    def _stand(self, added: Sequence[Written]) -> bool:
        """Return whether a commit succeeded although its answer was lost."""
        live = {file.path for file in self._log.files()}
        return bool(added) and all(f"{self.path}/{one.path}" in live for one in added)

    def _taken_out(self, where: Filter | None) -> tuple[list[DataFile], list[Written]]:
        """Return the files to remove, and new files with those of their rows that do not match `where`."""
        gone: list[DataFile] = []
        left: list[Written] = []
        if where is None:
            return gone, left
        never_null = {column.name for column in self.contract.columns if not column.nullable}
        for file in self._log.files():
            if not may_hold(file, where):
                continue
            if not all_match(file, where, never_null):
                partition = {name: str(value) for name, value in file.partition}
                # batches keep their row groups: shared ones stay shared, separate ones stay separate
                others, as_they_come = self._others(file, where), bool(self.contract.apart)
                one = write_file(
                    self.path,
                    partition,
                    self.file_schema,
                    others,
                    as_they_come=as_they_come,
                    keys=keys_of(file),
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

    def _others(self, file: DataFile, where: Filter) -> Iterator[pa.Table]:
        """Yield the rows of a file that do not match."""
        schema = self.file_schema
        inside = {name: value for name, value in where.items() if name not in self.contract.partitioned_by}
        parts = (
            groups_of(file, schema.names)
            if self.contract.apart
            else rows_of(file, schema.names, ROWS_AT_A_TIME)
        )
        for part in parts:
            part = shaped(part, schema)
            rest = part.filter(pc.invert(matching(part, inside)))
            if rest.num_rows:
                yield rest

    def fit(self, relax: bool = False) -> None:
        """Add the columns, and the fields of structs, that the contract has gained. A type never changes otherwise.

        `relax`: also let columns be null that could not be null before.
        """
        for attempt in range(ATTEMPTS):
            lacks, version = differences(self.schema, self.contract), self._log.format_version
            refuse_newer(self.path, self.contract, version)
            for name, was, now in lacks.impossible:
                raise LiesElsewhere(
                    f"{self.path}: column `{name}` must stay {was}, got {now}; "
                    "give the changed attribute a new name in the contract"
                )
            for name in lacks.relaxed if not relax else ():
                rule = f"let `{name}` be null, as version {self.contract.version} does"
                raise RefusedElsewhere("format version", rule, version, "run `spillway migrate`", self.path)
            try:
                if lacks.added or lacks.grown:
                    self._log.add_columns(pa.schema([*lacks.added, *lacks.grown]))
                if lacks.relaxed or version != self.contract.version:
                    self._log.fit(self.contract.version, lacks.relaxed)
                return
            except Stale:
                self._log.refresh()
                if attempt == ATTEMPTS - 1:
                    raise

    def _write(self, data: pa.Table) -> list[Written]:
        """Write the rows as files, one per partition."""
        names = list(self.contract.partitioned_by)
        if not data.num_rows:
            return []
        keys = data.select(names).group_by(names).aggregate([]).to_pylist() if names else [{}]
        files = []
        for key in keys:
            part = data.filter(matching(data, key))
            text = {name: str(value) for name, value in key.items()}
            one = write_file(self.path, text, self.contract.file_schema, [part])
            assert one is not None, "a partition that was found has rows"
            files.append(one)
        return files

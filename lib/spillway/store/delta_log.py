"""The log of a table: list the table's files, and add and remove files in one commit, or refuse.

`DeltaLog` is the log of a Delta table, by the public interface of delta-rs. `MemoryLog` is the same for tables under
`memory://`. Both refuse a commit (`CommitConflict`) if any other writer has committed since the log was last read.
`tables` decides whether that commit matters.

**Protocol.** Files are read and committed by what the log states of them. A table may require more of its readers and
writers: rows that are deleted in deletion vectors, columns with other names (column mapping), or constraints that
writers check. Without that feature the table would be misread. So a table that requires an unknown feature is refused
by the name of the feature. From reader version 3 and writer version 7 on, a protocol lists its features one by one.
Below that, a version includes all features up to it.

**Change data feed.** A commit replaces whole files. Delta's protocol then needs no files of changes: a reader takes the
rows of the files that the commit added as inserts, and those of the files that it removed as deletes. A commit that
changes no row (`dataChange` is false) is not in the feed.

**Broken first commits.** A table is created by a commit of its own, without a row. If the process dies meanwhile, that
commit may be incomplete. If no other commit follows it, the table never had a row. The broken file is then renamed to a
name that no reader of Delta reads, and the next writer creates the table again. If other commits follow, the log is
left as it is: only a person can know what the table held.

**Tables of other programs** are read as they are, and never repaired or moved.

**Size of a commit.** The actions of a commit are serialised as delta-rs writes them, and their bytes are counted. A
commit is a file of JSON lines: `commitInfo`, an `add` for each file that the table gains, and a `remove` for each file
that it loses. The log of a destination is sent with the rows, so a plan must know its size before the commit is made.
The times of the commit are not known then, but they always have the same number of digits.

>>> one = WrittenFile("day=1/part-1.parquet", {"day": "1"}, 1234, 10, 1_767_225_600_000, '{"numRecords":10}', {})
>>> commit_bytes([one, one]) - commit_bytes([one]) == add_bytes(one)
True
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from importlib.metadata import version
from itertools import repeat
from typing import Any, Literal, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa

from spillway.errors import InvalidExternalValue, InvalidValue, SpillwayError
from spillway.store.blobs import (
    MEMORY,
    list_files,
    move,
    plain_uri,
    read_bytes,
    store_fault,
    translate_store_errors,
)
from spillway.store.file_writer import INDEXED_COLUMNS, WrittenFile, statistics_json
from spillway.store.files import DataFile
from spillway.store.listing import Listing
from spillway.store.schemas import TableContract

READ_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck"})
WRITE_FEATURES = READ_FEATURES | {"appendOnly", "invariants", "changeDataFeed"}
"""The features that Spillway supports as reader and as writer. None of them changes the meaning of files."""
_LEGACY_READ = ((2, "columnMapping"),)
_LEGACY_WRITE = (
    (3, "checkConstraints"),
    (4, "changeDataFeed"),
    (4, "generatedColumns"),
    (5, "columnMapping"),
    (6, "identityColumns"),
)
_UNSUPPORTED = re.compile(r"Feature '(\w+)' is not supported")
_READERS_LISTED_FROM, _WRITERS_LISTED_FROM = 3, 7


def refuse_features(
    path: str, table: Any | None, to_write: bool, known: frozenset[str] = READ_FEATURES
) -> None:
    """Refuse a table (of delta-rs; None: it does not exist yet) that needs an unknown feature.

    `known`: the features that the caller's reader supports.
    """
    if table is None:
        return
    protocol = table.protocol()
    foreign = unknown_features(
        (protocol.min_reader_version, protocol.reader_features or ()),
        (protocol.min_writer_version, protocol.writer_features or ()),
        to_write,
        known,
    )
    if foreign and protocol.min_writer_version < _WRITERS_LISTED_FROM:
        unused = _unused_features(table)
        foreign = [one for one in foreign if one not in unused]
    if foreign:
        raise _features_error(path, foreign, "write" if to_write else "read")


def _unused_features(table: Any) -> frozenset[str]:
    """Return the features that a writer version below 7 includes and that the table's metadata does not use.

    Writer version 4, which the change data feed needs, includes constraints and generated columns.
    """
    constraints = any(name.startswith("delta.constraints.") for name in table.metadata().configuration)
    generated = "delta.generationExpression" in table.schema().to_json()
    used = {"checkConstraints": constraints, "generatedColumns": generated}
    return frozenset(name for name, is_used in used.items() if not is_used)


def refuse_unknown_features(path: str, problem: Exception) -> None:
    """Refuse a table that delta-rs cannot open because of a feature, with the same message as `refuse_features`."""
    found = _UNSUPPORTED.findall(str(problem))
    if found:
        raise _features_error(path, found, "read") from problem


def _features_error(path: str, features: Sequence[str], to_do: str) -> InvalidExternalValue:
    return InvalidExternalValue(
        "protocol",
        f"ask for no feature that Spillway does not know to {to_do}",
        ", ".join(features),
        "drop it by Spark (ALTER TABLE ... DROP FEATURE ...), or restore the table's version before it was added",
        path,
    )


def unknown_features(
    reader: tuple[int, Sequence[str]],
    writer: tuple[int, Sequence[str]],
    to_write: bool,
    known: frozenset[str] = READ_FEATURES,
) -> list[str]:
    """Return the unknown features of a protocol (version and listed features, of readers and of writers).

    >>> unknown_features((3, ["deletionVectors", "timestampNtz"]), (7, ["deletionVectors", "rowTracking"]), False)
    ['deletionVectors']
    >>> unknown_features((1, []), (7, ["appendOnly", "rowTracking"]), True), unknown_features((1, []), (3, []), True)
    (['rowTracking'], ['checkConstraints'])
    >>> unknown_features((1, []), (2, []), True)
    []
    """
    asked = _required_features(*reader, _READERS_LISTED_FROM, _LEGACY_READ) - known
    if to_write:
        asked |= _required_features(*writer, _WRITERS_LISTED_FROM, _LEGACY_WRITE) - WRITE_FEATURES
    return sorted(asked)


def _required_features(
    version: int, listed: Sequence[str], listed_from: int, legacy: Sequence[tuple[int, str]]
) -> frozenset[str]:
    if version >= listed_from:
        return frozenset(map(str, listed))
    return frozenset(name for at, name in legacy if version >= at)


_FIRST = "00000000000000000000.json"


def rename_broken_commit(table: str) -> bool:
    """Rename the broken first commit of a table; return False if there is none, or if other commits follow it."""
    log = f"{table}/_delta_log"
    names = {one.path.removeprefix(f"{log}/") for one in list_files(log)}
    commits = {
        name for name in names if name.split(".")[0].isdigit() and name.endswith((".json", ".parquet"))
    }
    if commits != {_FIRST} or _is_whole(read_bytes(f"{log}/{_FIRST}")):
        return False
    aside = f"{log}/_broken_{uuid.uuid4()}.tmp"
    move(f"{log}/{_FIRST}", aside)
    if _is_whole(read_bytes(aside)):
        # another writer has created the table meanwhile
        move(aside, f"{log}/{_FIRST}")
    return True


def _is_whole(content: bytes) -> bool:
    """Return whether the content is a complete commit that creates a table."""
    try:
        actions = [json.loads(line) for line in content.decode().splitlines() if line]
    except ValueError:
        return False
    return {"protocol", "metaData"} <= {name for action in actions for name in action}


@dataclass(frozen=True)
class ForeignCommit:
    """A commit that another program has made to a table of Spillway."""

    path: str
    version: int
    engine: str
    operation: str


OWN_ENGINE = "delta-rs"
OWN_OPERATIONS = frozenset(
    {"CREATE TABLE", "WRITE", "ADD COLUMN", "DROP COLUMN NOT NULL", "SET TBLPROPERTIES"}
)
"""The operations of Spillway's own commits; delta-rs names them."""
MOST_COMMITS_SEEN = 20
"""The number of a table's newest commits that `foreign_commits` reads."""
_COMMIT = re.compile(r"/(\d{20})\.json\Z")


def foreign_commits(path: str) -> list[ForeignCommit]:
    """Return which of a table's newest commits another program has made, by what their `commitInfo` states.

    A commit of a program that uses delta-rs too is found only if Spillway makes no commits of that operation.
    """
    commits = {
        int(name.group(1)): one.path
        for one in list_files(f"{path}/_delta_log")
        if (name := _COMMIT.search(one.path)) is not None
    }
    found = []
    for number in sorted(commits)[-MOST_COMMITS_SEEN:]:
        info = _commit_info(read_bytes(commits[number]))
        engine, operation = str(info.get("engineInfo", "unknown")), str(info.get("operation", "unknown"))
        if not engine.startswith(OWN_ENGINE) or operation not in OWN_OPERATIONS:
            found.append(ForeignCommit(path, number, engine, operation))
    return found


def _commit_info(content: bytes) -> Mapping[str, Any]:
    """Return what a commit states about itself; nothing if it cannot be read."""
    for line in content.decode(errors="replace").splitlines():
        with suppress(ValueError):
            action = json.loads(line)
            if isinstance(action, dict) and isinstance(action.get("commitInfo"), dict):
                return dict(action["commitInfo"])
    return {}


FOREIGN_READ_FEATURES = READ_FEATURES | {"columnMapping", "deletionVectors", "v2Checkpoint"}
"""The reader features that delta-rs's `QueryBuilder` supports."""


def read_foreign(path: str, columns: Callable[[Sequence[str]], Sequence[str]]) -> pa.Table:
    """Return columns of a table; `columns` chooses them from all names.

    A table with an unknown reader feature is refused by the name of the feature. Rows are read by delta-rs's
    `QueryBuilder`, which applies deletion vectors and column mapping; its `to_pyarrow_table` refuses the first and
    returns nulls for the second.
    """
    from deltalake import DeltaTable, QueryBuilder

    try:
        with translate_store_errors(path, missing_too=True):
            table = DeltaTable(plain_uri(path))
        refuse_features(path, table, to_write=False, known=FOREIGN_READ_FEATURES)
        chosen = ", ".join(
            _quote_identifier(name) for name in columns([one.name for one in table.schema().fields])
        )
        rows = QueryBuilder().register("foreign_table", table).execute(f"SELECT {chosen} FROM foreign_table")
        return pa.table(rows.read_all())
    except SpillwayError:
        raise
    except Exception as problem:  # for an absent or damaged file delta-rs raises a bare Exception
        refuse_unknown_features(path, problem)
        if isinstance(problem, OSError) and "://" in path:
            raise store_fault(path, problem) from problem
        reason = str(problem).partition("\n")[0]
        remedy = "name another, or write what it holds to a Parquet file"
        raise InvalidExternalValue("table", "be one that delta-rs reads", reason, remedy, path) from problem


def _quote_identifier(name: str) -> str:
    """Return a column's name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


AS_IT_IS = "!$&'()+,-./:;=@_~"
"""Characters of a path that delta-rs does not escape in a log; other programs escape fewer characters."""
_THIRTEEN_DIGITS = 1_767_225_600_000
"""A time in milliseconds; every time from 2001 to 2286 has as many digits."""


def commit_lines(
    added: Sequence[WrittenFile],
    removed: Sequence[DataFile] = (),
    folder: str = "",
    same_rows: bool = False,
    at_ms: int = _THIRTEEN_DIGITS,
) -> list[bytes]:
    """Return the lines of a commit, without newlines: `commitInfo`, then the files added and removed.

    `folder`: the folder of the table, with which the paths of removed files start.
    """
    partitions = [one.partition for one in added] + [dict(file.partition) for file in removed]
    named = list(partitions[0]) if partitions else []
    by = "delta-rs.py-" + version("deltalake")
    info = {
        "timestamp": at_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(named, separators=(",", ":"))},
        "engineInfo": by.replace(".py", ":py"),
        "clientVersion": by,
    }
    lines = [_line("commitInfo", info)]
    for one in added:
        add = {
            "path": quote(one.path, safe=AS_IT_IS),
            "partitionValues": dict(one.partition),
            "size": one.size,
            "modificationTime": one.written_at_ms,
            "dataChange": not same_rows,
            "stats": one.statistics,
            **dict.fromkeys(("tags", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")),
        }
        lines.append(_line("add", add))
    for file in removed:
        remove = {
            "path": quote(file.path.removeprefix(f"{folder}/"), safe=AS_IT_IS),
            "dataChange": not same_rows,
            "deletionTimestamp": at_ms,
            "extendedFileMetadata": True,
            "partitionValues": {
                name: None if value is None else str(value) for name, value in file.partition
            },
            "size": file.size,
        }
        lines.append(_line("remove", remove))
    return lines


def commit_bytes(
    added: Sequence[WrittenFile], removed: Sequence[DataFile] = (), folder: str = "", same_rows: bool = False
) -> int:
    """Return the bytes of a commit in the table's log."""
    return len(b"\n".join(commit_lines(added, removed, folder, same_rows)))


def commit_info_bytes(added: Sequence[WrittenFile]) -> int:
    """Return the bytes that a commit takes in addition to its files."""
    return len(commit_lines(added)[0])


def add_bytes(one: WrittenFile) -> int:
    """Return the bytes of the action that adds a file, with the newline before it."""
    return len(b"\n") + len(commit_lines([one])[1])


def written_file(file: DataFile, folder: str) -> WrittenFile:
    """Return a file of the log as it was when it was written, as far as the log states it."""
    edges = {name: (low, dict(file.maximum).get(name)) for name, low in file.minimum}
    return WrittenFile(
        file.path.removeprefix(f"{folder}/"),
        {name: str(value) for name, value in file.partition},
        file.size,
        file.records,
        file.written_at_ms,
        statistics_json(
            file.records, edges, {name: count for name, count in file.nulls if count is not None}
        ),
        {},
    )


def _line(name: str, action: Mapping[str, Any]) -> bytes:
    return json.dumps({name: action}, ensure_ascii=False, separators=(",", ":")).encode()


PROPERTIES = {
    "delta.enableDeletionVectors": "false",  # every reader of Delta must be able to read every table
    "delta.columnMapping.mode": "none",
    "delta.dataSkippingNumIndexedCols": str(INDEXED_COLUMNS),
    "delta.logRetentionDuration": "interval 7 days",  # as long as the files that a commit removed are kept
}
CHECKPOINT_COMMITS = {"lake": 20, "destination": 100}
"""By root, the number of commits after which a log gets a checkpoint. A reader reads at most that many commits when it
opens a table. A checkpoint of a table at the destination takes about 20 kB, which are sent like the commits."""
FORMAT_PROPERTY = "spillway.formatVersion"
CHANGE_FEED_PROPERTY = "delta.enableChangeDataFeed"
_TOLD_VERSION = re.compile(r"Format version (\d+)\.")
"""The format version in the description of a table that was created before versions were a property."""


_PARTITION = "partition."
"""The start of the names of partition columns in delta-rs's list of files."""


class CommitConflict(Exception):
    """Another writer has committed to the table since this log was read."""


class Log(Protocol):
    """A table's log as it was last read."""

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns; None if there is no table."""

    @property
    def version(self) -> int:
        """The number of the last commit that was read; -1 if there is no table."""

    @property
    def format_version(self) -> int | None:
        """The version of the column contract by which the table was written; None if the table does not state it."""

    @property
    def has_change_feed(self) -> bool:
        """Whether the table has a change data feed."""

    def listing(self) -> Listing:
        """Return the live files."""

    def refresh(self) -> None:
        """Read the commits since the last read."""

    def create(self, contract: TableContract) -> None:
        """Create the table, unless another writer has."""

    def add_columns(self, columns: pa.Schema) -> None:
        """Add new columns, which may be null, and new fields of structs."""

    def set_format(
        self, format_version: int, nullable: Sequence[str] = (), change_feed: bool = False
    ) -> None:
        """Let columns be null that could not be null before; then set the version by which the table is written.

        `change_feed`: if true, the table has a change data feed from now on.
        """

    def commit(
        self, added: Sequence[WrittenFile], removed: Sequence[DataFile], same_rows: bool = False
    ) -> None:
        """Add and remove files in one commit; `same_rows`: the commit changes no row (`dataChange` is false)."""

    def overwrite(self, added: Sequence[WrittenFile], schema: pa.Schema) -> None:
        """Replace all files, and the columns of the table, in one commit."""


def open_log(path: str) -> Log:
    """Return the log of the table at a path."""
    return MemoryLog(path) if path.startswith(MEMORY) else DeltaLog(path)


class DeltaLog:
    """The log of a Delta table."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._table = open_delta(path)
        refuse_features(self.path, self._table, to_write=False)
        self._columns: tuple[int, pa.Schema] | None = None
        self._listed: tuple[int, Listing] | None = None
        self._spelled: list[str] = []
        """The paths of the listed files as the log spells them, in the order of the listing."""

    @property
    def schema(self) -> pa.Schema | None:
        if self._table is None:
            return None
        if self._columns is None or self._columns[0] != self.version:
            self._columns = self.version, pa.schema(self._table.schema().to_arrow())
        return self._columns[1]

    @property
    def version(self) -> int:
        return -1 if self._table is None else int(self._table.version())

    @property
    def format_version(self) -> int | None:
        if self._table is None:
            return None
        said = self._table.metadata()
        told = _TOLD_VERSION.search(said.description or "")
        found = said.configuration.get(FORMAT_PROPERTY) or (told and told.group(1))
        return int(found) if found else None

    @property
    def has_change_feed(self) -> bool:
        if self._table is None:
            return False
        return bool(self._table.metadata().configuration.get(CHANGE_FEED_PROPERTY) == "true")

    def listing(self) -> Listing:
        if self._table is None:
            return Listing.of([])
        if self._listed is None or self._listed[0] != self.version:
            with translate_store_errors(self.path, missing_too=True):
                actions = pa.table(self._table.get_add_actions(flatten=True))
            spelled = actions["path"].to_pylist()
            paths = [f"{self.path}/{unquote(path)}" for path in spelled]
            order = sorted(range(len(paths)), key=paths.__getitem__)
            self._spelled = [spelled[place] for place in order]
            self._listed = (
                self.version,
                _listing([paths[place] for place in order], actions.take(pa.array(order, pa.int64()))),
            )
        return self._listed[1]

    def refresh(self) -> None:
        if self._table is None:
            self._table = open_delta(self.path)
        else:
            from deltalake.exceptions import DeltaError

            try:
                with translate_store_errors(self.path, missing_too=True):
                    self._table.update_incremental()
            except DeltaError as problem:
                refuse_unknown_features(self.path, problem)
                raise
        refuse_features(self.path, self._table, to_write=False)

    def create(self, contract: TableContract) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            with translate_store_errors(self.path, missing_too=True):
                self._table = DeltaTable.create(
                    plain_uri(self.path),
                    contract.arrow_schema,
                    mode="ignore",
                    partition_by=list(contract.partitioned_by),
                    description=contract.description,
                    configuration={
                        **PROPERTIES,
                        "delta.checkpointInterval": str(CHECKPOINT_COMMITS[contract.root]),
                        FORMAT_PROPERTY: str(contract.version),
                        **({CHANGE_FEED_PROPERTY: "true"} if contract.change_feed else {}),
                    },
                    raise_if_key_not_exists=False,
                )
        except DeltaError:
            # if two writers create a table at the same time, the first has created it as this one would
            self.refresh()
            if self._table is None:
                raise

    def add_columns(self, columns: pa.Schema) -> None:
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        assert self._table is not None
        refuse_features(self.path, self._table, to_write=True)
        try:
            with translate_store_errors(self.path, missing_too=True):
                self._table.alter.add_columns(Schema.from_arrow(columns).fields)
        except DeltaError as problem:
            raise CommitConflict(str(problem)) from problem
        self.refresh()

    def set_format(
        self, format_version: int, nullable: Sequence[str] = (), change_feed: bool = False
    ) -> None:
        from deltalake.exceptions import DeltaError

        assert self._table is not None
        refuse_features(self.path, self._table, to_write=True)
        try:
            with translate_store_errors(self.path, missing_too=True):
                for name in nullable:
                    self._table.alter.drop_column_not_null(name)
                said = {FORMAT_PROPERTY: str(format_version)}
                said |= {CHANGE_FEED_PROPERTY: "true"} if change_feed else {}
                self._table.alter.set_table_properties(said, raise_if_not_exists=False)
        except DeltaError as problem:
            raise CommitConflict(str(problem)) from problem
        self.refresh()

    def _inside(self, file: DataFile) -> str:
        """Return a file's path in the table, as the commit will spell it.

        Refuse a file that the log spells in another way, because the commit would then remove nothing.
        """
        place = self.listing().place_of(file.path)
        assert place is not None, "a file that is removed is live"
        inside, listed = file.path.removeprefix(f"{self.path}/"), self._spelled[place]
        if quote(inside, safe=AS_IT_IS) != listed:
            rule = f"be listed as {quote(inside, safe=AS_IT_IS)} to be taken out"
            raise InvalidValue(
                "path", rule, listed, "rewrite its partition with the program that wrote it", self.path
            )
        return inside

    def commit(
        self, added: Sequence[WrittenFile], removed: Sequence[DataFile], same_rows: bool = False
    ) -> None:
        from deltalake.transaction import RemoveAction

        now = int(time.time() * 1000)
        actions = [
            RemoveAction(
                self._inside(file),
                not same_rows,
                now,
                file.size,
                {name: None if value is None else str(value) for name, value in file.partition},
            )
            for file in removed
        ]
        self._write(added, actions, same_rows, "append", None)

    def overwrite(self, added: Sequence[WrittenFile], schema: pa.Schema) -> None:
        self._write(added, [], False, "overwrite", schema)

    def _write(
        self,
        added: Sequence[WrittenFile],
        removals: Sequence[Any],
        same_rows: bool,
        mode: Literal["append", "overwrite"],
        schema: pa.Schema | None,
    ) -> None:
        """Write one commit, or raise `CommitConflict` if another writer has committed; `schema`: the new columns."""
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        assert self._table is not None
        refuse_features(self.path, self._table, to_write=True)
        additions = [
            AddAction(
                one.path, one.size, dict(one.partition), one.written_at_ms, not same_rows, one.statistics
            )
            for one in added
        ]
        try:
            with translate_store_errors(self.path, missing_too=True):
                self._table.create_write_transaction(
                    [*additions, *removals],
                    mode,
                    self._table.schema() if schema is None else Schema.from_arrow(schema),
                    self._table.metadata().partition_columns,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
        except CommitFailedError as problem:
            raise CommitConflict(str(problem)) from problem
        self.refresh()


def _listing(paths: Sequence[str], actions: pa.Table) -> Listing:
    """Return the listing of these files; `actions` describes them in the same order."""
    partitions = {
        name.removeprefix(_PARTITION): actions[name].to_pylist()
        for name in actions.column_names
        if name.startswith(_PARTITION)
    }

    def make(places: Sequence[int]) -> list[DataFile]:
        # convert by column: row by row, a year of small files takes seconds to list
        mine = actions if len(places) == len(paths) else actions.take(pa.array(places, pa.int64()))
        columns = {name: mine[name].to_pylist() for name in mine.column_names}

        def parts(prefix: str) -> Iterator[tuple[tuple[str, Any], ...]]:
            values = {name.removeprefix(prefix): n for name, n in columns.items() if name.startswith(prefix)}
            rows = zip(*values.values(), strict=True) if values else repeat((), len(places))
            return (tuple(zip(values, row, strict=True)) for row in rows)

        known = zip(
            places,
            columns["size_bytes"],
            parts(_PARTITION),
            parts("min."),
            parts("max."),
            columns.get("num_records") or repeat(0, len(places)),
            parts("null_count."),
            columns["modification_time"],
            strict=True,
        )
        return [
            DataFile(paths[place], int(size), partition, low, high, int(count or 0), nulls, int(at))
            for place, size, partition, low, high, count, nulls, at in known
        ]

    return Listing(paths, partitions, make)


def open_delta(path: str) -> Any:
    """Return the table opened by delta-rs, or None if there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        with translate_store_errors(path, missing_too=True):
            return DeltaTable(plain_uri(path))
    except TableNotFoundError:
        return None
    except DeltaError as problem:
        refuse_unknown_features(path, problem)
        if rename_broken_commit(path):
            return open_delta(path)
        reason = str(problem).partition("\n")[0]
        raise InvalidExternalValue(
            "_delta_log",
            "be a log that can be read",
            reason,
            "restore it, or remove the table and run again",
            path,
        ) from problem


@dataclass
class _MemoryTable:
    """A table in memory."""

    schema: pa.Schema
    format_version: int
    version: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)


_tables: dict[str, _MemoryTable] = {}
_one_at_a_time = threading.Lock()


class MemoryLog:
    """The log of a table in memory, which ends with this process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.refresh()

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    @property
    def version(self) -> int:
        return self._version

    @property
    def format_version(self) -> int | None:
        return self._format_version

    @property
    def has_change_feed(self) -> bool:
        return True  # a table in memory has no other readers

    def listing(self) -> Listing:
        return self._listing

    def refresh(self) -> None:
        with _one_at_a_time:
            held = _tables.get(self.path)
            self._schema = held.schema if held else None
            self._version = held.version if held else -1
            self._format_version = held.format_version if held else None
            self._listing = Listing.of(held.files.values() if held else [])

    def create(self, contract: TableContract) -> None:
        with _one_at_a_time:
            _tables.setdefault(self.path, _MemoryTable(contract.arrow_schema, contract.version))
        self.refresh()

    def add_columns(self, columns: pa.Schema) -> None:
        with _one_at_a_time:
            held = self._current()
            gained = {one.name: one for one in columns}
            kept = [gained.pop(one.name, one) for one in held.schema]
            held.schema = pa.schema([*kept, *gained.values()])
            held.version += 1
        self.refresh()

    def set_format(
        self, format_version: int, nullable: Sequence[str] = (), change_feed: bool = False
    ) -> None:
        with _one_at_a_time:
            held = self._current()
            held.schema = pa.schema(
                [one.with_nullable(one.nullable or one.name in nullable) for one in held.schema]
            )
            held.format_version = format_version
            held.version += 1
        self.refresh()

    def commit(
        self, added: Sequence[WrittenFile], removed: Sequence[DataFile], same_rows: bool = False
    ) -> None:
        with _one_at_a_time:
            held = self._current()
            for file in removed:
                del held.files[file.path]
            for one in added:
                file = data_file(self.path, one, held.schema)
                held.files[file.path] = file
            held.version += 1
        self.refresh()

    def overwrite(self, added: Sequence[WrittenFile], schema: pa.Schema) -> None:
        with _one_at_a_time:
            held = self._current()
            held.schema = schema
            held.files = {one.path: one for one in (data_file(self.path, one, schema) for one in added)}
            held.version += 1
        self.refresh()

    def _current(self) -> _MemoryTable:
        held = _tables[self.path]
        if held.version != self._version:
            raise CommitConflict(f"version {held.version} is not {self._version}")
        return held


def forget_tables(prefix: str) -> None:
    """Free the tables in memory below a path."""
    with _one_at_a_time:
        for path in [path for path in _tables if path.startswith(prefix.rstrip("/") + "/")]:
            del _tables[path]


def data_file(folder: str, one: WrittenFile, schema: pa.Schema) -> DataFile:
    """Return a written file as a log lists it."""
    stats = json.loads(one.statistics)

    def typed(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple((name, _value(text, schema.field(name).type)) for name, text in values.items())

    return DataFile(
        f"{folder}/{one.path}",
        one.size,
        typed(one.partition),
        typed(stats["minValues"]),
        typed(stats["maxValues"]),
        one.rows,
        tuple(stats["nullCount"].items()),
        one.written_at_ms,
    )


def _value(text: Any, kind: pa.DataType) -> Any:
    """Convert a value from the log's spelling to its type."""
    if not isinstance(text, str) or pa.types.is_string(kind):
        return text
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text)
    if pa.types.is_floating(kind):
        return float(text)
    return int(text)

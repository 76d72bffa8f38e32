"""What a table's log does: say which files the table has, and take files in and out in one commit, or refuse.

`DeltaLog` is Delta Lake by delta-rs's public interface; `MemoryLog` the same for tables under `memory://`. Either
refuses a commit when anybody has written since the log was last read (`Stale`): deciding whether that matters is
`tables`' business.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import repeat
from typing import Any, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa

from spillway.errors import Refused, RefusedElsewhere
from spillway.store.blobs import MEMORY, plain_uri, store_faults
from spillway.store.commits import AS_IT_IS
from spillway.store.features import refuse_features, refuse_unknown
from spillway.store.files import DataFile
from spillway.store.half_made import put_aside
from spillway.store.table_contracts import TableContract
from spillway.store.writing import INDEXED_COLUMNS, Written

PROPERTIES = {
    "delta.enableDeletionVectors": "false",  # every reader of Delta must be able to read every table
    "delta.columnMapping.mode": "none",
    "delta.dataSkippingNumIndexedCols": str(INDEXED_COLUMNS),
    "delta.checkpointInterval": "20",  # commits that whoever opens a table has to read at most
    "delta.logRetentionDuration": "interval 7 days",  # as long as files that a commit took out stay
}
FORMAT_PROPERTY = "spillway.formatVersion"
_TOLD_VERSION = re.compile(r"Format version (\d+)\.")
"""How a table says its version that was made before versions were a property."""


class Stale(Exception):
    """Somebody has written to the table since this log was read."""


class Log(Protocol):
    """A table's log as it was last read."""

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns; None where there is no table."""

    @property
    def version(self) -> int:
        """Which commit was last read; -1 where there is no table."""

    @property
    def format_version(self) -> int | None:
        """Which version of its column contract the table is written by; None where it does not say."""

    def files(self) -> list[DataFile]:
        """The live files, in path order."""

    def refresh(self) -> None:
        """Read what has been committed since."""

    def create(self, contract: TableContract) -> None:
        """Make the table, unless somebody else has."""

    def add_columns(self, columns: pa.Schema) -> None:
        """Add columns that may be null, and of which the table has none."""

    def fit(self, format_version: int, nullable: Sequence[str] = ()) -> None:
        """Let columns be null that could not, then say by which version the table is written from now on."""

    def commit(self, added: Sequence[Written], removed: Sequence[DataFile], same_rows: bool = False) -> None:
        """Files in and files out, at once; `same_rows`: no reader of changes has anything to look at."""


def log_of(path: str) -> Log:
    """The log of the table at a path."""
    return MemoryLog(path) if path.startswith(MEMORY) else DeltaLog(path)


class DeltaLog:
    """A Delta table's log."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._table = open_delta(path)
        refuse_features(self.path, self._table, to_write=False)
        self._listed: tuple[int, list[DataFile]] = (-1, [])
        self._spelled: dict[str, str] = {}

    @property
    def schema(self) -> pa.Schema | None:
        return None if self._table is None else pa.schema(self._table.schema().to_arrow())

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

    def files(self) -> list[DataFile]:
        if self._table is None:
            return []
        if self._listed[0] == self.version:
            return self._listed[1]
        with store_faults(self.path, missing_too=True):
            actions = pa.table(self._table.get_add_actions(flatten=True))
        # by column: a row at a time, a year of small files takes seconds to list
        columns = {name: actions[name].to_pylist() for name in actions.column_names}

        def parts(prefix: str) -> Iterator[tuple[tuple[str, Any], ...]]:
            mine = {name.removeprefix(prefix): n for name, n in columns.items() if name.startswith(prefix)}
            rows = zip(*mine.values(), strict=True) if mine else repeat((), actions.num_rows)
            return (tuple(zip(mine, row, strict=True)) for row in rows)

        records = columns.get("num_records") or [0] * actions.num_rows
        known = zip(
            columns["path"],
            columns["size_bytes"],
            parts("partition."),
            parts("min."),
            parts("max."),
            records,
            parts("null_count."),
            columns["modification_time"],
            strict=True,
        )
        found = [
            DataFile(
                f"{self.path}/{unquote(path)}",
                int(size),
                partition,
                low,
                high,
                int(count or 0),
                nulls,
                int(at),
            )
            for path, size, partition, low, high, count, nulls, at in known
        ]
        self._spelled = {one.path: str(path) for one, path in zip(found, columns["path"], strict=True)}
        self._listed = (self.version, sorted(found, key=lambda file: file.path))
        return self._listed[1]

    def refresh(self) -> None:
        if self._table is None:
            self._table = open_delta(self.path)
        else:
            from deltalake.exceptions import DeltaError

            try:
                with store_faults(self.path, missing_too=True):
                    self._table.update_incremental()
            except DeltaError as problem:
                refuse_unknown(self.path, problem)
                raise
        refuse_features(self.path, self._table, to_write=False)

    def create(self, contract: TableContract) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            with store_faults(self.path, missing_too=True):
                self._table = DeltaTable.create(
                    plain_uri(self.path),
                    contract.arrow_schema,
                    mode="ignore",
                    partition_by=list(contract.partitioned_by),
                    description=contract.description,
                    configuration={**PROPERTIES, FORMAT_PROPERTY: str(contract.version)},
                    raise_if_key_not_exists=False,
                )
        except DeltaError:
            # two may begin a table at the same time; whoever came first made it as this one would
            self.refresh()
            if self._table is None:
                raise

    def add_columns(self, columns: pa.Schema) -> None:
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        assert self._table is not None
        refuse_features(self.path, self._table, to_write=True)
        try:
            with store_faults(self.path, missing_too=True):
                self._table.alter.add_columns(Schema.from_arrow(columns).fields)
        except DeltaError as problem:
            raise Stale(str(problem)) from problem
        self.refresh()

    def fit(self, format_version: int, nullable: Sequence[str] = ()) -> None:
        from deltalake.exceptions import DeltaError

        assert self._table is not None
        refuse_features(self.path, self._table, to_write=True)
        try:
            with store_faults(self.path, missing_too=True):
                for name in nullable:
                    self._table.alter.drop_column_not_null(name)
                said = {FORMAT_PROPERTY: str(format_version)}
                self._table.alter.set_table_properties(said, raise_if_not_exists=False)
        except DeltaError as problem:
            raise Stale(str(problem)) from problem
        self.refresh()

    def _inside(self, file: DataFile) -> str:
        """A file's path in the table, which the commit will spell; another spelling would take out nothing."""
        inside, listed = file.path.removeprefix(f"{self.path}/"), self._spelled[file.path]
        if quote(inside, safe=AS_IT_IS) != listed:
            rule = f"be listed as {quote(inside, safe=AS_IT_IS)} to be taken out"
            raise Refused(
                "path", rule, listed, "rewrite its partition with the program that wrote it", self.path
            )
        return inside

    def commit(self, added: Sequence[Written], removed: Sequence[DataFile], same_rows: bool = False) -> None:
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        assert self._table is not None
        refuse_features(self.path, self._table, to_write=True)
        now = int(time.time() * 1000)
        actions: list[Any] = [
            AddAction(
                one.path, one.size, dict(one.partition), one.written_at_ms, not same_rows, one.statistics
            )
            for one in added
        ]
        actions += [
            RemoveAction(
                self._inside(file),
                not same_rows,
                now,
                file.size,
                {name: None if value is None else str(value) for name, value in file.partition},
            )
            for file in removed
        ]
        try:
            with store_faults(self.path, missing_too=True):
                self._table.create_write_transaction(
                    actions,
                    "append",
                    self._table.schema(),
                    self._table.metadata().partition_columns,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
        except CommitFailedError as problem:
            raise Stale(str(problem)) from problem
        self.refresh()


def open_delta(path: str) -> Any:
    """The table opened by delta-rs, or None where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        with store_faults(path, missing_too=True):
            return DeltaTable(plain_uri(path))
    except TableNotFoundError:
        return None
    except DeltaError as problem:
        refuse_unknown(path, problem)
        if put_aside(path):
            return open_delta(path)
        reason = str(problem).partition("\n")[0]
        raise RefusedElsewhere(
            "_delta_log",
            "be a log that can be read",
            reason,
            "restore it, or remove the table and run again",
            path,
        ) from problem


@dataclass
class _Held:
    """A table in memory."""

    schema: pa.Schema
    format_version: int
    version: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)


_tables: dict[str, _Held] = {}
_one_at_a_time = threading.Lock()


class MemoryLog:
    """The log of a table that lives no longer than this process."""

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

    def files(self) -> list[DataFile]:
        return list(self._files)

    def refresh(self) -> None:
        with _one_at_a_time:
            held = _tables.get(self.path)
            self._schema = held.schema if held else None
            self._version = held.version if held else -1
            self._format_version = held.format_version if held else None
            self._files = sorted(held.files.values(), key=lambda file: file.path) if held else []

    def create(self, contract: TableContract) -> None:
        with _one_at_a_time:
            _tables.setdefault(self.path, _Held(contract.arrow_schema, contract.version))
        self.refresh()

    def add_columns(self, columns: pa.Schema) -> None:
        with _one_at_a_time:
            held = self._current()
            gained = {one.name: one for one in columns}
            kept = [gained.pop(one.name, one) for one in held.schema]
            held.schema = pa.schema([*kept, *gained.values()])
            held.version += 1
        self.refresh()

    def fit(self, format_version: int, nullable: Sequence[str] = ()) -> None:
        with _one_at_a_time:
            held = self._current()
            held.schema = pa.schema(
                [one.with_nullable(one.nullable or one.name in nullable) for one in held.schema]
            )
            held.format_version = format_version
            held.version += 1
        self.refresh()

    def commit(self, added: Sequence[Written], removed: Sequence[DataFile], same_rows: bool = False) -> None:
        with _one_at_a_time:
            held = self._current()
            for file in removed:
                del held.files[file.path]
            for one in added:
                file = data_file(self.path, one, held.schema)
                held.files[file.path] = file
            held.version += 1
        self.refresh()

    def _current(self) -> _Held:
        held = _tables[self.path]
        if held.version != self._version:
            raise Stale(f"version {held.version} is not {self._version}")
        return held


def forget_tables(prefix: str) -> None:
    """Free the tables in memory below a path."""
    with _one_at_a_time:
        for path in [path for path in _tables if path.startswith(prefix.rstrip("/") + "/")]:
            del _tables[path]


def data_file(folder: str, one: Written, schema: pa.Schema) -> DataFile:
    """A file that was written, as a log lists it."""
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
    """A value as the log spells it, as what it is."""
    if not isinstance(text, str) or pa.types.is_string(kind):
        return text
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text)
    if pa.types.is_floating(kind):
        return float(text)
    return int(text)

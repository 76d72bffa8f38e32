"""Table maintenance: compact small files, remove files that no table needs, and shorten logs.

Compaction changes no row. One commit replaces small files by larger ones with the same rows, in the same order. The
commit is marked as no change of data, and fails if another writer has changed these files since. If batches have
separate row groups, the row groups do not change, so readers can still skip the same rows. Only files that the caller
calls closed are compacted, so a run that still writes never finds its files replaced.

A file is removed if no commit of the last week has it, and it is older than a week. A reader of an older version of the
table has that much time, and so has a writer whose files are in no commit yet. This is the minimum retention of Delta's
VACUUM; it is never shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from spillway.errors import SpillwayError
from spillway.store import blobs
from spillway.store.delta_log import open_delta
from spillway.store.drafts import discard
from spillway.store.file_writer import WrittenFile, conform_to_schema, write_file
from spillway.store.files import ARRIVAL, DataFile, groups_of, rows_of, sort_keys_of
from spillway.store.renames import Renames, rename_rows, rename_schema
from spillway.store.tables import ROWS_AT_A_TIME, Table

SAFE_HOURS = 7 * 24
"""The age at which a file that no table has is removed: the least that `enforce_retention_duration=True` permits."""
FULL_BYTES = 128 << 20
FULL_ROWS = 1 << 14
"""The rows of a large enough file of a small table.

With more rows, reading or replacing a few rows would decode or rewrite too many others.
"""
ROWS_OF_A_SMALL_GROUP = 1 << 12


@dataclass(frozen=True)
class MaintenanceResult:
    """The result of maintenance: files before and after, files removed, and bytes freed on the disk."""

    files_before: int = 0
    files_after: int = 0
    files_removed: int = 0
    bytes_freed: int = 0

    def __add__(self, other: MaintenanceResult) -> MaintenanceResult:
        return MaintenanceResult(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.files_removed + other.files_removed,
            self.bytes_freed + other.bytes_freed,
        )


def compact(table: Table, closed: Callable[[DataFile], bool], dry_run: bool = False) -> MaintenanceResult:
    """Compact the small files whose rows are all closed, partition by partition."""
    groups: dict[tuple[tuple[str, object], ...], list[DataFile]] = {}
    for file in table.files():
        if not _is_full(table, file) and closed(file):
            groups.setdefault(file.partition, []).append(file)
    done = MaintenanceResult()
    for files in groups.values():
        for few in (
            some for alike in _group_by_sort_keys(table, files) for some in _group_small_files(table, alike)
        ):
            if not dry_run:
                table.rewrite(few, [_merge_files(table, few)])
            done += MaintenanceResult(len(few), 1)
    return done


def vacuum(table: Table, dry_run: bool = False) -> MaintenanceResult:
    """Remove the files that no table needs any more (see the module docstring)."""
    held = None if table.path.startswith(blobs.MEMORY) else open_delta(table.path)
    if held is None:
        return MaintenanceResult()
    with blobs.translate_store_errors(table.path, missing_too=True):
        named = held.vacuum(
            retention_hours=SAFE_HOURS, dry_run=True, enforce_retention_duration=True, full=True
        )
    live = {file.path for file in table.files()}
    sizes = {one.path: one.size for one in blobs.list_files(table.path)}
    gone = [path for path in (f"{table.path}/{name}" for name in named) if path in sizes and path not in live]
    for path in gone if not dry_run else ():
        blobs.remove(path)
    return MaintenanceResult(files_removed=len(gone), bytes_freed=sum(sizes[path] for path in gone))


def shorten_log(table: Table) -> None:
    """Write a checkpoint, and remove the commits before it that are older than a week.

    A table at the destination gets no checkpoint here, because its bytes are sent: its commits write one now and then
    (`CHECKPOINT_COMMITS`).
    """
    held = None if table.path.startswith(blobs.MEMORY) else open_delta(table.path)
    if held is not None:
        with blobs.translate_store_errors(table.path, missing_too=True):
            if table.contract.root != "destination":
                held.create_checkpoint()
            held.cleanup_metadata()


def _is_full(table: Table, file: DataFile) -> bool:
    small = table.contract.row_group_column is None
    return file.size * 2 >= FULL_BYTES or (small and file.records * 4 >= FULL_ROWS * 3)


def _group_small_files(table: Table, files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield groups of consecutive files that together make a full file; a single file is left as it is."""
    first = _sort_columns(table)[0]
    few: list[DataFile] = []
    small = table.contract.row_group_column is None
    for file in sorted(files, key=lambda one: (one.low(first) is not None, one.low(first) or 0, one.path)):
        over = sum(one.size for one in few) + file.size > FULL_BYTES
        many = small and sum(one.records for one in few) + file.records > FULL_ROWS
        if few and (over or many):
            yield from [few] * (len(few) > 1)
            few = []
        few.append(file)
    yield from [few] * (len(few) > 1)


def _group_by_sort_keys(table: Table, files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Group files by the keys by which they store rows, because a file has one order and rows keep theirs.

    Files of one order need not be consecutive. Otherwise batches that alternate between orders would stay separate
    files, and their number would have no bound.
    """
    if len(files) < 2 or ARRIVAL not in table.contract.sorted_by:
        return [list(files)]
    found: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        found.setdefault(sort_keys_of(file), []).append(file)
    return list(found.values())


def _sort_columns(table: Table) -> list[str]:
    """Return the columns by which rows are sorted in a file: by batch, and within a batch as the contract says."""
    apart, inside = table.contract.row_group_column, table.file_schema.names
    names = dict.fromkeys([*([apart] if apart else []), *table.contract.sorted_by])
    return [name for name in names if name in inside]


def correct_rows(
    table: Table,
    columns: Sequence[str],
    corrected: Callable[[pa.Table], tuple[pa.Table, int]],
    dry_run: bool = False,
) -> int:
    """Rewrite each file with rows that must be corrected, one commit per file; return the number of corrected rows.

    `columns`: the columns that `corrected` needs. It returns the rows as they should be, in the same order, and the
    number of rows that it changed.
    """
    count = 0
    for file in table.files():
        wrong = sum(corrected(part)[1] for part in rows_of(file, columns, ROWS_AT_A_TIME))
        count += wrong
        if wrong and not dry_run:
            partition = {name: str(value) for name, value in file.partition}
            schema, apart = table.file_schema, table.contract.row_group_column
            parts = (corrected(conform_to_schema(part, schema))[0] for part in groups_of(file, schema.names))
            keys = sort_keys_of(file)
            one = write_file(table.path, partition, schema, parts, apart, None, bool(apart), keys, True)
            assert one is not None, "a file that was found has rows"
            table.rewrite([file], [one])
    return count


def has_earlier_names(table: Table, renames: Renames) -> bool:
    """Return whether a table has a column or a value with an earlier name."""
    now = rename_schema(table.schema, renames)
    if now.names != table.schema.names or now.types != table.schema.types:
        return True
    schema = table.file_schema
    parts = (rows for file in table.files() if renames.values for rows in _rows_with(file, schema))
    return any(not rename_rows(rows, renames).equals(rows) for rows in parts)


def rename_columns(table: Table, renames: Renames) -> None:
    """Rewrite a table with the new names of its columns and values in one commit.

    Each file becomes one file with the same rows in the same order. The format version is set later, by a commit of its
    own (`Table.evolve_schema`).
    """
    before, apart = table.file_schema, table.contract.row_group_column
    schema, group = rename_schema(before, renames), None if apart else ROWS_OF_A_SMALL_GROUP
    written = []
    for file in table.files():
        partition = {name: str(value) for name, value in file.partition}
        parts = (rename_rows(rows, renames) for rows in _rows_with(file, before))
        one = write_file(
            table.path, partition, schema, parts, apart, group, bool(apart), sort_keys_of(file), True
        )
        assert one is not None, "a file that was found has rows"
        written.append(one)
    table.overwrite(written, rename_schema(table.schema, renames))


def _rows_with(file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
    return (conform_to_schema(part, schema) for part in groups_of(file, schema.names))


def _merge_files(table: Table, files: Sequence[DataFile]) -> WrittenFile:
    partition = {name: str(value) for name, value in files[0].partition}
    group = ROWS_OF_A_SMALL_GROUP if table.contract.row_group_column is None else None
    apart = table.contract.row_group_column
    rows, as_they_come = _read_in_order(table, files)
    keys = sort_keys_of(files[0])
    one = write_file(table.path, partition, table.file_schema, rows, apart, group, as_they_come, keys, True)
    expected = sum(file.records for file in files)
    if one is None or one.rows != expected:
        discard(table.path, [one] if one else [])
        raise SpillwayError(
            f"{table.path}: the compacted files must have the {expected:,} rows of the files that they replace, got "
            f"{one.rows if one else 0:,}; nothing is changed, restore the table"
        )
    return one


def _read_in_order(table: Table, files: Sequence[DataFile]) -> tuple[Iterator[pa.Table], bool]:
    """Return the files' rows in the table's order, and whether each table is a row group that must not change."""
    order, schema = _sort_columns(table), table.file_schema
    if table.contract.row_group_column and all(_ends_before(a, b, order[0]) for a, b in pairwise(files)):
        return (
            conform_to_schema(part, schema) for file in files for part in groups_of(file, schema.names)
        ), True
    parts = [
        conform_to_schema(part, schema)
        for file in files
        for part in rows_of(file, schema.names, ROWS_AT_A_TIME)
    ]
    return iter([pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])]), False


def _ends_before(first: DataFile, second: DataFile, column: str) -> bool:
    high, low = first.high(column), second.low(column)
    return high is not None and low is not None and high < low

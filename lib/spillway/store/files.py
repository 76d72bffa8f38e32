"""The Parquet files of a table: their statistics, and functions that read some of their columns or rows.

Tasks and the driver read columns directly from the Parquet files. Sending a column through an engine's own rows costs
about as much as writing it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spillway.errors import InvalidValue
from spillway.parquet import chunk_bytes, empty_bytes, in_arrival_order, stored_keys
from spillway.store.blobs import open_for_reading

ARRIVAL = "seq"
"""The column that states the order in which rows arrived."""
_CUT_BY = timedelta(microseconds=999)


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table: its path, size, partition, and statistics from the log."""

    path: str
    size: int
    partition: tuple[tuple[str, Any], ...]
    minimum: tuple[tuple[str, Any], ...] = ()
    maximum: tuple[tuple[str, Any], ...] = ()
    records: int = 0
    nulls: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """By column, the number of nulls, as far as the log states it."""
    written_at_ms: int = field(default=0, compare=False)
    """The time of writing, by the clock of the writer."""

    def value(self, column: str) -> Any:
        return _found(self.partition, column)

    def low(self, column: str) -> Any:
        return _unless_nan(_found(self.minimum, column))

    def high(self, column: str) -> Any:
        return _unless_nan(_found(self.maximum, column))

    def has_no_null(self, column: str) -> bool:
        """Return whether the log states that no value of a column is null."""
        return dict(self.nulls).get(column) == 0


def _found(values: Sequence[tuple[str, Any]], column: str) -> Any:
    """Return the value of a column; None if there is none. The few columns are looked through: a dict costs more."""
    for name, value in values:
        if name == column:
            return value
    return None


def _unless_nan(edge: Any) -> Any:
    """Return an edge; None if it is NaN, because comparisons with NaN exclude nothing."""
    return None if edge != edge else edge


SMALL_ROWS = 10_000
"""The number of rows up to which a row group is decoded by one thread."""
MOST_KEPT_OPEN = 64
"""The number of files that stay open at most in a block of `keep_files_open`."""


@dataclass(eq=False)
class _OpenFile:
    """An open file, and how many readers of one thread use it: a file may be read at several places in turn."""

    path: str
    parquet: pq.ParquetFile
    closes: ExitStack
    thread: int
    readers: int = 0


class _OpenFiles:
    """Open files: those that readers have in use, and at most `most` others; the oldest of these are closed first."""

    def __init__(self, most: int) -> None:
        self._most = most
        # a reader that is garbage puts its file back at any moment, also while this thread holds the lock
        self._lock = threading.RLock()
        self._idle: list[_OpenFile] = []
        self._used: list[_OpenFile] = []
        """A file must not be garbage together with its reader, or it is closed before it is put back."""

    def take(self, path: str) -> _OpenFile:
        """Return an open file; the caller puts it back."""
        thread = threading.get_ident()
        with self._lock:
            mine = (one for one in self._used if one.thread == thread)
            found = next((one for one in (*mine, *self._idle) if one.path == path), None)
            if found is None:
                with ExitStack() as stack:
                    parquet = pq.ParquetFile(stack.enter_context(open_for_reading(path)))
                    found = _OpenFile(path, parquet, stack.pop_all(), thread)
            elif not found.readers:
                self._idle.remove(found)
            if not found.readers:
                found.thread = thread
                self._used.append(found)
            found.readers += 1
        return found

    def put_back(self, file: _OpenFile) -> None:
        with self._lock:
            file.readers -= 1
            if file.readers or file not in self._used:  # another reader of it may have failed
                return
            self._used.remove(file)
            self._idle.append(file)
            over = [self._idle.pop(0) for _ in range(len(self._idle) - self._most)]
        for one in over:
            one.closes.close()

    def drop(self, file: _OpenFile, problem: BaseException) -> None:
        """Close a file whose reader failed; raise the fault of the store, if that is the cause."""
        with self._lock:
            if file in self._used:  # unless another reader of it has failed before
                self._used.remove(file)
        file.closes.__exit__(type(problem), problem, problem.__traceback__)

    def close(self) -> None:
        """Close the files; those in use are closed when they are put back."""
        with self._lock:
            self._most = 0
            idle, self._idle = self._idle, []
        for one in idle:
            one.closes.close()


_kept: list[_OpenFiles] = []
"""The open files of the blocks of `keep_files_open` that are active; those of the first block are used."""


@contextmanager
def keep_files_open() -> Iterator[None]:
    """Keep the files that are read in this block open, so that a file is opened once, and not once per reader.

    A step reads the same files for its plan, its drafts and its checks. Files of tables never change.
    """
    mine = _OpenFiles(MOST_KEPT_OPEN)
    _kept.append(mine)
    try:
        yield
    finally:
        _kept.remove(mine)
        mine.close()


@contextmanager
def _open_table_file(path: str) -> Iterator[pq.ParquetFile]:
    """Open a table's file; refuse a missing or damaged file with a message."""
    files = _kept[0] if _kept else _OpenFiles(0)
    try:
        file = files.take(path)
        try:
            yield file.parquet
        except GeneratorExit:  # the reader needs no more rows
            files.put_back(file)
            raise
        except BaseException as problem:
            files.drop(file, problem)
            raise
        files.put_back(file)
    except (OSError, pa.ArrowException) as problem:
        reason = str(problem).partition("\n")[0]
        raise InvalidValue(
            "file", "exist and be complete", reason, "restore it, or do its batch again", path
        ) from problem


def column_bytes(files: Iterable[DataFile], columns: Sequence[str]) -> dict[str, int]:
    """Return the compressed bytes of each column as written: the only width that plan, capacity check and ledger use.

    The bytes are summed over the column chunks in the files' footers. Only footers are read.
    """
    totals = dict.fromkeys(columns, 0)
    for file in files:
        with _open_table_file(file.path) as parquet:
            metadata = parquet.metadata
        for name, size in chunk_bytes(metadata).items():
            if name in totals:
                totals[name] += size
    return totals


def batch_bytes(files: Iterable[DataFile], columns: Sequence[str], batch: int) -> tuple[dict[str, int], int]:
    """Return the compressed bytes of each column of one batch, and the other bytes of the batch in its files.

    In a file of several batches, each batch has its own row groups. If another program has mixed batches in a row
    group, the batch gets the share of its rows. The other bytes are those of the footer and of columns that are not in
    `columns`. Their number is about that of a file with this batch alone.
    """
    totals, around = dict.fromkeys(columns, 0), 0.0
    for file in files:
        with _open_table_file(file.path) as parquet:
            metadata = parquet.metadata
            if file.low("batch") == file.high("batch") == batch:
                shares = [1.0] * metadata.num_row_groups
            else:
                shares = [_share(parquet, group, batch) for group in range(metadata.num_row_groups)]
        beside = max(0, file.size - sum(chunk_bytes(metadata).values()))
        if any(share < 1 for share in shares):
            # a footer has the columns once, and every row group once
            once = min(beside, empty_bytes(metadata.schema.to_arrow_schema()))
            around += once + (beside - once) * sum(shares) / metadata.num_row_groups if any(shares) else 0
        else:
            around += beside
        for group, share in enumerate(shares):
            for name, size in chunk_bytes(metadata, group).items() if share else ():
                if name in totals:
                    totals[name] += round(size * share)
                else:
                    around += size * share  # a column that is not in `columns` is sent, too
    return totals, round(around)


def _share(parquet: pq.ParquetFile, group: int, batch: int) -> float:
    """Return the share of a row group's rows that belong to the batch."""
    if not _row_groups(parquet.metadata, "batch", batch, batch, [group]):
        return 0.0
    if not _row_groups(parquet.metadata, "batch", None, batch - 1, [group]) and not _row_groups(
        parquet.metadata, "batch", batch + 1, None, [group]
    ):
        return 1.0
    numbers = parquet.read_row_group(group, columns=["batch"])["batch"]
    return (pc.sum(pc.equal(numbers, batch)).as_py() or 0) / max(1, len(numbers))


def sort_keys_of(file: DataFile) -> tuple[str, ...]:
    """Return the keys by which a file stores the rows of each row group; `()` if they are in the order of arrival."""
    with _open_table_file(file.path) as parquet:
        return stored_keys(parquet.metadata)


def _in_arrival_order(parquet: pq.ParquetFile, group: int, columns: Sequence[str]) -> pa.Table:
    """Return columns of a row group with the rows in the order of arrival, also if the file stores them by key."""
    if not columns or not stored_keys(parquet.metadata):
        # to hand the columns of a small row group to threads takes longer than to decode them
        threads = parquet.metadata.row_group(group).num_rows > SMALL_ROWS
        return parquet.read_row_group(group, columns=list(columns), use_threads=threads)
    rows = parquet.read_row_group(group, columns=list(dict.fromkeys([*columns, ARRIVAL])))
    return in_arrival_order(rows, ARRIVAL).select([name for name in columns if name in rows.column_names])


def row_count(file: DataFile) -> int:
    """Return the number of rows of a file, from its footer."""
    with _open_table_file(file.path) as parquet:
        return int(parquet.metadata.num_rows)


def edges_of(file: DataFile, column: str) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value of a column in a file; None if the file has no value.

    They come from the log, or else from the footer. If neither states them, the column is read, because other programs
    may write files without statistics.
    """
    low, high = file.low(column), file.high(column)
    if low is not None and high is not None:
        return low, high
    with _open_table_file(file.path) as parquet:
        place = _places(parquet.metadata).get(column)
        if place is None:
            return None
        groups = range(parquet.num_row_groups)
        stated = [parquet.metadata.row_group(group).column(place).statistics for group in groups]
        if stated and all(one is not None and one.has_min_max for one in stated):
            return min(one.min for one in stated), max(one.max for one in stated)
        found = pc.min_max(parquet.read(columns=[column])[column])
    low, high = found["min"].as_py(), found["max"].as_py()
    return None if low is None or high is None else (low, high)


def read_rows(
    files: Sequence[DataFile], columns: Sequence[str], from_seq: int, to_seq: int, order: str = "seq"
) -> pa.Table:
    """Return the rows with `from_seq <= seq <= to_seq` in `seq` order.

    Only files and row groups that may hold such rows are read. The result always has the column `order`. A column that
    an older file does not have is null there.
    """
    wanted = [order, *(column for column in columns if column != order)]
    parts = []
    for file in files:
        low, high = file.low(order), file.high(order)
        if low is not None and high is not None and (high < from_seq or low > to_seq):
            continue
        with _open_table_file(file.path) as parquet:
            groups = _row_groups(parquet.metadata, order, from_seq, to_seq)
            if not groups:
                continue
            have = set(parquet.schema_arrow.names)
            part = parquet.read_row_groups(groups, columns=[name for name in wanted if name in have])
        for name in wanted:
            if name not in have:
                part = part.append_column(name, pa.nulls(part.num_rows))
        keep = pc.and_(pc.greater_equal(part[order], from_seq), pc.less_equal(part[order], to_seq))
        parts.append(part.select(wanted).filter(keep))
    if not parts:
        return pa.table({name: pa.array([], pa.int64() if name == order else pa.null()) for name in wanted})
    table = pa.concat_tables(parts, promote_options="permissive")
    seq = table[order].to_numpy()
    if (seq[1:] < seq[:-1]).any():
        table = table.take(pc.sort_indices(table, [(order, "ascending")]))
    return table


def rows_of(
    file: DataFile,
    columns: Sequence[str],
    at_a_time: int,
    within: Sequence[tuple[str, int | None, int | None]] = (),
    needed_from: tuple[str, Callable[[], int]] | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of one file in the order of arrival, in tables of bounded size; a column that it lacks is null.

    A row group that is stored by key is decoded whole. Any other row group is decoded `at_a_time` rows at a time.

    `within`: ranges of integer columns (None is open); row groups that hold no value in them are left out.
    `needed_from`: a column, and a function that returns its smallest value still needed; called before each row group.
    """
    with _open_table_file(file.path) as parquet:
        have = [name for name in columns if name in parquet.schema_arrow.names]
        groups = None
        for one in (one for one in within if one[0] in parquet.schema_arrow.names):
            found = _row_groups(parquet.metadata, *one)
            groups = [group for group in found if groups is None or group in groups]
        # one by one, so that a row group is read only when its rows are needed
        for group in range(parquet.num_row_groups) if groups is None else groups:
            if needed_from is not None and needed_from[0] in parquet.schema_arrow.names:
                order, least = needed_from
                if not _row_groups(parquet.metadata, order, least(), None, [group]):
                    continue
            if have and stored_keys(parquet.metadata):
                whole = _in_arrival_order(parquet, group, have)
                for at in range(0, whole.num_rows, at_a_time):
                    yield _with_all(whole.slice(at, at_a_time), columns)
                continue
            for batch in parquet.iter_batches(at_a_time, row_groups=[group], columns=have):
                yield _with_all(pa.Table.from_batches([batch]), columns)


def groups_of(file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of one file in the order of arrival, one row group at a time; a column that it lacks is null."""
    with _open_table_file(file.path) as parquet:
        have = [name for name in columns if name in parquet.schema_arrow.names]
        for group in range(parquet.num_row_groups):
            yield _with_all(_in_arrival_order(parquet, group, have), columns)


def whole_rows(file: DataFile) -> pa.Table:
    """Return all rows and columns of one file, in the order of arrival."""
    with _open_table_file(file.path) as parquet:
        names = parquet.schema_arrow.names
        groups = [_in_arrival_order(parquet, group, names) for group in range(parquet.num_row_groups)]
        return pa.concat_tables(groups) if groups else parquet.schema_arrow.empty_table()


def _with_all(part: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the columns in this order; a missing column is null."""
    for name in columns:
        if name not in part.column_names:
            part = part.append_column(name, pa.nulls(part.num_rows))
    return part.select(list(columns))


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file, as the file's footer describes it; its rows can be read without the others."""

    place: int
    records: int
    size: int
    edges: Mapping[str, tuple[Any, Any]]
    """The smallest and the largest value, for columns without nulls whose edges are known."""


def row_groups(file: DataFile, columns: Sequence[str]) -> list[RowGroup]:
    """Return the rows, bytes and edges of each row group of a file, from its footer; no column is read.

    If there is a single row group, the footer states no edges: they are those of the file, from the log.
    """
    with _open_table_file(file.path) as parquet:
        metadata = parquet.metadata
    places = _places(metadata)
    found = []
    for at in range(metadata.num_row_groups):
        group, known = metadata.row_group(at), {}
        for name in (name for name in columns if name in places):
            stated = group.column(places[name]).statistics
            if stated is not None and stated.has_min_max and stated.has_null_count and not stated.null_count:
                known[name] = stated.min, stated.max
            elif metadata.num_row_groups == 1 and file.has_no_null(name):
                low, high = file.low(name), file.high(name)
                if low is not None and high is not None:
                    known[name] = low, upper_bound(high)
        size = sum(chunk_bytes(metadata, at).values())
        found.append(RowGroup(at, group.num_rows, size, known))
    return found


def _places(metadata: pq.FileMetaData) -> dict[str, int]:
    """Return the index of each flat column in a footer."""
    return {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}


def upper_bound(high: Any) -> Any:
    """Return an upper bound for the values of a column, from its largest value in the log.

    Some writers truncate times to the millisecond.

    >>> upper_bound(datetime(2026, 1, 1, 12, 0, 0, 5000)).microsecond, upper_bound(datetime.max) == datetime.max
    (5999, True)
    >>> upper_bound(7)
    7
    """
    if not isinstance(high, datetime):
        return high
    return min(high, datetime.max.replace(tzinfo=high.tzinfo) - _CUT_BY) + _CUT_BY


def rows_of_group(file: DataFile, place: int, columns: Sequence[str]) -> pa.Table:
    """Return columns of one row group, with the rows in the order of arrival."""
    with _open_table_file(file.path) as parquet:
        return _in_arrival_order(parquet, place, columns)


class RowReader:
    """Read slices of rows one after the other, like `read_rows`, but decode each row group once and not once per slice.

    Files and row groups between two slices are not read.

    A slice may begin anywhere. If it begins before the last one, the reader starts again. Memory is that of the slice
    and of `AT_A_TIME` rows, or of a whole row group if its rows are stored by key. If the rows of files are not in
    order from one file to the next, the reader uses `read_rows`.
    """

    AT_A_TIME = 131_072

    def __init__(self, files: Sequence[DataFile], order: str = "seq") -> None:
        self.order = order
        self.files = sorted(files, key=lambda file: (file.low(order) is None, file.low(order) or 0))
        edges = [(file.low(order), file.high(order)) for file in self.files]
        known = all(low is not None and high is not None for low, high in edges)
        self._in_order = known and all(a[1] < b[0] for a, b in itertools.pairwise(edges))
        self._streams: dict[tuple[str, ...], _RowStream] = {}

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        wanted = (self.order, *(column for column in columns if column != self.order))
        if self._in_order:
            stream = self._streams.get(wanted)
            if stream is None or from_seq < stream.needed.from_seq:
                needed = _Needed(from_seq)
                tables = _ordered_rows(self.files, wanted, self.order, self.AT_A_TIME, needed)
                stream = self._streams[wanted] = _RowStream(tables, self.order, needed)
            found = stream.take(from_seq, to_seq)
            if found is not None:
                return found if found.num_columns else read_rows([], wanted, from_seq, to_seq, self.order)
            self._in_order = False
        return read_rows(self.files, wanted, from_seq, to_seq, self.order)


@dataclass
class _Needed:
    """The first `seq` that a reader still needs."""

    from_seq: int


def _ordered_rows(
    files: Sequence[DataFile], wanted: tuple[str, ...], order: str, at_a_time: int, needed: _Needed
) -> Iterator[pa.Table]:
    """Yield the rows of files that are in order; files and row groups before the needed rows are left out.

    It does not know its reader, so that a reader that is dropped frees the open file at once.
    """

    def least() -> int:
        return needed.from_seq

    for file in files:
        if file.high(order) < needed.from_seq:
            continue
        yield from rows_of(file, wanted, at_a_time, [(order, needed.from_seq, None)], (order, least))


class _RowStream:
    """Tables of ascending rows, read only as far as they are needed."""

    def __init__(self, tables: Iterator[pa.Table], order: str, needed: _Needed) -> None:
        self.needed, self._order, self._tables = needed, order, tables
        self._held, self._last, self._ended = None, -(2**63), False

    def take(self, from_seq: int, to_seq: int) -> pa.Table | None:
        """Return the rows of a slice that begins no earlier than the last one; None if rows are not in order."""
        self.needed.from_seq = from_seq
        parts = [self._held] if self._held is not None else []
        while not self._ended and self._last < to_seq:
            part = next(self._tables, None)
            if part is None:
                self._ended = True
            elif part.num_rows:
                seq = part[self._order].to_numpy()
                if seq[0] <= self._last or (seq[1:] <= seq[:-1]).any():
                    return None
                self._last = int(seq[-1])
                if self._last >= from_seq:
                    parts.append(part)
        if not parts:
            return pa.table({})
        whole = pa.concat_tables(parts, promote_options="permissive")
        seq = whole[self._order].to_numpy()
        low, high = (
            int(seq.searchsorted(edge, side)) for edge, side in ((from_seq, "left"), (to_seq, "right"))
        )
        self._held = whole.slice(low)
        return whole.slice(low, high - low)


def _row_groups(
    metadata: Any, order: str, low: int | None, high: int | None, among: Iterable[int] | None = None
) -> list[int]:
    index = _places(metadata)[order]
    found = []
    for group in range(metadata.num_row_groups) if among is None else among:
        statistics = metadata.row_group(group).column(index).statistics
        unknown = statistics is None or not statistics.has_min_max
        below = not unknown and low is not None and statistics.max < low
        above = not unknown and high is not None and statistics.min > high
        if not (below or above):
            found.append(group)
    return found


def as_date(value: Any) -> date | None:
    """Return a partition value as a date; the reader may have returned a date or text."""
    return value if isinstance(value, date) or value is None else date.fromisoformat(str(value)[:10])

"""Record which row groups of tables are decoded (not which bytes a file system fetches)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spillway.store import files as store_files


class _RecordingFile:
    """A Parquet file that records which of its row groups are read; reading the footer is not recorded."""

    def __init__(self, parquet: Any, path: str, read: set[tuple[str, int]]) -> None:
        self._parquet, self._path, self._read = parquet, path, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parquet, name)

    def read_row_group(self, group: int, **how: Any) -> Any:
        return self.read_row_groups([group], **how)

    def read_row_groups(self, groups: Sequence[int], **how: Any) -> Any:
        self._read |= {(self._path, group) for group in groups}
        return self._parquet.read_row_groups(groups, **how)

    def iter_batches(self, at_a_time: int, row_groups: Sequence[int], **how: Any) -> Iterator[Any]:
        self._read |= {(self._path, group) for group in row_groups}
        yield from self._parquet.iter_batches(at_a_time, row_groups=row_groups, **how)


@contextmanager
def record_row_groups() -> Iterator[set[tuple[str, int]]]:
    """Record every row group that is read of any table until the block ends, by path and index."""
    module, read = vars(store_files), set[tuple[str, int]]()
    real = module["_open_table_file"]

    @contextmanager
    def noting(path: str) -> Iterator[Any]:
        with real(path) as parquet:
            yield _RecordingFile(parquet, path, read)

    module["_open_table_file"] = noting
    try:
        yield read
    finally:
        module["_open_table_file"] = real

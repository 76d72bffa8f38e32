"""Which row groups of tables are read while one looks on: what is decoded, not what a file system fetches beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spillway.store import files as store_files


class _RecordingFile:
    """A Parquet file that notes which of its row groups are read; its footer is open to all."""

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
    """Every row group that is read of any table, by path and place."""
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

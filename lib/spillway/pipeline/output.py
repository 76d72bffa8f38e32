"""Where rows that were given back go: a file (Parquet, CSV, or lines of JSON, as its name ends), or a Delta table.

Whoever types a command may write wherever they may. A form is filled in by people who are not on the machine, so what a
job writes stays below one folder, `SPILLWAY_OUTPUT`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from spillway.errors import UsageError
from spillway.settings import refuse_uri


@dataclass(frozen=True)
class Output:
    """A file, or the folder of a Delta table."""

    path: Path
    is_table: bool = False


def output_path(text: str) -> Path:
    """The file that rows are asked to be written to; a name that tells no format is refused before any work is done.

    >>> output_path("out/temps.csv").suffix
    '.csv'
    >>> output_path("recovered/")
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `output` must end in .parquet, .csv or .json, got 'recovered/'; name a file so
    """
    refuse_uri("output", text)
    if Path(text).suffix not in _WRITERS or text.endswith("/"):
        raise UsageError(f"`output` must end in {_formats()}, got {text!r}; name a file so")
    return Path(text)


def output_within(root: str, text: str) -> Output:
    """What a name means below the root: a file, or, without an ending, a Delta table; what leads out is refused.

    >>> output_within("/srv/out", "storms").is_table, output_within("/srv/out", "a/b.csv").path.as_posix()
    (True, '/srv/out/a/b.csv')
    >>> output_within("/srv/out", "../b.csv")
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `output` must lie below SPILLWAY_OUTPUT (/srv/out), got '../b.csv'; write e.g. b.csv
    """
    inside = Path(root).resolve()
    # links are followed: where it would be written is what counts
    path = inside if "\0" in text else (inside / text).resolve()
    if path == inside or not path.is_relative_to(inside):
        raise UsageError(
            f"`output` must lie below SPILLWAY_OUTPUT ({root}), got {text!r}; write e.g. {Path(text).name or 'found'}"
        )
    if path.suffix and path.suffix not in _WRITERS:
        raise UsageError(
            f"`output` must end in {_formats()}, or in nothing to be a Delta table, got {text!r}; name it so"
        )
    return Output(path, not path.suffix)


def write_output(rows: Iterable[pa.Table], path: Path) -> int:
    """Write the rows in the format that the name asks for, and say how many; folders above are made.

    They are written some at a time, beside the file, which is only there once it is whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        count = _WRITERS[path.suffix](rows, beside)
        beside.replace(path)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
    return count


def _formats() -> str:
    *first, last = _WRITERS
    return f"{', '.join(first)} or {last}"


def _by(writer: Callable[[Path, pa.Schema], Any]) -> Callable[[Iterable[pa.Table], Path], int]:
    """Writes by one of Arrow's writers, opened for the columns of the first rows."""

    def write(rows: Iterable[pa.Table], path: Path) -> int:
        parts = iter(rows)
        first = next(parts)
        count = first.num_rows
        with writer(path, first.schema) as sink:
            sink.write_table(first)
            for part in parts:
                sink.write_table(part)
                count += part.num_rows
        return count

    return write


def _write_json(rows: Iterable[pa.Table], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as sink:
        for batch in (batch for part in rows for batch in part.to_batches(1024)):
            sink.writelines(
                json.dumps(row, ensure_ascii=False, default=_said) + "\n" for row in batch.to_pylist()
            )
            count += batch.num_rows
    return count


def _said(value: Any) -> str:
    """A date or a time, as text that sorts."""
    text: str = value.isoformat()
    return text


_WRITERS: dict[str, Callable[[Iterable[pa.Table], Path], int]] = {
    ".parquet": _by(pyarrow.parquet.ParquetWriter),
    ".csv": _by(pyarrow.csv.CSVWriter),
    ".json": _write_json,
}

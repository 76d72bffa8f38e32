"""Rows that were given back, as a file of their own: Parquet, CSV, or lines of JSON, as its name ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from spillway.errors import UsageError


def output_path(text: str) -> Path:
    """The file that rows are asked to be written to; a name that tells no format is refused before any work is done.

    >>> output_path("out/temps.csv").suffix
    '.csv'
    >>> output_path("recovered/")
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `output` must end in .parquet, .csv or .json, got 'recovered/'; name a file so
    """
    if Path(text).suffix not in _WRITERS or text.endswith("/"):
        *first, last = _WRITERS
        raise UsageError(f"`output` must end in {', '.join(first)} or {last}, got {text!r}; name a file so")
    return Path(text)


def write_output(rows: pa.Table, path: Path) -> None:
    """Write the rows in the format that the name asks for; folders above are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _WRITERS[path.suffix](rows, path)


def _write_json(rows: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as sink:
        for batch in rows.to_batches():
            for row in batch.to_pylist():
                sink.write(json.dumps(row, ensure_ascii=False, default=_said) + "\n")


def _said(value: Any) -> str:
    """A date or a time, as text that sorts."""
    text: str = value.isoformat()
    return text


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": pyarrow.parquet.write_table,
    ".csv": pyarrow.csv.write_csv,
    ".json": _write_json,
}

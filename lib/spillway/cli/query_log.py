"""SQL statements that people ran, from files of SQL or a table (a file, or Delta) with how often each ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.errors import UsageError
from spillway.store.foreign import read_foreign

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_COLUMNS = ("query", "sql", "statement", "query_text")
RUNS_COLUMNS = ("runs", "count", "executions", "times")


def read_query_log(path: str) -> list[tuple[str, float]]:
    """Every statement, and how often it ran: once, where that is not told."""
    place = Path(path)
    if (place / "_delta_log").is_dir():
        return _statements(path, read_foreign(path, _of_use))
    if place.is_dir():
        files = sorted(place.rglob("*.sql"))
        if not files:
            raise UsageError(
                f"`log` must hold files of SQL, got {path!r} without one; name a folder of .sql files"
            )
        return [(file.read_text(encoding="utf-8"), 1.0) for file in files]
    if not place.is_file():
        raise UsageError(f"`log` must be a file or a folder, got {path!r}; name a query log")
    if place.suffix == ".sql":
        return [(place.read_text(encoding="utf-8"), 1.0)]
    return _statements(path, _table(place))


def _of_use(columns: Sequence[str]) -> list[str]:
    """The columns to read; all, for the error that names them, where none holds statements."""
    found = [name for name in columns if name.lower() in (*QUERY_COLUMNS, *RUNS_COLUMNS)]
    return found or list(columns)


def _statements(path: str, rows: pa.Table) -> list[tuple[str, float]]:
    names = {name.lower(): name for name in rows.column_names}
    text = next((names[name] for name in QUERY_COLUMNS if name in names), None)
    if text is None:
        raise UsageError(
            f"`log` must have a column {' or '.join(QUERY_COLUMNS)}, got {', '.join(rows.column_names)} in {path}; "
            "rename it"
        )
    runs = next((names[name] for name in RUNS_COLUMNS if name in names), None)
    times = [1.0] * rows.num_rows if runs is None else rows[runs].to_pylist()
    return [
        (str(one), float(count))
        for one, count in zip(rows[text].to_pylist(), times, strict=True)
        if one and count
    ]


def _table(place: Path) -> Any:
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    try:
        if place.suffix == ".parquet":
            return pyarrow.parquet.read_table(place)
        if place.suffix in (".json", ".jsonl"):
            return pyarrow.json.read_json(place)
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return pyarrow.csv.read_csv(place, parse_options=options)
    except (pyarrow.ArrowInvalid, OSError) as problem:
        raise UsageError(
            f"`log` must be CSV, JSON lines, Parquet or SQL, got {str(place)!r} ({str(problem).splitlines()[0]}); "
            "convert it"
        ) from problem

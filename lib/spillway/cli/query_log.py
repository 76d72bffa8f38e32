"""SQL statements that people ran: files of SQL, a project of dbt, or a table (file or Delta) of how often each did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from spillway.errors import UsageError
from spillway.store.delta_log import read_foreign

if TYPE_CHECKING:
    import pyarrow as pa

DBT = "dbt_project.yml"
QUERY_COLUMNS = ("query", "sql", "statement", "query_text")
RUNS_COLUMNS = ("runs", "count", "executions", "times")


def read_query_log(path: str) -> list[tuple[str, float]]:
    """Every statement, and how often it ran: once, where that is not told."""
    place = Path(path)
    if (place / "_delta_log").is_dir():
        return _statements(path, read_foreign(path, _of_use))
    if place.is_dir():
        above = place.resolve()
        project = next((one for one in (above, *above.parents) if (one / DBT).is_file()), None)
        files = _models(above) if project == above else sorted(place.rglob("*.sql"))
        if not files:
            raise UsageError(
                f"`log` must hold files of SQL, got {path!r} without one; name a folder of .sql files"
            )
        texts = [(file.stem, file.read_text(encoding="utf-8")) for file in files]
        # a model is known to the others by its file's name
        return [(text if project is None else f"CREATE VIEW {name} AS {text}", 1.0) for name, text in texts]
    if not place.is_file():
        raise UsageError(f"`log` must be a file or a folder, got {path!r}; name a query log")
    if place.suffix == ".sql":
        return [(place.read_text(encoding="utf-8"), 1.0)]
    return _statements(path, _table(place))


def _models(project: Path) -> list[Path]:
    """The models of a project of dbt: what it compiled of them, and its macros, are none."""
    try:
        stated = yaml.safe_load((project / DBT).read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as problem:
        raise UsageError(f"`{DBT}` must be YAML, got {project / DBT} ({problem}); mend it") from problem
    folders = stated.get("model-paths") or stated.get("source-paths") or ["models"]
    return sorted(file for folder in folders for file in (project / str(folder)).rglob("*.sql"))


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

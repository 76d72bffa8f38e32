"""The figures of a lake, from its tables alone: what `make run` prints and `build/run.json` holds.

Everything is read by delta-rs from what the stages wrote about themselves (`batches`, `ledger`,
`certificates`, `validations`), so that a figure can be wrong only where a table is. Rates are bits as written
over the time that the batches cover; the synopsis stays at the source and is counted beside them:

    rate in = 8 * bytes offered / seconds,   rate out = 8 * bytes kept / seconds

Recovery accuracy = 100 - mean relative error in %, over all values that were shed or rounded; a stream of
which nothing was shed is given back exactly.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spillway.settings import Settings
from spillway.store.batches import Batch, load_batches
from spillway.store.files import read_table
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path

Row = Mapping[str, Any]

SENDING_STAGE = "transmitted"
NAMED_VERSIONS = (
    "apache-airflow",
    "pyspark",
    "delta-spark",
    "great-expectations",
    "numpy",
    "numba",
    "deltalake",
)


@dataclass(frozen=True)
class StreamFigures:
    """One stream's figures; the names are those of `build/run.json`."""

    stream: str
    tuples: int
    rejected: int
    rate_in_kbps: float
    rate_out_kbps: float
    capacity_kbps: float
    shed_values: int
    stored_share_pct: float
    wire_bytes_saved: int
    synopsis_bytes: int
    recovery_accuracy_pct: float
    worst_error_over_threshold: float
    violations: int
    ledger_difference: int
    shed_attributes: tuple[str, ...] = ()
    rounded_attributes: tuple[str, ...] = ()

    def flat(self) -> dict[str, float]:
        """Its numbers under their names in `build/run.json`.

        >>> StreamFigures("s", 9, 0, 8.0, 4.0, 5.0, 3, 33.3, 10, 2, 99.0, 0.5, 0, 0).flat()["tuples.s"]
        9
        """
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, int | float)}
        return {f"{name}.{self.stream}": value for name, value in numbers.items()}


def table_rows(settings: Settings, table: str, stream: str | None = None) -> list[dict[str, Any]]:
    """All rows of a shared table (of one stream); none where the table is not there yet."""
    path = table_path(settings, table_contracts(settings.schemas)[table])
    found = read_table(path, filters=[("stream", "=", stream)] if stream else None)
    rows: list[dict[str, Any]] = found.to_pylist() if found is not None else []
    return rows


def mean(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """The mean of values weighted by how many each stands for; None where there are none.

    >>> mean([(1.0, 3), (5.0, 1), (None, 9)])
    2.0
    """
    known = [(value, weight) for value, weight in pairs if value is not None and weight > 0]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if total else None


def ledger_difference(ledger: Iterable[Row]) -> int:
    """By how much the ledger of a stream fails to balance, all batches, stages, units and attributes added up.

    Each row: offered against kept + shed + deduplicated + rejected, and shed against recoverable + lost; and
    between stages: the tuples that sending was offered against those that taking in kept.
    """
    rows = list(ledger)
    difference = 0
    kept: dict[int, int] = {}
    offered: dict[int, int] = {}
    for row in rows:
        accounted = row["kept"] + row["shed"] + row["deduplicated"] + row["rejected"]
        difference += abs(row["offered"] - accounted) + abs(row["shed"] - row["recoverable"] - row["lost"])
        if row["unit"] == "rows" and row["stage"] == "ingest":
            kept[row["batch"]] = kept.get(row["batch"], 0) + row["kept"]
        if row["unit"] == "rows" and row["stage"] == SENDING_STAGE:
            offered[row["batch"]] = offered.get(row["batch"], 0) + row["offered"]
    return difference + sum(abs(offered[batch] - kept.get(batch, 0)) for batch in offered)


def stream_figures(
    stream: str,
    batches: Iterable[Batch],
    ledger: Iterable[Row],
    certificates: Iterable[Row],
) -> StreamFigures:
    """The figures of one stream from its rows."""
    batches, ledger, certificates = list(batches), list(ledger), list(certificates)
    sent = [row for row in ledger if row["stage"] == SENDING_STAGE and row["unit"] == "rows"]
    spans = {batch.batch: batch.seconds_covered or 0.0 for batch in batches}
    seconds = math.fsum(spans[number] for number in {row["batch"] for row in sent} & set(spans))
    offered = sum(row["bytes_offered"] for row in sent)
    kept = sum(row["bytes_kept"] for row in sent)
    synopsis = sum(row["bytes_synopsis"] for row in ledger)
    shed_values = sum(row["shed_values"] for row in certificates)
    stored = sum(row["stored_values"] for row in certificates)
    error = mean((row["mean_error_pct"], row["shed_values"] + row["rounded_values"]) for row in certificates)
    return StreamFigures(
        stream=stream,
        tuples=sum(batch.rows or 0 for batch in batches),
        rejected=sum(batch.rejected or 0 for batch in batches),
        rate_in_kbps=offered * 8 / 1000 / seconds if seconds else 0.0,
        rate_out_kbps=kept * 8 / 1000 / seconds if seconds else 0.0,
        capacity_kbps=mean((batch.capacity_kbps, spans[batch.batch]) for batch in batches) or 0.0,
        shed_values=shed_values,
        stored_share_pct=100.0 * stored / shed_values if shed_values else 0.0,
        wire_bytes_saved=offered - kept,
        synopsis_bytes=synopsis,
        recovery_accuracy_pct=100.0 - (error or 0.0),
        worst_error_over_threshold=max(
            (row["worst_over_threshold"] or 0.0 for row in certificates), default=0.0
        ),
        violations=sum(row["violations"] for row in certificates),
        ledger_difference=ledger_difference(ledger),
        shed_attributes=_by_way(certificates, "shed"),
        rounded_attributes=_by_way(certificates, "round"),
    )


def _by_way(certificates: Iterable[Row], way: str) -> tuple[str, ...]:
    return tuple(sorted({row["attribute"] for row in certificates if way in str(row["way"]).split("+")}))


def lake_figures(settings: Settings) -> list[StreamFigures]:
    """The figures of every stream that the lake knows, by name."""
    by_stream: dict[str, list[Batch]] = {}
    for batch in load_batches(settings):
        by_stream.setdefault(batch.stream, []).append(batch)
    rows = {table: table_rows(settings, table) for table in ("ledger", "certificates")}
    return [
        stream_figures(
            stream,
            batches,
            *([row for row in rows[table] if row["stream"] == stream] for table in rows),
        )
        for stream, batches in sorted(by_stream.items())
    ]


def expectation_figures(validations: Iterable[Row]) -> dict[str, float]:
    """How many expectations the last validation ran, and how many failed.

    >>> rows = [
    ...     {"run_id": "b", "validated_at": 2, "success": True},
    ...     {"run_id": "b", "validated_at": 2, "success": False},
    ...     {"run_id": "a", "validated_at": 1, "success": False},
    ... ]
    >>> expectation_figures(rows)
    {'expectations.run': 2, 'expectations.failed': 1}
    """
    rows = list(validations)
    last = max(rows, key=lambda row: row["validated_at"])["run_id"] if rows else None
    outcomes = [bool(row["success"]) for row in rows if row["run_id"] == last]
    return {"expectations.run": len(outcomes), "expectations.failed": outcomes.count(False)}


def machine() -> dict[str, str | int]:
    """Where the figures were measured, and with what."""
    found: dict[str, str | int] = {
        "machine.system": f"{platform.system()} {platform.machine()}",
        "machine.cores": os.cpu_count() or 0,
        "version.python": platform.python_version(),
    }
    for package in NAMED_VERSIONS:
        try:
            found[f"version.{package}"] = version(package)
        except PackageNotFoundError:
            found[f"version.{package}"] = "none"
    return found


def run_file(settings: Settings) -> Path:
    """Where `make run` leaves its figures."""
    return Path(settings.build) / "run.json"


def run_figures(settings: Settings, seconds: Mapping[str, float] | None = None) -> dict[str, float]:
    """Every number of `build/run.json`: the streams', the last validation's, and the seconds.

    `seconds` are those of a run that ends now; without them the last run's are read from the file.
    """
    figures: dict[str, float] = {}
    for stream in lake_figures(settings):
        figures |= stream.flat()
    figures |= expectation_figures(table_rows(settings, "validations"))
    if seconds is None:
        figures |= _last_seconds(run_file(settings))
    else:
        figures |= {f"seconds.{name}": round(value, 3) for name, value in seconds.items()}
    return figures


def _last_seconds(path: Path) -> dict[str, float]:
    if not path.is_file():
        return {}
    last = json.loads(path.read_text(encoding="utf-8"))
    return {name: value for name, value in last.items() if name.startswith("seconds.")}


def write_run(settings: Settings, seconds: Mapping[str, float]) -> dict[str, float]:
    """Write `build/run.json` and return its numbers."""
    figures = run_figures(settings, seconds)
    path = run_file(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures | machine(), indent=2) + "\n", encoding="utf-8")
    return figures

"""Compute the figures of a lake from its tables alone: the content of `build/run.json`.

Everything is read from `batches`, `ledger`, `certificates` and `validations`, which the stages wrote. So a
figure can be wrong only if a table is wrong. No lever and no stage is named: the ordinals of the ledger say
which stage is the last. Rates are bits as written, divided by the time that the batches cover. Bytes kept at
the source are counted separately:

    rate in = 8 * bytes offered / seconds,   rate out = 8 * bytes kept / seconds

Recovery accuracy = 100 - mean relative error in %, over all values that were shed or rounded. A stream of which
nothing was shed is recovered exactly.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from operator import add
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from spillway.batch import Batch
from spillway.ledger import TOTAL, Row, total_imbalance
from spillway.levers.certificate import Certificate
from spillway.report.recent import RecentBatches, read_recent
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.presence import certified_presence

NAMED_VERSIONS = (
    "apache-airflow",
    "pyspark",
    "great-expectations",
    "numpy",
    "numba",
    "deltalake",
)


@dataclass(frozen=True)
class StreamFigures:
    """The figures of one stream; the field names are the names in `build/run.json`."""

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
    rows_shed: int = 0
    rows_lost: int = 0
    present_pct: float | None = None
    """Share of the values of measures that are present at the destination, exact or within their bound.

    If no measure has a certificate, it is the share of rows. None: nothing was validated, or `spillway migrate`
    must fill it in.
    """
    absent_pct: float | None = None
    """The share that is absent at the destination: kept at the source, or dropped with its row."""
    source_values: int = 0
    lost_values: int = 0
    bytes_offered: int = 0
    bytes_sent: int = 0

    def flat(self) -> dict[str, float]:
        """Return the numbers by their names in `build/run.json`.

        >>> StreamFigures("s", 9, 0, 8.0, 4.0, 5.0, 3, 33.3, 10, 2, 99.0, 0.5, 0, 0).flat()["tuples.s"]
        9
        """
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, int | float)}
        return {f"{name}.{self.stream}": value for name, value in numbers.items()}


def total_rows(ledger: Iterable[Row]) -> list[Row]:
    """Return the total row of every stage, by batch and in the order of the stages.

    Rows with a negative ordinal are left out: they are outside the path from source to destination.
    """
    found = [row for row in ledger if row["dimension_kind"] == TOTAL and row["ordinal"] >= 0]
    return sorted(found, key=lambda row: (row["batch"], row["ordinal"], row["unit"]))


def last_stages(ledger: Iterable[Row]) -> dict[int, Row]:
    """Return, by batch, the total row of the last stage in rows.

    It has the bytes offered and the bytes sent.

    A batch that was only accepted (ordinal 0) has no such row.

    >>> rows = [{"dimension_kind": "total", "unit": "rows", "batch": 1, "ordinal": at} for at in (0, 1, 3, -1)]
    >>> last_stages(rows)[1]["ordinal"], last_stages(rows[:1])
    (3, {})
    """
    found = [row for row in total_rows(ledger) if row["unit"] == "rows" and row["ordinal"] > 0]
    return {row["batch"]: row for row in found}


def certificate_of(row: Row) -> Certificate:
    """Convert a row of `certificates` to a `Certificate`, which can be added to others."""
    values = row["shed_values"] + row["rounded_values"]
    return Certificate(
        _or_infinity(row["error_pct"]),
        row["shed_values"],
        row["rounded_values"],
        row["stored_values"],
        (row["mean_error_pct"] or 0.0) * values,
        row["max_error_pct"] or 0.0,
        row["violations"],
        _or_infinity(row.get("error")),
        (row.get("mean_error") or 0.0) * values,
        row.get("max_error") or 0.0,
    )


def _or_infinity(bound: float | None) -> float:
    return math.inf if bound is None else bound


def sum_certificates(certificates: Iterable[Row]) -> Certificate:
    """Return the sum of certificates."""
    return reduce(add, map(certificate_of, certificates), Certificate(0.0))


def stream_figures(
    stream: str,
    batches: Iterable[Batch],
    ledger: Iterable[Row],
    certificates: Iterable[Row],
) -> StreamFigures:
    """Compute the figures of one stream from its rows."""
    batches, ledger, certificates = list(batches), list(ledger), list(certificates)
    sent, way = last_stages(ledger), total_rows(ledger)
    spans = {batch.batch: batch.seconds_covered or 0.0 for batch in batches}
    seconds = math.fsum(spans[number] for number in sent if number in spans)
    offered = sum(row["bytes_offered"] for row in sent.values())
    kept = sum(row["bytes_kept"] for row in sent.values())
    planned = [batch for batch in batches if batch.capacity_kbps is not None]
    planned_seconds = math.fsum(spans[batch.batch] for batch in planned)
    capacity = math.fsum((batch.capacity_kbps or 0.0) * spans[batch.batch] for batch in planned)
    whole = sum_certificates(certificates)
    there = certified_presence(certificates)
    # a certificate without an attribute counts rows, which the ledger counts too
    values = sum_certificates(row for row in certificates if row["attribute"])
    return StreamFigures(
        stream=stream,
        tuples=sum(batch.rows or 0 for batch in batches),
        rejected=sum(batch.rejected or 0 for batch in batches),
        rate_in_kbps=offered * 8 / 1000 / seconds if seconds else 0.0,
        rate_out_kbps=kept * 8 / 1000 / seconds if seconds else 0.0,
        capacity_kbps=capacity / planned_seconds if planned_seconds else 0.0,
        shed_values=values.shed_values,
        stored_share_pct=values.stored_share_pct,
        wire_bytes_saved=offered - kept,
        synopsis_bytes=sum(row["bytes_source"] for row in way),
        recovery_accuracy_pct=values.accuracy_pct,
        # thresholds differ by attribute, so take the maximum, not the sum
        worst_error_over_threshold=max(
            (certificate_of(row).worst_over_threshold for row in certificates), default=0.0
        ),
        violations=whole.violations,
        ledger_difference=total_imbalance(ledger),
        shed_attributes=_by_way(certificates, "shed"),
        rounded_attributes=_by_way(certificates, "round"),
        rows_shed=sum(row["shed"] for row in way if row["unit"] == "rows"),
        rows_lost=sum(row["lost"] for row in way if row["unit"] == "rows"),
        present_pct=None if there is None else there.present_pct,
        absent_pct=None if there is None else there.absent_pct,
        source_values=0 if there is None else there.held,
        lost_values=0 if there is None else there.lost,
        bytes_offered=offered,
        bytes_sent=kept,
    )


def _by_way(certificates: Iterable[Row], way: str) -> tuple[str, ...]:
    found = {row["attribute"] for row in certificates if way in str(row["treatment"]).split("+")}
    return tuple(sorted(found - {""}))


def group_rows(rows: Iterable[Row], column: str = "stream") -> dict[Any, list[Row]]:
    """Group rows by a column."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found


def recent_figures(recent: RecentBatches) -> StreamFigures:
    """Return the figures of a stream's last batches; tuples, rejected tuples and violations are of all batches."""
    found = stream_figures(recent.stream, recent.batches, recent.ledger, recent.certificates)
    return replace(found, tuples=recent.tuples, rejected=recent.rejected, violations=recent.violations)


def lake_figures(tables: Tables) -> list[StreamFigures]:
    """Return the figures of every stream that has batches, by name."""
    streams = pc.unique(tables.at("batches").rows(["stream"])["stream"]).to_pylist()
    return [recent_figures(read_recent(tables, stream)) for stream in sorted(streams)]


def last_outcomes(tables: Tables) -> list[Row]:
    """Return the outcomes of the last validation run, and read no rows of other runs; [] if there was no run."""
    table = tables.at("validations")
    edges = table.rows(["run_id", "validated_at"])
    if not edges.num_rows:
        return []
    last = pc.index(edges["validated_at"], pc.max(edges["validated_at"])).as_py()
    return table.rows(run_id=edges["run_id"][last].as_py()).to_pylist()


def last_validation(validations: Iterable[Row]) -> list[Row]:
    """Return the outcomes of the last validation run; [] if there was no run.

    >>> rows = [{"run_id": run, "validated_at": at} for run, at in (("a", 1), ("b", 2), ("b", 3), ("a", 2))]
    >>> [row["validated_at"] for row in last_validation(rows)]
    [2, 3]
    """
    rows = list(validations)
    if not rows:
        return []
    run = max(rows, key=lambda row: row["validated_at"])["run_id"]
    return [row for row in rows if row["run_id"] == run]


def expectation_figures(validations: Iterable[Row]) -> dict[str, float]:
    """Return how many expectations the last validation ran, and how many failed.

    >>> rows = [
    ...     {"run_id": "b", "validated_at": 2, "success": True},
    ...     {"run_id": "b", "validated_at": 2, "success": False},
    ...     {"run_id": "a", "validated_at": 1, "success": False},
    ... ]
    >>> expectation_figures(rows)
    {'expectations.run': 2, 'expectations.failed': 1}
    """
    outcomes = [bool(row["success"]) for row in last_validation(validations)]
    return {"expectations.run": len(outcomes), "expectations.failed": outcomes.count(False)}


def machine() -> dict[str, str | int]:
    """Return the machine and the versions with which the figures were measured."""
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
    """Return the path to which `make run` writes its figures."""
    return Path(settings.build) / "run.json"


def run_figures(tables: Tables, seconds: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return every number of `build/run.json`: figures of streams, the last validation, and seconds.

    `seconds`: the durations of the run that ends now. Without them, those of the last run are read from the
    file.
    """
    figures: dict[str, float] = {}
    for stream in lake_figures(tables):
        figures |= stream.flat()
    figures |= expectation_figures(last_outcomes(tables))
    if seconds is None:
        figures |= _last_seconds(run_file(tables.settings))
    else:
        figures |= {f"seconds.{name}": round(value, 3) for name, value in seconds.items()}
    return figures


def _last_seconds(path: Path) -> dict[str, float]:
    if not path.is_file():
        return {}
    last = json.loads(path.read_text(encoding="utf-8"))
    return {name: value for name, value in last.items() if name.startswith("seconds.")}


def write_run(
    tables: Tables, seconds: Mapping[str, float], more: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Write `build/run.json`, including the numbers `more`; return its numbers."""
    figures = run_figures(tables, seconds) | dict(more or {})
    path = run_file(tables.settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures | machine(), indent=2) + "\n", encoding="utf-8")
    return figures

"""A small lake in memory: two streams, one shed and validated, one only taken in. Not a test."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from spillway.contracts import load_contracts
from spillway.ledger import LedgerRow
from spillway.levers.attributes.threshold.curve import curve
from spillway.registry import columns_of
from spillway.settings import Settings
from spillway.store.tables import Tables

DAYS = (date(2026, 1, 1), date(2026, 1, 2))
TUPLES = 240
NOW = datetime(2026, 1, 3, 4, tzinfo=UTC)
ERROR_PCT = 5.0
CONTRACT = """
stream: {stream}
description: "{stream} of two sites <every hour>."
source: {{kind: files, format: json}}
attributes:
  - {{name: site, type: string, role: key}}
  - {{name: at, type: timestamp, role: order}}
  - {{name: temp, type: double, role: measure, unit: degF}}
  - {{name: wind, type: double, role: measure, unit: mph}}
  - {{name: rain, type: double, role: measure}}
channel: uplink
"""
ATTRIBUTES = ("site", "at", "temp", "wind", "rain")


def rows_of(settings: Settings, table: str, stream: str = "fields") -> list[dict[str, Any]]:
    """A stream's rows of a shared table."""
    column = "subject" if table == "ledger" else "stream"
    found: list[dict[str, Any]] = Tables(settings).at(table).rows(**{column: stream}).to_pylist()
    return found


def write(
    settings: Settings, table: str, rows: Iterable[Mapping[str, Any]], stream: str | None = None
) -> None:
    """Add rows to a table."""
    tables = Tables(settings)
    held = tables.at(table, stream)
    if stream is not None:
        owner = load_contracts(settings.schemas).streams[stream]
        added = () if table == "raw" else columns_of("attributes")
        held = held.with_attributes([(a.name, a.type) for a in owner.attributes], added)
    held.append(rows)


def empty_home(folder: Path) -> Settings:
    """Contracts of two streams, and no lake."""
    streams = folder / "schemas" / "streams"
    streams.mkdir(parents=True)
    for stream in ("fields", "meadows"):
        (streams / f"{stream}.yaml").write_text(CONTRACT.format(stream=stream), encoding="utf-8")
    (folder / "schemas" / "channels.yaml").write_text(
        "channels: {uplink: {capacity: 2 kbps}}", encoding="utf-8"
    )
    return Settings.from_environment(environment_of(folder))


def environment_of(folder: Path) -> dict[str, str]:
    """Roots: contracts in the folder, tables and landing zone in memory."""
    memory = f"memory:/{folder}"
    return {
        "SPILLWAY_HOME": str(folder),
        "SPILLWAY_LAKE": f"{memory}/lake",
        "SPILLWAY_LANDING": f"{memory}/landing",
    }


def small_lake(folder: Path) -> Settings:
    """Two batches of `fields`: temp shed, wind rounded, rain kept and then shed. `meadows` waits for training."""
    settings = empty_home(folder)
    truth = [62 + 9 * math.sin(n / 14) + (n % 2) * 3 for n in range(TUPLES)]
    half = TUPLES // 2
    for table in ("raw", "transmitted", "recovered"):
        write(settings, table, [_tuple(table, n, truth[n]) for n in range(TUPLES)], "fields")
    for batch, day in enumerate(DAYS, start=1):
        at = {"stream": "fields", "batch": batch, "batch_date": day}
        first, last = (batch - 1) * half, batch * half - 1
        write(settings, "batches", [_batch(at, first, last, "done")])
        write(settings, "schemes", [_scheme(at, run, first + 60 * run) for run in (0, 1)])
        write(settings, "ledger", ledger_of("fields", batch, day, half))
        write(
            settings,
            "certificates",
            [_certificate(at, "temp", "shed", half), _certificate(at, "wind", "round", half)],
        )
    waiting = {"stream": "meadows", "batch": 1, "batch_date": DAYS[0]}
    write(settings, "batches", [_batch(waiting, 0, 9, "untrained") | {"levers": [], "models": {}}])
    write(settings, "models", _models(truth))
    write(
        settings,
        "validations",
        [_outcome("ledger", "ledger_balances", True), _outcome("schemes", "fits", False)],
    )
    return settings


def _models(truth: list[float]) -> list[dict[str, Any]]:
    drawn = curve(np.array(truth), np.arange(TUPLES) % 2)
    points = {"error_pct": list(drawn.error_pct), "stored_share_pct": list(drawn.stored_share_pct)}
    bound = {"error_pct": ERROR_PCT, "source": "category"}
    model = {"attribute": "temp", "way": "shed", "error_pct": ERROR_PCT, "predictors": [{"name": "trend"}]}
    facts = [("threshold", "temp", bound, points), ("attribute", "temp", model, {"packed_bytes": 40})]
    return [
        {"stream": "fields", "lever": "attributes", "fact": fact, "subject": subject, "version": 1}
        | {"value": json.dumps(value), "evidence": json.dumps(why), "created_at": NOW}
        | {"trained_from_seq": 0, "trained_to_seq": 99}
        for fact, subject, value, why in facts
    ]


def _tuple(table: str, n: int, temp: float) -> dict[str, Any]:
    row = {"seq": n, "batch": 1 + (n >= TUPLES // 2), "batch_date": DAYS[n >= TUPLES // 2]}
    row |= {"site": "ab"[n % 2], "at": NOW + timedelta(hours=n), "wind": float(n % 7), "rain": 0.0}
    if table == "raw":
        return row | {"temp": temp}
    given = {"temp": round(temp / 3) * 3.0, "temp__bound_pct": ERROR_PCT} if table == "recovered" else {}
    return row | {"scheme": 1} | given


def _batch(at: dict[str, Any], first: int, last: int, status: str) -> dict[str, Any]:
    rows = last - first + 1
    return at | {
        "status": status, "files": [], "first_seq": first, "last_seq": last, "rows": rows, "rejected": 2,
        "deduplicated": 0, "levers": ["attributes"], "models": {"attributes": 1}, "seconds_covered": 60.0,
        "run_id": f"run-{at['batch']}", "created_at": NOW, "updated_at": NOW, "capacity_kbps": 2.0,
    }  # fmt: skip


def _scheme(at: dict[str, Any], run: int, first: int) -> dict[str, Any]:
    away = ("rain", "shed", 2, "last", "second lowest", 0, False)
    rain = away if run else ("rain", "keep", 1, "", "it fits", 0, False)
    ways = [
        ("temp", "shed", 1, "trend", "lowest rank", 0, False),
        ("wind", "round", 1, "", "cheaper than shedding", 0, False),
        rain,
    ]
    return at | {
        "run": run, "from_seq": first, "to_seq": first + 59, "scheme": run + 1, "attributes": ways,
        "ranking": [("temp", 0.4, 31.0), ("rain", 0.9, 12.0)],
        "windows": 4, "evaluations": 1 + run, "hits": 3 + run, "rate_kbps": 3.0 + 0.4 * run + 0.2 * at["batch"],
        "planned_kbps": 1.7 + 0.5 * run, "capacity_kbps": 2.0, "shortfall_kbps": 0.2 * run, "frame_origin": 0,
        "frame_tuples": 1024, "model_version": 1, "state": "{}",
        "reason": "all that may be shed is shed" if run else "it fits",
    }  # fmt: skip


def ledger_of(
    stream: str, batch: int, day: date, rows: int, before: tuple[LedgerRow, ...] = ()
) -> list[dict[str, Any]]:
    """A batch of which temp went and rain half the way; `before`: stages between taking in and the lever."""
    at = ("stream", stream, batch, day)
    ordinal = 1 + len({line.stage for line in before})
    through = [line.kept for line in before if line.unit == "rows"]
    left = through[-1] if through else rows
    shed = {"temp": left, "rain": left // 2}
    values, gone = left * len(ATTRIBUTES), sum(shed.values())
    lines = [
        LedgerRow(*at, "intake", 0, "rows", offered=rows + 2, kept=rows, rejected=2, bytes_offered=50_000),
        LedgerRow(*at, "intake", 0, "rows", "reason", "taken in", offered=rows, kept=rows),
        LedgerRow(*at, "intake", 0, "rows", "reason", "no number", offered=2, rejected=2),
        *before,
        LedgerRow(*at, "attributes", ordinal, "rows", offered=left, kept=left),
        LedgerRow(
            *at, "attributes", ordinal, "values", reason="all that may be shed is shed", offered=values,
            kept=values - gone, rounded=left, shed=gone, recoverable=gone, shortfall=38, bytes_source=1500,
        ),
        *(
            LedgerRow(
                *at, "attributes", ordinal, "values", "attribute", name, "shed" if name in shed else "it fits",
                offered=left, kept=left - shed.get(name, 0), rounded=left if name == "wind" else 0,
                shed=shed.get(name, 0), recoverable=shed.get(name, 0), bytes_source=1500 if name == "temp" else 0,
            )
            for name in ATTRIBUTES
        ),
        LedgerRow(
            *at, "sent", ordinal + 1, "rows", offered=left, kept=left, bytes_offered=16_000, bytes_kept=4_000
        ),
        LedgerRow(*at, "sent", ordinal + 1, "values", offered=values - gone, kept=values - gone),
    ]  # fmt: skip
    return [line.to_dict() for line in lines]


def _certificate(at: dict[str, Any], attribute: str, way: str, rows: int) -> dict[str, Any]:
    shed = rows if way == "shed" else 0
    return at | {
        "lever": "attributes", "attribute": attribute, "treatment": way, "error_pct": ERROR_PCT, "shed_values": shed,
        "rounded_values": rows - shed, "stored_values": shed // 4, "stored_share_pct": 25.0 if shed else None,
        "max_error_pct": 4.0, "mean_error_pct": 0.5, "worst_over_threshold": 0.8, "violations": 0,
        "column_bytes": 9000, "wire_bytes": 0, "synopsis_bytes": 1500, "created_at": NOW,
        "offered_values": rows, "source_values": 0, "lost_values": 0,
    }  # fmt: skip


def _outcome(table: str, expectation: str, success: bool) -> dict[str, Any]:
    sentence = f"{table}: fields, batch 2 {'is in order' if success else 'falls short by 0.2 kbps'}"
    return {"run_id": "nightly", "table": table, "stream": "fields", "batch_date": DAYS[1], "success": success} | {
        "expectation": expectation, "observed": "0.2", "expected": "0", "where_": None if success else "batch 2",
        "sentence": sentence, "validated_at": NOW,
    }  # fmt: skip

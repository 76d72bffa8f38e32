"""A small lake written by delta-rs: two streams, one shed and validated, one only taken in."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from spillway.contracts import load_contracts
from spillway.levers.attributes.threshold.curve import curve
from spillway.settings import Settings
from spillway.store.table_contracts import TableContract, table_contracts
from spillway.store.tables import table_path

ROOT = Path(__file__).resolve().parents[3]
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
PLAIN = {"bigint": pa.int64(), "string": pa.string(), "date": pa.date32(), "double": pa.float64()}
PLAIN |= {"boolean": pa.bool_(), "binary": pa.binary(), "timestamp": pa.timestamp("us", "UTC")}


def arrow_type(ddl: str) -> pa.DataType:
    """The Arrow type of a column contract's type."""
    if ddl.startswith("array<"):
        return pa.list_(arrow_type(ddl[6:-1]))
    if ddl.startswith("map<"):
        key, value = ddl[4:-1].split(",")
        return pa.map_(arrow_type(key), arrow_type(value))
    if ddl.startswith("struct<"):
        fields = [field.split(":") for field in ddl[7:-1].split(",")]
        return pa.struct([(name, arrow_type(kind)) for name, kind in fields])
    return PLAIN[ddl]


def write(settings: Settings, table: str, rows: list[dict[str, Any]], stream: str | None = None) -> None:
    """Append `rows` to a table under its contract."""
    contract: TableContract = table_contracts(settings.schemas)[table]
    if stream is not None:
        owner = load_contracts(settings.schemas).streams[stream]
        contract = contract.with_attributes([(a.name, a.type) for a in owner.attributes])
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in contract.columns])
    filled = [{name: row.get(name) for name in schema.names} for row in rows]
    data = pa.Table.from_pylist(filled, schema)
    path = table_path(settings, contract, stream)
    write_deltalake(path, data, mode="append", partition_by=list(contract.partitioned_by))


def empty_home(folder: Path) -> Settings:
    """Contracts of two streams, and no lake."""
    streams = folder / "schemas" / "streams"
    streams.mkdir(parents=True)
    for stream in ("fields", "meadows"):
        (streams / f"{stream}.yaml").write_text(CONTRACT.format(stream=stream), encoding="utf-8")
    (folder / "schemas" / "channels.yaml").write_text(
        "channels: {uplink: {capacity: 2 kbps}}", encoding="utf-8"
    )
    (folder / "schemas" / "tables").symlink_to(ROOT / "schemas" / "tables")
    return Settings.from_environment({"SPILLWAY_HOME": str(folder)})


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
        write(settings, "ledger", _ledger(at, half))
        write(
            settings,
            "certificates",
            [_certificate(at, "temp", "shed", half), _certificate(at, "wind", "round", half)],
        )
    waiting = {"stream": "meadows", "batch": 1, "batch_date": DAYS[0]}
    write(settings, "batches", [_batch(waiting, 0, 9, "untrained")])
    drawn = curve(truth, [n % 2 for n in range(TUPLES)])
    points = {"error_pct": drawn.error_pct, "stored_share_pct": drawn.stored_share_pct}
    bound = {"error_pct": ERROR_PCT, "source": "category"}
    model = {"attribute": "temp", "way": "shed", "error_pct": ERROR_PCT, "predictors": [{"name": "trend"}]}
    facts = [
        ("threshold", "temp", bound, {"curve": points}),
        ("attribute", "temp", model, {"packed_bytes": 40}),
    ]
    write(
        settings,
        "models",
        [
            {"stream": "fields", "fact": fact, "subject": subject, "version": 1, "created_at": NOW}
            | {
                "value": json.dumps(value),
                "evidence": json.dumps(why),
                "trained_from_seq": 0,
                "trained_to_seq": 99,
            }
            for fact, subject, value, why in facts
        ],
    )
    write(
        settings,
        "validations",
        [_outcome("ledger", "ledger_balances", True), _outcome("schemes", "fits", False)],
    )
    return settings


def _tuple(table: str, n: int, temp: float) -> dict[str, Any]:
    row = {"seq": n, "batch": 1 + (n >= TUPLES // 2), "batch_date": DAYS[n >= TUPLES // 2], "scheme": 1}
    row |= {"site": "ab"[n % 2], "at": NOW + timedelta(hours=n), "wind": float(n % 7), "rain": 0.0}
    if table == "raw":
        return row | {"temp": temp}
    return row | (
        {"temp": round(temp / 3) * 3.0, "temp__bound_pct": ERROR_PCT} if table == "recovered" else {}
    )


def _batch(at: dict[str, Any], first: int, last: int, status: str) -> dict[str, Any]:
    rows = last - first + 1
    return at | {
        "status": status, "files": [], "first_seq": first, "last_seq": last, "rows": rows, "rejected": 2,
        "deduplicated": 0, "models": [("cycle", 1)], "seconds_covered": 60.0, "run_id": f"run-{at['batch']}",
        "created_at": NOW, "updated_at": NOW, "capacity_kbps": 2.0,
    }  # fmt: skip


def _scheme(at: dict[str, Any], run: int, first: int) -> dict[str, Any]:
    rain = ("rain", "shed", 2, "last", "second lowest") if run else ("rain", "keep", 1, None, "it fits")
    ways = [
        ("temp", "shed", 1, "trend", "lowest rank"),
        ("wind", "round", 1, None, "cheaper than shedding"),
        rain,
    ]
    names = ("attribute", "way", "stage", "predictor", "reason")
    return at | {
        "run": run, "from_seq": first, "to_seq": first + 59, "scheme": run + 1,
        "attributes": [dict(zip(names, way, strict=True)) for way in ways],
        "ranking": [
            {"attribute": "temp", "score": 0.4, "width_bits": 31.0},
            {"attribute": "rain", "score": 0.9, "width_bits": 12.0},
        ],
        "windows": 4, "evaluations": 1 + run, "hits": 3 + run, "rate_kbps": 3.0 + 0.4 * run + 0.2 * at["batch"],
        "planned_kbps": 1.7 + 0.5 * run, "capacity_kbps": 2.0, "shortfall_kbps": 0.2 * run, "frame_origin": 0,
        "frame_tuples": 1024, "model_version": 1, "state": "{}",
        "reason": "all that may be shed is shed" if run else "it fits",
    }  # fmt: skip


def _ledger(at: dict[str, Any], rows: int) -> list[dict[str, Any]]:
    names = ["offered", "kept", "rounded", "shed", "deduplicated", "rejected", "recoverable", "lost"]
    blank = at | dict.fromkeys([*names, "bytes_offered", "bytes_kept", "bytes_synopsis"], 0)
    blank |= {"attribute": "", "reason": "", "compute_seconds": 0.5}
    sent = blank | {"stage": "transmitted", "offered": rows, "kept": rows, "reason": "sent"}
    return [
        blank
        | {"stage": "ingest", "unit": "rows", "offered": rows + 2, "kept": rows, "rejected": 2}
        | {"reason": "taken in"},
        blank
        | {"stage": "attributes", "unit": "values", "attribute": "temp", "offered": rows, "shed": rows}
        | {"recoverable": rows, "bytes_offered": 9000, "bytes_synopsis": 1500, "reason": "shed"},
        blank
        | {"stage": "attributes", "unit": "values", "attribute": "wind", "offered": rows, "kept": rows}
        | {"rounded": rows, "bytes_offered": 7000, "reason": "rounded"},
        sent | {"unit": "rows", "bytes_offered": 16000, "bytes_kept": 4000},
        sent | {"unit": "values", "attribute": "wind", "bytes_offered": 7000, "bytes_kept": 4000},
    ]


def _certificate(at: dict[str, Any], attribute: str, way: str, rows: int) -> dict[str, Any]:
    shed = rows if way == "shed" else 0
    return at | {
        "attribute": attribute, "way": way, "error_pct": ERROR_PCT, "shed_values": shed, "rounded_values": rows - shed,
        "stored_values": shed // 4, "stored_share_pct": 25.0 if shed else None, "max_error_pct": 4.0,
        "mean_error_pct": 0.5, "worst_over_threshold": 0.8, "violations": 0, "column_bytes": 9000, "wire_bytes": 0,
        "synopsis_bytes": 1500, "created_at": NOW,
    }  # fmt: skip


def _outcome(table: str, expectation: str, success: bool) -> dict[str, Any]:
    sentence = f"{table}: fields, batch 2 {'is in order' if success else 'falls short by 0.2 kbps'}"
    return {"run_id": "nightly", "table": table, "stream": "fields", "batch_date": DAYS[1], "success": success} | {
        "expectation": expectation, "observed": "0.2", "expected": "0", "where_": None if success else "batch 2",
        "sentence": sentence, "validated_at": NOW,
    }  # fmt: skip

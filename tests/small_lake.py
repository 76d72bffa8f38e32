"""Two small streams on two channels, and their tables written without Spark. Not a test."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import write_deltalake

from spillway.settings import Settings
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path

HOME = Path(__file__).resolve().parents[1]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILE = pa.struct(
    [
        ("name", pa.string()),
        ("size", pa.int64()),
        ("digest", pa.string()),
        ("records", pa.int64()),
        ("base_seq", pa.int64()),
        ("status", pa.string()),
        ("modified_at", pa.timestamp("us", tz="UTC")),
    ]
)
TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
}


def write_schemas(folder: Path, channels: Mapping[str, str]) -> Path:
    """A schemas folder with one stream per entry of `channels` (stream -> channel)."""
    schemas = folder / "schemas"
    (schemas / "streams").mkdir(parents=True)
    shutil.copytree(HOME / "schemas" / "tables", schemas / "tables")
    (schemas / "channels.yaml").write_text(
        yaml.safe_dump(
            {"channels": {name: {"capacity": "1 kbps"} for name in sorted(set(channels.values()))}}
        )
    )
    for stream, channel in channels.items():
        contract = {
            "stream": stream,
            "channel": channel,
            "source": {"kind": "files", "path": stream, "format": "json"},
            "rate": {"from": "declared", "tuples_per_second": 10},
            "attributes": [
                {"name": "site", "type": "string", "role": "key", "nullable": False},
                {"name": "at", "type": "timestamp", "role": "order"},
                {"name": "level", "type": "double", "role": "measure"},
            ],
        }
        (schemas / "streams" / f"{stream}.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))
    return schemas


def small_settings(folder: Path, channels: Mapping[str, str]) -> Settings:
    return Settings.from_environment(
        {
            "SPILLWAY_HOME": str(HOME),
            "SPILLWAY_LAKE": str(folder / "lake"),
            "SPILLWAY_LANDING": str(folder / "landing"),
            "SPILLWAY_BUILD": str(folder / "build"),
            "SPILLWAY_SCHEMAS": str(write_schemas(folder, channels)),
        }
    )


def deliver(settings: Settings, name: str, content: str = '{"site": "a"}\n') -> tuple[str, int]:
    """Put a file into the landing zone; its name and size as `batches` has them."""
    path = Path(settings.landing) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return name, len(content.encode())


def batch_row(
    stream: str, number: int, status: str, files: Sequence[tuple[str, int]] = (), **changes: Any
) -> dict[str, Any]:
    row = {
        "stream": stream,
        "batch": number,
        "batch_date": date(2026, 1, number),
        "status": status,
        "files": [
            {"name": name, "size": size, "digest": f"d{name}", "records": 1, "base_seq": 0, "status": "taken"}
            | {"modified_at": NOW}
            for name, size in files
        ],
        "first_seq": 0,
        "last_seq": 9,
        "rows": 10,
        "rejected": 0,
        "deduplicated": 0,
        "models": [("stream", 1)],
        "seconds_covered": 1.0,
        "run_id": "run",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return row | changes


def write_table(settings: Settings, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of a shared table; columns that a row leaves out are null, zero or empty as their type has it."""
    contract = table_contracts(settings.schemas)[table]
    fields = []
    for column in contract.columns:
        kind = pa.list_(FILE) if column.name == "files" else TYPES.get(column.type, pa.string())
        fields.append(pa.field(column.name, kind))
    schema = pa.schema(fields)
    complete = [{field.name: row.get(field.name, _blank(field.type)) for field in schema} for row in rows]
    write_deltalake(table_path(settings, contract), pa.Table.from_pylist(complete, schema), mode="append")


def _blank(kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return 0
    if pa.types.is_string(kind):
        return ""
    return NOW if pa.types.is_timestamp(kind) else date(2026, 1, 1) if pa.types.is_date(kind) else None

"""Two small streams on two channels, and rows of their tables. Not a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from spillway.settings import Settings
from spillway.store.blobs import write_bytes
from spillway.store.schemas import TableColumn, arrow_type
from spillway.store.tables import Tables

HOME = Path(__file__).resolve().parents[1]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def write_schemas(folder: Path, channels: Mapping[str, str]) -> Path:
    """A schemas folder with one stream per entry of `channels` (stream -> channel)."""
    schemas = folder / "schemas"
    (schemas / "streams").mkdir(parents=True)
    (schemas / "channels.yaml").write_text(
        yaml.safe_dump(
            {"channels": {name: {"capacity": "1 kbps"} for name in sorted(set(channels.values()))}}
        )
    )
    for stream, channel in channels.items():
        contract = {
            "stream": stream,
            "channel": channel,
            "source": {"kind": "files", "path": stream, "format": "json", "settle_seconds": 0},
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
    """Roots below `folder`, with contracts of these streams."""
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
    write_bytes(f"{settings.landing}/{name}", content.encode())
    return name, len(content.encode())


def batch_row(
    stream: str, number: int, status: str, files: Sequence[tuple[str, int]] = (), **changes: Any
) -> dict[str, Any]:
    """A row of `batches`, of ten tuples."""
    row = {
        "stream": stream,
        "batch": number,
        "batch_date": date(2026, 1, number),
        "status": status,
        "files": [
            {
                "name": name,
                "size": size,
                "digest": f"d{name}",
                "records": 1,
                "base_seq": 0,
                "status": "ingested",
            }
            | {"modified_at": None}
            for name, size in files
        ],
        "first_seq": 0,
        "last_seq": 9,
        "rows": 10,
        "rejected": 0,
        "deduplicated": 0,
        "levers": ["attributes"],
        "models": {"attributes": 1},
        "seconds_covered": 1.0,
        "run_id": "run",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return row | changes


def write_table(settings: Settings, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of a shared table; columns that a row leaves out are null, zero or empty as their type has it."""
    held = Tables(settings).at(table)
    held.append([{c.name: row.get(c.name, _blank(c)) for c in held.contract.columns} for row in rows])


def _blank(column: TableColumn) -> Any:
    kind = arrow_type(column.type)
    if column.nullable:
        return None
    if pa.types.is_nested(kind):
        return {} if pa.types.is_map(kind) else []
    if pa.types.is_timestamp(kind):
        return NOW
    return {"date": date(2026, 1, 1), "string": "", "binary": b"", "boolean": False}.get(column.type, 0)

"""The JSON Schemas that editors complete and check contracts with, from the same definition the reader uses.

What compares one field with another the reader alone knows: names that differ and exist, the type of the order
attribute, no error bound and no priority on what is never shed, options only for CSV, what a lever demands of the
stream. Everything else it says, the schema says too.

>>> json_schema()["properties"]["mode"]["enum"]
['observe', 'shed']
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spillway.contracts.channel import Channel
from spillway.contracts.fields import DRAFT, Record
from spillway.contracts.stream import StreamContract
from spillway.contracts.workload import Workload


def json_schema() -> dict[str, Any]:
    """The schema of `schemas/streams/*.yaml`."""
    return Record(StreamContract).json_schema()


def workload_json_schema() -> dict[str, Any]:
    """The schema of `schemas/joins/*.yaml` and `schemas/queries/*.yaml`."""
    return Record(Workload).json_schema()


def channels_json_schema() -> dict[str, Any]:
    """The schema of `schemas/channels.yaml`."""
    return {
        "$schema": DRAFT,
        "title": "Spillway channels",
        "type": "object",
        "additionalProperties": False,
        "required": ["channels"],
        "properties": {
            "channels": {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": "^[A-Za-z][A-Za-z0-9_-]{0,62}$"},
                "additionalProperties": Record(Channel).json_schema(),
            }
        },
    }


def write_schemas(schemas_dir: str | Path) -> list[Path]:
    """Writes `contract.schema.json`, `workload.schema.json` and `channels.schema.json`."""
    written = []
    for name, schema in (
        ("contract", json_schema()),
        ("workload", workload_json_schema()),
        ("channels", channels_json_schema()),
    ):
        path = Path(schemas_dir) / f"{name}.schema.json"
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        written.append(path)
    return written

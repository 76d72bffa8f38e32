"""The JSON Schemas with which editors complete and check contracts. They follow from the definition of the reader.

Some rules compare fields with each other, and only the reader checks them:

- names are unique, and names that a field refers to exist;
- the type of the order attribute;
- attributes that are never shed have no error bound and no priority;
- only CSV has options;
- rules between a lever's settings and the stream.

All other rules of the reader are in the schema as well.

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
    """Return the JSON Schema of `schemas/streams/*.yaml`."""
    return Record(StreamContract).json_schema()


def workload_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of `schemas/joins/*.yaml` and `schemas/queries/*.yaml`."""
    return Record(Workload).json_schema()


def channels_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of `schemas/channels.yaml`."""
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
    """Write `contract.schema.json`, `workload.schema.json` and `channels.schema.json`; return their paths."""
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

"""What training left in `models`: all facts of one training share one version, and a batch is pinned to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway.levers.attributes.cycle.find import Cycle
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.settings import Settings
from spillway.store.files import read_table
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path


@dataclass(frozen=True)
class Trained:
    """A stream's facts of one version: its cycle, and per measure the model and the options it was chosen from."""

    stream: str
    version: int
    cycle: Cycle
    models: Mapping[str, AttributeModel]
    options: Mapping[str, Any]
    category: Mapping[str, Any]
    ranking: Mapping[str, float]
    trained_from_seq: int
    trained_to_seq: int

    @property
    def recoverability(self) -> Mapping[str, float]:
        """Transmitted bytes that shedding an attribute saves per byte of synopsis and per cent of error."""
        found = {}
        for name, evidence in self.options.items():
            ways = {option["way"]: option for option in evidence["options"]}
            shed, kept = ways.get("shed"), ways["keep"]
            if shed is not None:
                cost = shed["synopsis_bytes_per_tuple"] * (1.0 + shed["mean_error_pct"])
                found[name] = kept["wire_bytes_per_tuple"] / cost if cost else float(2**53)
        return found


def load_trained(settings: Settings, stream: str, version: int | None = None) -> Trained | None:
    """The facts of `version` (default: the newest), or None when the stream is untrained."""
    path = table_path(settings, table_contracts(settings.schemas)["models"])
    table = read_table(path, filters=[("stream", "=", stream)])
    rows = table.to_pylist() if table is not None else []
    if version is None:
        version = max((row["version"] for row in rows), default=None)
    rows = [row for row in rows if row["version"] == version]
    if version is None or not rows:
        return None
    facts = {(row["fact"], row["subject"]): row for row in rows}
    attributes = {subject: row for (fact, subject), row in facts.items() if fact == "attribute"}
    cycle = facts["cycle", ""]
    category = facts.get(("category", ""))
    return Trained(
        stream,
        int(version),
        Cycle.from_dict(json.loads(cycle["value"])),
        {name: AttributeModel.from_dict(json.loads(row["value"])) for name, row in attributes.items()},
        {name: json.loads(row["evidence"]) for name, row in attributes.items()},
        json.loads(category["value"]) if category else {},
        json.loads(facts["ranking", ""]["value"]),
        int(cycle["trained_from_seq"]),
        int(cycle["trained_to_seq"]),
    )

"""A lake that an earlier Spillway (commit cb4bc496) made keeps every row when it is migrated.

`tests/golden/old_lake.tar.xz` has the tables with other names now, of the frozen lake (`tests.frozen`) of that commit.
Both sides are read by delta-rs alone.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.pipeline.renamed_lake import settings_of

from spillway.streams.migrate import migrate

PACKED = Path(__file__).resolve().parents[1] / "golden" / "old_lake.tar.xz"
NAMES = {
    "lake/batches": {"beside_bytes": "overhead_bytes"},
    "lake/certificates": {"way": "treatment", "held_values": "source_values"},
    "lake/coverage": {"room": "capacity_group"},
    "destination/told": {"beside_bytes": "overhead_bytes"},
    "destination/join_windows": {
        "pairs_given_back": "inexact_pairs", "moved": "drift_detected", "may_spend": "budget_steps",
        "worth": "utility",
    },
    "lake/ledger": {"bytes_asked_back": "bytes_requested"},
    "lake/schemes": {"way": "treatment"},
    "lake/sifters": {"keep_aside": "keep_at_source", "worth": "utility", "asked": "queried"},
}  # fmt: skip
STATUSES = {"taken_in": "ingested", "set_aside": "quarantined", "taken": "ingested"}


def rows_in(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return [
        row | {"payload": json.loads(zlib.decompress(row["payload"]))}
        if path.parent.name == "destination" and "payload" in row
        else row
        for row in found
    ]


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            names.get(key, key): STATUSES.get(one, one) if key == "status" else renamed(one, names)
            for key, one in value.items()
        }
    return [renamed(one, names) for one in value] if isinstance(value, list) else value


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.long
def test_migrated_lake_of_an_old_spillway_has_its_rows_under_the_new_names(tmp_path: Path) -> None:
    with tarfile.open(PACKED) as packed:
        packed.extractall(tmp_path, filter="data")
    before = {name: rows_in(tmp_path / name) for name in NAMES}
    assert {row["status"] for row in before["lake/batches"]} == {"done", "retired", "taken_in"}
    settings = replace(settings_of(tmp_path), destination=str(tmp_path / "destination"))
    assert len(migrate(settings)) == len(NAMES)
    for name, rows in before.items():
        after = rows_in(tmp_path / name.replace("told", "destination_metadata"))
        assert len(rows) == len(after) > 0
        assert texts(after) == texts([renamed(row, NAMES[name]) for row in rows]), name
    assert migrate(settings) == []
    assert not (tmp_path / "destination" / "told").exists()

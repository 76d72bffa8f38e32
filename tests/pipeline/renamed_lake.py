"""Tables as an earlier version of Spillway wrote them, with the names of that time. Not a test."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from spillway.settings import Settings
from spillway.store.renames import RENAMES
from spillway.store.schemas import TableColumn, TableContract, arrow_type
from spillway.store.tables import Tables

NAMES = {
    "alerts": {"tried_at": "told_at"},
    "batches": {"overhead_bytes": "beside_bytes"},
    "certificates": {"treatment": "way", "source_values": "held_values"},
    "coverage": {"capacity_group": "room"},
    "destination_metadata": {},
    "join_windows": {
        "inexact_pairs": "pairs_given_back", "drift_detected": "moved", "budget_steps": "may_spend",
        "utility:array": "worth:array",
    },
    "ledger": {"bytes_requested": "bytes_asked_back"},
    "schemes": {"treatment:": "way:"},
    "sifters": {"keep_at_source": "keep_aside", "utility:double": "worth:double", "queried:": "asked:"},
}  # fmt: skip
"""What the tables were called in, before: names of columns, and of fields in the text of a type."""
STATUSES = {
    "alerts": [("delivered", "told"), ("failed", "failed")],
    "batches": [("ingested", "taken_in"), ("quarantined", "set_aside"), ("done", "done")],
}
FILES = [("ingested", "taken"), ("duplicate", "duplicate"), ("refused", "refused")]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def some_value(kind: pa.DataType, number: int) -> Any:
    """A value of a type, other for each number."""
    if pa.types.is_list(kind):
        return [some_value(kind.value_type, number + place) for place in range(number % 3)]
    if pa.types.is_struct(kind):
        return tuple(some_value(kind.field(place).type, number + place) for place in range(kind.num_fields))
    if pa.types.is_map(kind):
        return {some_value(kind.key_type, number): some_value(kind.item_type, number)}
    plain: dict[pa.DataType, Any] = {
        pa.string(): f"text {number}", pa.int64(): number, pa.float64(): number / 4, pa.bool_(): number % 2 == 0,
        pa.date32(): date(2026, 1, 1 + number % 2), pa.binary(): bytes(number),
    }  # fmt: skip
    return plain.get(kind, NOW)


def rows_of(contract: TableContract, old: bool) -> list[dict[str, Any]]:
    """Six rows with every column, by the names of the contract; `old`: with the earlier values."""
    found = []
    for number in range(6):
        row = {one.name: some_value(arrow_type(one.type), number) for one in contract.columns}
        row |= {one.name: None for one in contract.columns if one.nullable and number == 5}
        row |= {name: f"s{number % 2}" for name in contract.partitioned_by if name != "batch_date"}
        if contract.table in STATUSES or contract.table == "told":
            statuses = STATUSES.get(contract.table, [])
            row |= {"status": statuses[number % len(statuses)][old]} if statuses else {}
        if "files" in row:
            names = [one.partition(":")[0] for one in _fields(contract, "files")]
            at = names.index("status")
            row["files"] = [
                (*one[:at], FILES[(number + place) % 3][old], *one[at + 1 :])
                for place, one in enumerate(row["files"])
            ]
        if contract.table in ("told", "destination_metadata"):
            row["payload"] = payload(number, "beside_bytes" if old else "overhead_bytes")
        found.append(row)
    return found


def _fields(contract: TableContract, column: str) -> list[str]:
    (text,) = [one.type for one in contract.columns if one.name == column]
    return text.removeprefix("array<struct<").split(",")


def payload(number: int, name: str) -> bytes:
    """The metadata of a batch, and of an earlier one: stored without compression if the number is odd."""
    rows = {
        "batches": [{"batch": number, name: 7, "status": "done"}],
        "schemes": [{"attributes": [["temp", "shed"]]}],
    }
    text = json.dumps(rows | {"earlier": {"1": {"batches": [{"batch": 1, name: 9}]}}})
    return zlib.compress(text.encode(), 0 if number % 2 else 9)


def as_it_was(contract: TableContract) -> TableContract:
    """The column contract of the version before the names changed."""
    changed = NAMES[contract.table]

    def renamed(one: TableColumn) -> TableColumn:
        text = one.type
        for now, before in changed.items():
            text = text.replace(now, before) if ":" in now else text
        return replace(one, name=changed.get(one.name, one.name), type=text)

    columns = tuple(renamed(one) for one in contract.columns)
    table = "told" if contract.table == "destination_metadata" else contract.table
    return replace(contract, table=table, columns=columns, version=contract.version - 1)


def settings_of(folder: Path) -> Settings:
    return Settings.from_environment(
        {"SPILLWAY_HOME": str(folder), "SPILLWAY_DESTINATION": str(folder / "there")}
    )


def write_lake(settings: Settings, old: bool, names: Iterable[str] = RENAMES) -> Settings:
    """Write two commits of rows to each of these tables, which have other names now."""
    tables = Tables(settings)
    for name in names:
        contract = tables.contract(name)
        if old:
            contract = as_it_was(contract)
        path = tables.path(name).removesuffix(name) + contract.table
        rows = rows_of(contract, old)
        for few in (rows[:4], rows[4:]):
            tables.own(path, contract).append(few)
    return settings

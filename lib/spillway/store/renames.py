"""Names of tables, columns and status values that changed, and the change of rows from the earlier names to the new.

A table states the version of its column contract (`spillway.formatVersion`). Below the version of its entry in
`RENAMES`, it has the earlier names. A reader that looked for the new names there would find nulls. So such a table is
refused until `spillway migrate` has renamed its columns and values.

>>> rows = pa.table({"hook": ["desk"], "status": ["told"], "told_at": [1]})
>>> rename_rows(rows, RENAMES["alerts"]).to_pylist()
[{'hook': 'desk', 'status': 'delivered', 'tried_at': 1}]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import InvalidExternalValue
from spillway.store.blobs import folder_exists
from spillway.store.schemas import TableContract

REMEDY = "run `spillway migrate`, which changes the names in every table"


@dataclass(frozen=True)
class Renames:
    """The names that a table changed. A field of a struct, or of a list of structs, has a path: `files.status`."""

    version: int
    """The first format version with the new names."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The new name of a column or field, by its earlier path."""
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The new value by the earlier value, by the path of the column or field."""
    table: str | None = None
    """The earlier name of the table."""

    @property
    def summary(self) -> list[str]:
        """The renames, each as a short text."""
        return [
            *(f"`{before}` is called `{now}`" for before, now in self.columns.items()),
            *(
                f"`{path}` {before} is called {now}"
                for path, values in self.values.items()
                for before, now in values.items()
            ),
        ]


_LEARNED = {"left_learned.worth": "utility", "right_learned.worth": "utility"}
RENAMES: Mapping[str, Renames] = {
    "alerts": Renames(2, {"told_at": "tried_at"}, {"status": {"told": "delivered"}}),
    "batches": Renames(
        4,
        {"beside_bytes": "overhead_bytes"},
        {
            "status": {"taken_in": "ingested", "set_aside": "quarantined"},
            "files.status": {"taken": "ingested"},
        },
    ),
    "certificates": Renames(5, {"way": "treatment", "held_values": "source_values"}),
    "coverage": Renames(2, {"room": "capacity_group"}),
    "destination_metadata": Renames(2, table="told"),
    "join_windows": Renames(
        2,
        {
            "pairs_given_back": "inexact_pairs",
            "moved": "drift_detected",
            "may_spend": "budget_steps",
            **_LEARNED,
        },
    ),
    "ledger": Renames(3, {"bytes_asked_back": "bytes_requested"}),
    "schemes": Renames(3, {"attributes.way": "treatment"}),
    "sifters": Renames(
        2, {"keep_aside": "keep_at_source", "regions.worth": "utility", "regions.asked": "queried"}
    ),
}
"""The changed names by table."""


def refuse_earlier_names(
    path: str, contract: TableContract, version: int, format_version: int | None
) -> None:
    """Refuse a table that has, or may have, names of an earlier version of Spillway.

    `version`: the number of the table's last commit, -1 if there is no table. A table that was itself renamed is
    copied by its second commit. Until then, its rows are in the folder of the earlier name.
    """
    renames = RENAMES.get(contract.table)
    if renames is None:
        return
    if version >= 0 and (format_version or 1) < renames.version:
        rule = f"be at least {renames.version}: an earlier Spillway wrote the table with other names"
        raise InvalidExternalValue("format version", rule, format_version or 1, REMEDY, path)
    if renames.table is not None and version < 1:
        earlier = f"{path.removesuffix(contract.table)}{renames.table}"
        if folder_exists(f"{earlier}/_delta_log"):
            rule = f"be called {contract.table}: an earlier Spillway called it {renames.table}"
            raise InvalidExternalValue("table", rule, renames.table, REMEDY, earlier)


def rename_schema(schema: pa.Schema, renames: Renames) -> pa.Schema:
    """Return the schema with the new names; types, order, nullability and comments are unchanged."""
    return pa.schema([_renamed_field(one, one.name, renames) for one in schema])


def rename_rows(rows: pa.Table, renames: Renames) -> pa.Table:
    """Return the rows with the new names and values."""
    schema = rename_schema(rows.schema, renames)
    columns = [
        pa.chunked_array(
            [_renamed_array(chunk, one.name, renames) for chunk in rows[one.name].chunks], to.type
        )
        for one, to in zip(rows.schema, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def rename_record(record: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    """Return one row, as JSON has it, with the new names and values of its columns. Fields of structs have no names."""
    return {
        renames.columns.get(name, name): renames.values.get(name, {}).get(value, value)
        if isinstance(value, str)
        else value
        for name, value in record.items()
    }


def _renamed_field(one: pa.Field, path: str, renames: Renames) -> pa.Field:
    return one.with_name(renames.columns.get(path, one.name)).with_type(
        _renamed_type(one.type, path, renames)
    )


def _renamed_type(kind: pa.DataType, path: str, renames: Renames) -> pa.DataType:
    if pa.types.is_struct(kind):
        inside = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([_renamed_field(one, f"{path}.{one.name}", renames) for one in inside])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_renamed_type(kind.value_type, path, renames)))
    return kind


def _renamed_array(array: pa.Array, path: str, renames: Renames) -> pa.Array:
    kind = _renamed_type(array.type, path, renames)
    values = renames.values.get(path)
    if values is not None:
        for earlier, now in values.items():
            array = pc.if_else(pc.fill_null(pc.equal(array, earlier), False), now, array)
        return array
    if not (pa.types.is_struct(kind) or pa.types.is_list(kind)):
        return array
    if not any(one.startswith(f"{path}.") for one in (*renames.columns, *renames.values)):
        return array
    array = array.take(pa.array(range(len(array)), pa.int64()))  # so that no slice's offset is left
    if pa.types.is_list(kind):
        inside = _renamed_array(array.values, path, renames)
        return pa.ListArray.from_arrays(array.offsets, inside, kind, mask=array.is_null())
    names = [array.type.field(place).name for place in range(array.type.num_fields)]
    parts = [
        _renamed_array(one, f"{path}.{name}", renames)
        for name, one in zip(names, array.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())

"""The column contracts of the tables: `schemas/tables/*.yaml`, read and checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from spillway.errors import SpillwayError

SPARK_TYPES = {
    "string": "string",
    "boolean": "boolean",
    "integer": "bigint",
    "double": "double",
    "timestamp": "timestamp",
    "date": "date",
}
"""Contract type of an attribute -> type of its column."""

BOUND_SUFFIX = "__bound_pct"
"""A recovered value's bound stands in the column named after the attribute with this suffix."""


@dataclass(frozen=True)
class TableColumn:
    """A column: its name, Spark type, whether it may be null, and what it means."""

    name: str
    type: str
    nullable: bool
    meaning: str


@dataclass(frozen=True)
class TableContract:
    """What a table holds and how it lies: columns, partitions, order, root."""

    table: str
    meaning: str
    version: int
    scope: str
    root: str
    curated: bool
    partitioned_by: tuple[str, ...]
    sorted_by: tuple[str, ...]
    columns: tuple[TableColumn, ...]

    def with_attributes(self, attributes: Sequence[tuple[str, str]]) -> TableContract:
        """The table of one stream: these columns and then the stream's attributes (name, contract type).

        Attributes are nullable in the lake, whatever the contract says of delivered tuples: shed ones are
        null in `transmitted`, and a contract may gain or lose one between batches.
        """
        extra = [TableColumn(name, SPARK_TYPES[kind], True, "see the contract") for name, kind in attributes]
        if self.table == "recovered":
            extra += [
                TableColumn(
                    name + BOUND_SUFFIX, "double", True, f"bound of {name} in %; null where it was not shed"
                )
                for name, _ in attributes
            ]
        return TableContract(**{**self.__dict__, "columns": (*self.columns, *extra)})

    @property
    def description(self) -> str:
        """What the table says of itself, with the version of its format."""
        return f"{self.meaning} Format version {self.version}."

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _table(path: Path, document: Mapping[str, Any]) -> TableContract:
    try:
        return TableContract(
            table=document["table"],
            meaning=document["meaning"],
            version=int(document["version"]),
            scope=document["scope"],
            root=document["root"],
            curated=bool(document["curated"]),
            partitioned_by=tuple(document["partitioned_by"]),
            sorted_by=tuple(document["sorted_by"]),
            columns=tuple(TableColumn(**column) for column in document["columns"]),
        )
    except (KeyError, TypeError) as problem:
        raise SpillwayError(
            f"{path.name}: a table contract must state table, meaning, version, scope, root, curated, "
            f"partitioned_by, sorted_by and columns, got {problem}; compare with its neighbours"
        ) from problem


@cache
def table_contracts(schemas: str) -> Mapping[str, TableContract]:
    """Every table of the lake by name, from `<schemas>/tables/*.yaml`."""
    found = {}
    for path in sorted(Path(schemas, "tables").glob("*.yaml")):
        contract = _table(path, yaml.safe_load(path.read_text(encoding="utf-8")))
        found[contract.table] = contract
    if not found:
        raise SpillwayError(
            f"`{schemas}/tables` must hold the table contracts, got none; set SPILLWAY_SCHEMAS"
        )
    return found

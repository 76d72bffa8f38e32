"""Format versions: what a table was written by, what its column contract says now, and what lies between the two.

A table says its version in the property `spillway.formatVersion`. A newer one than this Spillway knows is refused by
name. Columns, and fields of structs, that the contract has gained are merged by whoever writes next; a column that may
be null now and could not is let go by `spillway migrate`. Anything else a table cannot become in place.

>>> from spillway.store.table_contracts import TableColumn, TableContract
>>> columns = (TableColumn("a", "bigint", True, ""), TableColumn("b", "string", True, ""))
>>> now = TableContract("t", "", 2, "shared", "lake", True, (), (), columns)
>>> found = differences(pa.schema([pa.field("a", pa.int64(), nullable=False)]), now)
>>> found.said
['`b` is new', '`a` may be null']
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spillway.errors import RefusedElsewhere
from spillway.store.table_contracts import TableContract, has_grown, spark_type


@dataclass(frozen=True)
class Differences:
    """What a table lacks of its column contract."""

    added: tuple[pa.Field, ...]
    grown: tuple[pa.Field, ...]
    """Columns with the type that they grow into."""
    relaxed: tuple[str, ...]
    """Columns that may be null now."""
    impossible: tuple[tuple[str, str, str], ...]
    """Columns of another type: name, type as it is, type as it is wanted."""

    @property
    def said(self) -> list[str]:
        """Each in a few words."""
        return [
            *(f"`{one.name}` is new" for one in self.added),
            *(f"`{one.name}` has more fields" for one in self.grown),
            *(f"`{name}` may be null" for name in self.relaxed),
        ]


def differences(schema: pa.Schema, contract: TableContract) -> Differences:
    """What lies between a table's columns and its contract's."""
    have = {one.name: one for one in schema}
    added, grown, relaxed, impossible = [], [], [], []
    for one in contract.arrow_schema:
        if one.name not in have:
            added.append(one.with_nullable(True))
            continue
        was = have[one.name]
        before, now = spark_type(was.type), spark_type(one.type)
        if before != now and has_grown(was.type, one.type):
            grown.append(was.with_type(one.type))
        elif before != now:
            impossible.append((one.name, before, now))
        if one.nullable and not was.nullable:
            relaxed.append(one.name)
    return Differences(tuple(added), tuple(grown), tuple(relaxed), tuple(impossible))


def refuse_newer(path: str, contract: TableContract, found: int | None) -> None:
    """A table that a later Spillway has written says what this one would misread."""
    if found is not None and found > contract.version:
        raise RefusedElsewhere(
            "format version",
            f"be at most {contract.version}",
            found,
            "a later Spillway wrote the table: use that one",
            path,
        )

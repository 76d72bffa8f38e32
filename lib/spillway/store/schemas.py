"""Column contracts of the tables: those of the product, and those of each lever; each is read and checked once.

The product's contracts are in `schemas/tables` of the checkout and are part of the package (`registry.product_folder`).
The environment variable `SPILLWAY_SCHEMAS` does not change that. A lever's contracts are in the folder `tables` of its
package.

Format versions: a table states the version of its contract in the property `spillway.formatVersion`. A version that is
newer than this Spillway's is refused by name. The next writer adds the columns, and the fields of structs, that the
contract has gained. `spillway migrate` lets a column be null that could not be null before. Any other change of a table
is impossible in place.

>>> from spillway.store.schemas import TableColumn, TableContract
>>> columns = (TableColumn("a", "bigint", True, ""), TableColumn("b", "string", True, ""))
>>> now = TableContract("t", "", 2, "shared", "lake", True, (), (), columns)
>>> found = schema_differences(pa.schema([pa.field("a", pa.int64(), nullable=False)]), now)
>>> found.summary
['`b` is new', '`a` may be null']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from spillway import registry
from spillway.contracts.column_names import BOUND_SUFFIX, OWN_BOUND_SUFFIX
from spillway.contracts.stream import ARROW_TYPES as ATTRIBUTE_TYPES
from spillway.errors import InvalidExternalValue, InvalidValue, SpillwayError

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe YAML loader, compiled if available, because every command reads the tables' contracts."""

SPARK_TYPES = {
    "string": "string",
    "boolean": "boolean",
    "integer": "bigint",
    "double": "double",
    "timestamp": "timestamp",
    "date": "date",
}
"""The type of a column, by the contract type of its attribute."""

ARROW_TYPES: Mapping[str, pa.DataType] = {
    **{spark: ATTRIBUTE_TYPES[kind] for kind, spark in SPARK_TYPES.items()},
    "binary": pa.binary(),
}
"""The type of a column, by its Spark type."""


@dataclass(frozen=True)
class TableColumn:
    """A column: its name, Spark type, whether it may be null, and what it means."""

    name: str
    type: str
    nullable: bool
    meaning: str


@dataclass(frozen=True)
class TableContract:
    """The contract of a table: its columns, partitions, sort order and root."""

    table: str
    meaning: str
    version: int
    scope: str
    root: str
    curated: bool
    partitioned_by: tuple[str, ...]
    sorted_by: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    retain_days: int | None = None
    """Days that a row is kept, after its batch date or after its batch came, whichever is later; None: no limit by age.
    """
    kept_for: tuple[str, ...] = ()
    """The tables that need a batch's rows here as long as they have rows of the batch."""
    change_feed: bool = False
    """Whether readers may ask which rows a commit inserted and deleted (Delta's change data feed)."""

    def with_attributes(
        self,
        attributes: Sequence[tuple[str, str]],
        added: Sequence[tuple[str, str, str]] = (),
        own_bounds: Sequence[str] = (),
    ) -> TableContract:
        """Return the contract of one stream's table, with the columns of its levers and the stream's attributes.

        `attributes`: (name, contract type). `added`: (name, column type, meaning). `own_bounds`: the attributes with a
        bound in their own unit, which has a column in `recovered`. All of them may be null in the lake, even if
        delivered tuples may not have nulls: shed values are null in `transmitted`, and a contract may gain or lose an
        attribute or a lever between batches.
        """
        extra = [TableColumn(name, kind, True, meaning) for name, kind, meaning in added]
        extra += [TableColumn(name, SPARK_TYPES[kind], True, "see the contract") for name, kind in attributes]
        if self.table == "recovered":
            extra += [
                TableColumn(
                    name + BOUND_SUFFIX,
                    "double",
                    True,
                    f"bound of {name} in %; null: exact; NaN: only {name}{OWN_BOUND_SUFFIX} bounds it; infinite: "
                    "absent",
                )
                for name, _ in attributes
            ]
            extra += [
                TableColumn(
                    name + OWN_BOUND_SUFFIX,
                    "double",
                    True,
                    f"bound of {name} in its own unit; null: exact or absent",
                )
                for name, _ in attributes
                if name in own_bounds
            ]
        return replace(self, columns=(*self.columns, *extra))

    @property
    def description(self) -> str:
        """The description that the table stores, with the version of its format."""
        return f"{self.meaning} Format version {self.version}."

    @property
    def row_group_column(self) -> str | None:
        """The column that has one value per row group, so that the bytes of a batch can be counted; else None.

        Only compacted files of a date hold several batches. Each batch is first written to a file of its own.
        """
        if "batch_date" not in self.partitioned_by:
            return None
        return next((name for name in ("batch", "window") if name in self.names), None)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns as an Arrow schema, with nullability and meaning."""
        return pa.schema(
            [
                pa.field(c.name, arrow_type(c.type), nullable=c.nullable, metadata={"comment": c.meaning})
                for c in self.columns
            ]
        )

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are stored in files: all but the partition columns."""
        return pa.schema(
            [pa.field(f.name, f.type) for f in self.arrow_schema if f.name not in self.partitioned_by]
        )


def arrow_type(ddl: str) -> pa.DataType:
    """Return the Arrow type of a column's Spark type.

    >>> arrow_type("array<struct<name:string,rows:bigint>>")
    ListType(list<element: struct<name: string, rows: int64>>)
    """
    text = ddl.replace(" ", "")
    if text in ARROW_TYPES:
        return ARROW_TYPES[text]
    kind, _, inside = text.partition("<")
    inside = inside.removesuffix(">")
    if kind == "array":
        return pa.list_(pa.field("element", arrow_type(inside)))
    if kind == "map":
        key, value = _split(inside)
        return pa.map_(arrow_type(key), arrow_type(value))
    if kind == "struct":
        fields = [field.partition(":") for field in _split(inside)]
        return pa.struct([pa.field(name, arrow_type(type_)) for name, _, type_ in fields])
    raise InvalidValue("type", "be a type that tables of Spillway have", ddl, "see schemas/tables")


def has_gained_fields(was: pa.DataType, now: pa.DataType) -> bool:
    """Return whether a struct, or a list of structs, has only gained fields at its end; older rows have null for them.

    >>> was, now = arrow_type("array<struct<a:string>>"), arrow_type("array<struct<a:string,b:bigint>>")
    >>> has_gained_fields(was, now), has_gained_fields(now, was)
    (True, False)
    """
    if pa.types.is_list(was) and pa.types.is_list(now):
        return has_gained_fields(was.value_type, now.value_type)
    if not (pa.types.is_struct(was) and pa.types.is_struct(now)):
        return False
    old, new = ([(one.name, spark_type(one.type)) for one in kind] for kind in (was, now))
    return len(new) > len(old) and new[: len(old)] == old


def spark_type(kind: pa.DataType) -> str:
    """Return an Arrow type in the spelling of column contracts.

    >>> spark_type(arrow_type("array<struct<name:string,rows:bigint>>"))
    'array<struct<name:string,rows:bigint>>'
    """
    for name, plain in ARROW_TYPES.items():
        if kind == plain:
            return name
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        inside = ",".join(
            f"{kind.field(i).name}:{spark_type(kind.field(i).type)}" for i in range(kind.num_fields)
        )
        return f"struct<{inside}>"
    return str(kind)


def _split(text: str) -> list[str]:
    """Split at the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


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
            retain_days=document.get("retain_days"),
            kept_for=tuple(document.get("kept_for", ())),
            change_feed=bool(document.get("change_feed", False)),
        )
    except (KeyError, TypeError) as problem:
        raise SpillwayError(
            f"{path.name}: a table contract must state table, meaning, version, scope, root, curated, "
            f"partitioned_by, sorted_by and columns, got {problem}; compare with its neighbours"
        ) from problem


_read: dict[Path, TableContract] = {}


def read_contracts(folders: Iterable[Path]) -> dict[str, TableContract]:
    """Return the contracts that the YAML files of these folders define."""
    found = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        if path not in _read:
            _read[path] = _table(path, yaml.load(path.read_text(encoding="utf-8"), _Loader))
        found[_read[path].table] = _read[path]
    return found


def table_contracts() -> Mapping[str, TableContract]:
    """Return every table's contract by name: those of the product and of all registered levers."""
    return read_contracts([registry.product_folder("tables"), *registry.folders("tables").values()])


@dataclass(frozen=True)
class SchemaDifferences:
    """The differences between a table and its column contract."""

    added: tuple[pa.Field, ...]
    grown: tuple[pa.Field, ...]
    """Columns with new fields, each with its new type."""
    relaxed: tuple[str, ...]
    """Columns that may be null now and could not be before."""
    impossible: tuple[tuple[str, str, str], ...]
    """Columns of another type: name, type in the table, type in the contract."""

    @property
    def summary(self) -> list[str]:
        """The differences that can be applied, each as a short text."""
        return [
            *(f"`{one.name}` is new" for one in self.added),
            *(f"`{one.name}` has more fields" for one in self.grown),
            *(f"`{name}` may be null" for name in self.relaxed),
        ]


def schema_differences(schema: pa.Schema, contract: TableContract) -> SchemaDifferences:
    """Return the differences between a table's columns and its contract."""
    have = {one.name: one for one in schema}
    added, grown, relaxed, impossible = [], [], [], []
    for one in contract.arrow_schema:
        if one.name not in have:
            added.append(one.with_nullable(True))
            continue
        was = have[one.name]
        before, now = spark_type(was.type), spark_type(one.type)
        if before != now and has_gained_fields(was.type, one.type):
            grown.append(was.with_type(one.type))
        elif before != now:
            impossible.append((one.name, before, now))
        if one.nullable and not was.nullable:
            relaxed.append(one.name)
    return SchemaDifferences(tuple(added), tuple(grown), tuple(relaxed), tuple(impossible))


def refuse_newer(path: str, contract: TableContract, found: int | None) -> None:
    """Refuse a table that a later Spillway has written, because this one would misread it."""
    if found is not None and found > contract.version:
        raise InvalidExternalValue(
            "format version",
            f"be at most {contract.version}",
            found,
            "a later Spillway wrote the table: use that one",
            path,
        )

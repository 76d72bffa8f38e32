"""The small tables: a handful of rows that the driver makes, written without Spark.

`batches`, `schemes`, `ledger`, `models`, `certificates` and `validations` get a few rows a run. A Spark commit of three
rows costs a second or more, one by delta-rs some hundredths, with the same atomic replacement of what matches a
predicate, and the same refusal when another writer was there first. Each table has one kind of writer, always: these
delta-rs, the large ones Delta on Spark; so no two log protocols ever meet in one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from spillway.errors import SpillwayError
from spillway.store.files import delta_table, delta_uri
from spillway.store.table_contracts import TableContract

PLAIN_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}


ATTEMPTS_AT_A_NEW_TABLE = 5


class ConcurrentRun(SpillwayError):
    """Another run wrote the same batch at the same time; nothing was doubled, try again."""


def arrow_type(ddl: str) -> pa.DataType:
    """A column's Spark type as Arrow.

    >>> arrow_type("array<struct<name:string,rows:bigint>>")
    ListType(list<element: struct<name: string, rows: int64>>)
    """
    text = ddl.replace(" ", "")
    if text in PLAIN_TYPES:
        return PLAIN_TYPES[text]
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
    raise SpillwayError(
        f"`type` must be a type that tables of Spillway have, got {ddl!r}; see schemas/tables"
    )


def _split(text: str) -> list[str]:
    """Parts between the commas that stand outside of any brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def arrow_schema(contract: TableContract) -> pa.Schema:
    """The table's columns as Arrow has them, nullability included."""
    return pa.schema([pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in contract.columns])


def replace_small(
    path: str,
    contract: TableContract,
    rows: Iterable[Mapping[str, Any]],
    predicate: str,
    properties: Mapping[str, str],
) -> None:
    """Put `rows` in the place of those that match `predicate`, in one commit; the table is made when missing."""
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    data = _arrow_rows(contract, list(rows))
    if delta_table(path) is None:
        try:
            DeltaTable.create(
                delta_uri(path),
                data.schema,
                mode="ignore",
                partition_by=list(contract.partitioned_by),
                description=contract.description,
                configuration=dict(properties),
            )
        except DeltaError:
            # two streams may begin a table at the same time; whoever came first made it as this one would
            if delta_table(path) is None:
                raise
    for attempt in range(ATTEMPTS_AT_A_NEW_TABLE):
        try:
            write_deltalake(delta_uri(path), data, mode="overwrite", predicate=predicate)
            return
        except (CommitFailedError, DeltaError) as problem:
            text = str(problem).lower()
            # another stream has just begun this table: nobody's rows are at stake, write again
            if "metadata changed" in text and attempt + 1 < ATTEMPTS_AT_A_NEW_TABLE:
                continue
            if isinstance(problem, CommitFailedError) or "conflict" in text or "concurrent" in text:
                raise ConcurrentRun(
                    f"{contract.table}: another run wrote {predicate} at the same time; nothing was doubled, "
                    "run it again"
                ) from problem
            raise


def _arrow_rows(contract: TableContract, rows: list[Mapping[str, Any]]) -> pa.Table:
    known = set(contract.names)
    for row in rows:
        strange = sorted(set(row) - known)
        missing = [c.name for c in contract.columns if not c.nullable and row.get(c.name) is None]
        if strange or missing:
            problems = [f"`{name}` is not in the contract" for name in strange]
            problems += [f"`{name}` must not be null" for name in missing]
            raise SpillwayError(
                f"{contract.table} must be written as schemas/tables/{contract.table}.yaml says: "
                + "; ".join(problems)
            )
    schema = arrow_schema(contract)
    try:
        return pa.table([_array([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise SpillwayError(
            f"{contract.table} must be written as schemas/tables/{contract.table}.yaml says: {problem}"
        ) from problem


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([_named(value, kind) for value in values], kind)


def _named(value: Any, kind: pa.DataType) -> Any:
    """Tuples as the structs they stand for, mappings as the pairs Arrow wants."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, tuple):
        return {kind.field(i).name: _named(item, kind.field(i).type) for i, item in enumerate(value)}
    if pa.types.is_list(kind):
        return [_named(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return list(value.items())
    return value

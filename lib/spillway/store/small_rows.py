"""A handful of rows as a table's contract has them, or the names of what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spillway.errors import SpillwayError
from spillway.store.table_contracts import TableContract


def arrow_rows(contract: TableContract, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as the contract has them: no column more, no type else, nothing null that must not be."""
    known = set(contract.names)
    for row in rows:
        strange = sorted(set(row) - known)
        missing = [c.name for c in contract.columns if not c.nullable and row.get(c.name) is None]
        empty = [name for name in contract.partitioned_by if row.get(name) == ""]  # Delta has null for it
        if strange or missing or empty:
            problems = [f"`{name}` is not in the contract" for name in strange]
            problems += [f"`{name}` must not be null" for name in missing]
            problems += [f"`{name}` must not be empty" for name in empty]
            raise SpillwayError(
                f"{contract.table} must be written as its column contract says: " + "; ".join(problems)
            )
    schema = pa.schema([pa.field(f.name, f.type) for f in contract.arrow_schema])
    columns = [_array(contract, f, [row.get(f.name) for row in rows]) for f in schema]
    return pa.table(columns, schema=schema)


def _array(contract: TableContract, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array([_named(value, field.type) for value in values], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise SpillwayError(
            f"{contract.table} must be written as its column contract says: `{field.name}`: {problem}"
        ) from problem


def _named(value: Any, kind: pa.DataType) -> Any:
    """Tuples as the structs they stand for, mappings as the pairs Arrow wants."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, tuple):
        return {
            kind.field(i).name: _named(item, kind.field(i).type)
            for i, item in zip(range(kind.num_fields), value, strict=True)
        }
    if pa.types.is_list(kind):
        return [_named(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return list(value.items())
    return value

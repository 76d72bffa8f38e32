"""The last step for every format: typed columns, required attributes, and the rejects taken out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spillway.contracts.model import StreamContract
from spillway.records.convert import convert, is_in_repeated_hour, rule_of, skipped_hour
from spillway.records.notes import repeated_hour
from spillway.records.rejects import Rejects

LINE = "line"


@dataclass(frozen=True)
class Parsed:
    """The usable records of a file, or of a part of it (`line`, then the attributes), the others, and what is odd.

    `notes` counts, by what is noted, records that were taken all the same.
    """

    table: pa.Table
    rejected: pa.Table
    notes: Mapping[str, int] = field(default_factory=dict)


def table_schema(contract: StreamContract) -> pa.Schema:
    """`line` and the contract's attributes."""
    return pa.schema([pa.field(LINE, pa.int64(), nullable=False), *contract.arrow_schema])


def nothing(contract: StreamContract, rejects: Rejects) -> Parsed:
    """A file without usable records."""
    return Parsed(table_schema(contract).empty_table(), rejects.table())


def assemble(
    contract: StreamContract,
    lines: npt.NDArray[np.int64],
    columns: Mapping[str, pa.Array],
    original: Callable[[int], bytes],
    rejects: Rejects,
) -> pa.Table:
    """Types every column (by attribute name; absent: null), rejects what does not fit, keeps the rest.

    `original(i)` gives the bytes of record i. The first problem of a record, in contract order, is reported.
    """
    refused = np.zeros(len(lines), dtype=np.bool_)
    decimal = contract.source.options.decimal if contract.source.format == "csv" else "."
    typed: list[pa.Array] = []
    for attribute in contract.attributes:
        raw = columns.get(attribute.name)
        if raw is None:
            raw = pa.nulls(len(lines), pa.string())
        values, bad = convert(raw, attribute.type, contract.timezone, contract.non_finite, decimal)
        rule, remedy = rule_of(attribute.type, contract.timezone, contract.non_finite, decimal)
        for i in np.flatnonzero(bad & ~refused):
            value = shown_value(raw[int(i)])
            skipped = skipped_hour(value, contract.timezone) if attribute.type == "timestamp" else None
            broken, remedied = skipped or (rule, remedy)
            rejects.add(int(lines[i]), attribute.source_name, broken, str(value), remedied, original(int(i)))
        refused |= bad
        if attribute.required and values.null_count > 0:
            part = {"key": "a key", "order": "the order"}.get(attribute.role, "declared nullable: false")
            why = f"send it with every record: it is {part}"
            missing = np.asarray(values.is_null().to_numpy(zero_copy_only=False)) & ~refused
            for i in np.flatnonzero(missing):
                rejects.add(int(lines[i]), attribute.source_name, "be there", "null", why, original(int(i)))
            refused |= missing
        if attribute.type == "timestamp":
            twice = int((is_in_repeated_hour(raw, values, contract.timezone) & ~refused).sum())
            if twice:
                note = repeated_hour(attribute.source_name)
                rejects.notes[note] = rejects.notes.get(note, 0) + twice
        typed.append(values)
    table = pa.Table.from_arrays([pa.array(lines, pa.int64()), *typed], schema=table_schema(contract))
    return table.filter(pa.array(~refused)) if refused.any() else table


def shown_value(value: pa.Scalar) -> Any:
    """The value as Python has it; a time that Python has none for as its number, bytes that are no text escaped."""
    try:
        plain = value.as_py()
    except UnicodeDecodeError:
        plain = value.cast(pa.binary()).as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        plain = value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64()).as_py()
    return plain.decode("utf-8", "backslashreplace") if isinstance(plain, bytes) else plain

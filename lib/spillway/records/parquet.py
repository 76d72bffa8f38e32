"""Parquet: a column of another type, or one too many, refuses the file; a value that does not fit, its row.

Rows count from 1. Integers of any width are integers, floats of any width and integers are doubles, timestamps of
any unit and zone are timestamps; nothing is read out of text.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from spillway.contracts.model import StreamContract
from spillway.contracts.shapes import suggest
from spillway.records.assemble import Parsed, assemble, nothing
from spillway.records.convert import RULES, fits
from spillway.records.rejects import WHOLE_FILE, Rejects


def parse_parquet(contract: StreamContract, file_name: str, content: bytes) -> Parsed:
    """The records of a Parquet file."""
    rejects = Rejects(file_name)
    if not content:
        return nothing(contract, rejects)
    try:
        table = pyarrow.parquet.read_table(pa.BufferReader(content), use_threads=False)
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        rejects.add(WHOLE_FILE, "the file", "be readable Parquet", problem, "send the file again", content)
        return nothing(contract, rejects)
    if not _schema_fits(contract, table.schema, content, rejects):
        return nothing(contract, rejects)
    columns = {}
    for attribute in contract.attributes:
        if attribute.source_name in table.column_names:
            column = table.column(attribute.source_name).combine_chunks()
            columns[attribute.name] = _flat(column)
    row_numbers = np.arange(1, table.num_rows + 1, dtype=np.int64)
    return assemble(contract, row_numbers, columns, lambda i: _as_json(table, i), rejects)


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    # Arrow trusts a file's strings; read as bytes they are checked when converted
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    return array.cast(pa.large_binary()) if text else array


def _schema_fits(contract: StreamContract, schema: pa.Schema, content: bytes, rejects: Rejects) -> bool:
    known = {a.source_name: a for a in contract.attributes}
    for i, column in enumerate(schema):
        if column.name not in known:
            remedy = suggest(column.name, known) + ", or add it to the contract"
            rejects.add(
                WHOLE_FILE, column.name, "be an attribute of the contract", str(column.type), remedy, content
            )
            return False
        if column.name in schema.names[:i]:
            rejects.add(WHOLE_FILE, column.name, "stand once in the file", column.name, "rename one", content)
            return False
    for attribute in contract.attributes:
        name = attribute.source_name
        if name not in schema.names:
            if attribute.required:
                rejects.add(
                    WHOLE_FILE, name, "be a column", ", ".join(schema.names), "add the column", content
                )
                return False
        elif not fits(schema.field(name).type, attribute.type):
            value, remedy = str(schema.field(name).type), RULES[attribute.type][1]
            rejects.add(WHOLE_FILE, name, f"be a column of {attribute.type}", value, remedy, content)
            return False
    return True


def _as_json(table: pa.Table, index: int) -> bytes:
    """A row has no bytes of its own in a columnar file: its values as JSON stand for them."""
    row = {}
    for name in table.column_names:
        try:
            row[name] = table.column(name)[index].as_py()
        except UnicodeDecodeError:
            value = table.column(name)[index].cast(pa.binary())
            row[name] = value.as_py().decode("utf-8", "backslashreplace")
    return json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace")

"""Read Parquet files. A column of the wrong type refuses the file; a value that does not fit refuses its row.

Rows are read in blocks of 65,536, and only the columns that the contract knows. An unknown column is noted, or refuses
the file (`unknown_fields`). A missing column is noted, or refuses the file if it is required. Rows count from 1.

Integers of any width are read as integers, floats and integers of any width as doubles, timestamps of any unit and zone
as timestamps. Texts are not converted to other types. A file that cannot be read to its end is refused as a whole. A
file in a compression wrapper is refused as well: Parquet is compressed inside, and is read from its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from spillway.contracts.fields import suggest
from spillway.contracts.stream import StreamContract
from spillway.records.convert import RULES, ParsedRecords, assemble, is_convertible, python_value
from spillway.records.rejects import Rejects, WholeFile, absent_column, unknown_column
from spillway.records.wrapper import SeekableBytes, detect_wrapper

_ROWS_AT_A_TIME = 1 << 16
ROWS_AT_LEAST = 1 << 20
"""The number of rows that any file may claim to have. A larger file may claim up to `ROWS_A_BYTE` rows per byte."""
ROWS_A_BYTE = 200
_BUFFER = 1 << 20


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, NotImplementedError) as error:
        problem = " ".join(str(error).split())
        raise WholeFile("the file", "be readable Parquet", problem, "send the file again") from None


def open_parquet(source: SeekableBytes) -> pyarrow.parquet.ParquetFile:
    """Open the file and read its footer; refuse a wrapped file, and one that claims too many rows for its size."""
    wrapper = detect_wrapper(source)
    if wrapper is not None:
        raise WholeFile(
            "the file", "be Parquet as it is", wrapper, "Parquet is compressed inside: send it unwrapped"
        )
    native = source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, mode="r")
    with _readable():
        file = pyarrow.parquet.ParquetFile(native, buffer_size=_BUFFER, pre_buffer=False)
    rows, most = int(file.metadata.num_rows), max(ROWS_AT_LEAST, ROWS_A_BYTE * source.size())
    if rows > most:
        raise WholeFile("the file", f"have at most {most:,} rows", f"{rows:,}", "send it in parts")
    return file


def parquet_blocks(
    contract: StreamContract,
    file_name: str,
    source: SeekableBytes,
    groups: Sequence[int] | None = None,
    rows_before: int = 0,
) -> Iterator[ParsedRecords]:
    """Yield the records of a Parquet file, or of some of its row groups, in blocks."""
    file = open_parquet(source)
    with _readable():
        schema = file.schema_arrow
    _refuse_schema(contract, schema)
    known = [a for a in contract.attributes if a.source_name in schema.names]
    odd = [unknown_column(name) for name in schema.names if name not in {a.source_name for a in known}]
    odd += [absent_column(a.source_name) for a in contract.attributes if a not in known]
    wanted = list(range(file.num_row_groups)) if groups is None else list(groups)
    with _readable():
        batches = file.iter_batches(
            _ROWS_AT_A_TIME, row_groups=wanted, columns=[a.source_name for a in known], use_threads=False
        )
    before = rows_before
    while True:
        with _readable():
            batch = next(batches, None)
            if batch is None:
                return
            columns = {a.name: _flat(batch.column(a.source_name)) for a in known}
        rejects = Rejects(file_name)
        numbers = np.arange(before + 1, before + batch.num_rows + 1, dtype=np.int64)
        before += batch.num_rows
        with _readable():
            table = assemble(contract, numbers, columns, _RowAsJson(batch), rejects)
        notes = dict.fromkeys(odd, table.num_rows) if table.num_rows else {}
        yield ParsedRecords(table, rejects.table(), notes | rejects.notes)


def _flat(array: pa.Array) -> pa.Array:
    array.validate()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    # Arrow does not check that a file's strings are UTF-8; as bytes they are checked at conversion
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    return array.cast(pa.large_binary()) if text else array


def _refuse_schema(contract: StreamContract, schema: pa.Schema) -> None:
    known = {a.source_name: a for a in contract.attributes}
    strict = contract.unknown_fields == "refuse"
    seen = set()
    for column in schema:
        if column.name not in known and strict:
            remedy = suggest(column.name, known) + ", or add it to the contract"
            raise WholeFile(column.name, "be an attribute of the contract", str(column.type), remedy)
        if column.name in seen and (strict or column.name in known):
            raise WholeFile(column.name, "stand once in the file", column.name, "rename one")
        seen.add(column.name)
    for attribute in contract.attributes:
        name = attribute.source_name
        if name not in seen:
            if attribute.required:
                raise WholeFile(name, "be a column", ", ".join(schema.names), "add the column")
        elif not is_convertible(schema.field(name).type, attribute.type):
            rule, remedy = f"be a column of {attribute.type}", RULES[attribute.type][1]
            raise WholeFile(name, rule, str(schema.field(name).type), remedy)


class _RowAsJson:
    """Returns a row's values as JSON, in place of its original bytes, which a columnar file does not have."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __call__(self, index: int) -> bytes:
        row = {name: python_value(self._batch.column(name)[index]) for name in self._batch.schema.names}
        return json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace")

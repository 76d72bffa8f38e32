"""Parse the bytes of landing files to typed tuples and rejected records. Pure functions: bytes in, tables out.

A record is **rejected**, with line, field, rule, value, remedy and its original bytes, in these cases:

- its line is not UTF-8, not one JSON object, not CSV, or has more or fewer fields than the header;
- it has a field twice, or an unknown field while `unknown_fields: refuse` (otherwise the field is noted);
- a value does not have its attribute's type (`convert`: integers have 64 bits; JSON texts are not read as numbers, nor
  numbers as texts), or is NaN or infinite while `non_finite: reject`;
- it is longer than `lines.RECORD_BYTES`;
- `source.parity` is set and two or more bits of its line are flipped (`parity`; one flipped bit is corrected);
- a key, the order attribute, or an attribute with `nullable: false` is null or absent.

A nullable measure that is absent becomes null. This is not an error. Blank lines and a byte order mark are ignored. A
repeated record is an ordinary record: this package does not detect repeats. If the last line of a CSV file is truncated
inside its last field, the loss cannot be detected.

A **file** is rejected as one record (line 0, or the line of a CSV header) in these cases: it is not readable Parquet;
its compression wrapper is damaged (`wrapper`); a required column is missing; a column is repeated, has another type
(Parquet), or is unknown and refused. An empty file has no records and no rejects.

Every file is read in bounded memory, a number of records at a time. Several tasks read a large file (`file_slices`).
The result does not depend on how the file is read.

Line numbers are those of physical lines, from 1. The CSV header is line 1. A quoted record that spans several lines has
the number of its first line. Rows of Parquet count from 1.

>>> from spillway.contracts import read_stream
>>> contract = read_stream({
...     "stream": "net", "channel": "uplink", "source": {"format": "csv"},
...     "attributes": [
...         {"name": "router", "type": "string", "role": "key"},
...         {"name": "at", "type": "timestamp", "role": "order"},
...         {"name": "delay_ms", "type": "double"},
...     ],
... })
>>> content = b"router,at,delay_ms\\nr1,2026-03-02T08:00:00Z,1.5\\nr2,2026-03-02T08:00:01Z,fast\\n"
>>> parsed = parse_records(contract, "a.csv", content)
>>> parsed.table.select(["line", "router", "delay_ms"]).to_pylist()
[{'line': 2, 'router': 'r1', 'delay_ms': 1.5}]
>>> parsed.rejected["reason"][0].as_py()
"a.csv:3: `delay_ms` must be a number, got 'fast'; send a number, or null for none"
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spillway.contracts.stream import StreamContract
from spillway.records.convert import ParsedRecords, no_records, table_schema
from spillway.records.csv_lines import csv_blocks
from spillway.records.file_slices import WHOLE, FileSlice, MeasuredFile, SliceReader, measure_file, split_file
from spillway.records.json_lines import json_blocks
from spillway.records.parity import CheckedBytes, note_parity
from spillway.records.parquet import parquet_blocks
from spillway.records.rejects import (
    ORIGINAL_BYTES_AT_MOST,
    REJECTED_SCHEMA,
    WHOLE_FILE,
    Rejects,
    WholeFile,
    absent_column,
    bounded_notes,
    bounded_reasons,
    is_absent_column,
    is_repeated_hour,
    reason_of,
    sum_counts,
)
from spillway.records.wrapper import ByteReader, SeekableBytes, detect_wrapper, open_decompressed

__all__ = [
    "REJECTED_SCHEMA",
    "WHOLE",
    "FileSlice",
    "MeasuredFile",
    "ParsedRecords",
    "SeekableBytes",
    "WholeFile",
    "absent_column",
    "bounded_notes",
    "bounded_reasons",
    "count_records",
    "is_absent_column",
    "is_repeated_hour",
    "measure_file",
    "parse_blocks",
    "parse_records",
    "reason_of",
    "reject_file",
    "split_file",
    "sum_counts",
    "table_schema",
]


def parse_blocks(
    contract: StreamContract, file_name: str, source: SeekableBytes, piece: FileSlice = WHOLE
) -> Iterator[ParsedRecords]:
    """Yield the records of a file, or of a slice of it, in blocks. Each record is either accepted or rejected.

    Raise `WholeFile` if the file must be refused as a whole, including records that were already yielded: see
    `reject_file`.
    """
    if not source.size():
        return
    if contract.source.format == "parquet":
        yield from parquet_blocks(contract, file_name, source, piece.groups, piece.before)
        return
    plain = (
        open_decompressed(source) if piece == WHOLE and detect_wrapper(source) else SliceReader(source, piece)
    )
    if contract.source.parity == "none":
        yield from _text_blocks(contract, file_name, plain, piece)
        return
    is_csv = contract.source.format == "csv"
    checked = CheckedBytes(plain, is_csv and contract.source.options.header, is_csv)
    for part in _text_blocks(contract, file_name, checked, piece):
        yield note_parity(file_name, part, checked.take_corrected())


def _text_blocks(
    contract: StreamContract, file_name: str, plain: ByteReader, piece: FileSlice
) -> Iterator[ParsedRecords]:
    if contract.source.format == "csv":
        yield from csv_blocks(contract, file_name, plain, piece.before, piece.header)
    else:
        yield from json_blocks(contract, file_name, plain, piece.before)


def reject_file(
    contract: StreamContract, file_name: str, why: WholeFile, source: SeekableBytes
) -> ParsedRecords:
    """Return the one rejection that stands for a whole file, with the first bytes of the file."""
    rejects = Rejects(file_name)
    source.seek(0)
    rejects.add(WHOLE_FILE, *why.why, source.read(ORIGINAL_BYTES_AT_MOST))
    return no_records(contract, rejects)


def parse_records(contract: StreamContract, file_name: str, content: bytes) -> ParsedRecords:
    """Return the accepted and the rejected records of a landing file, all in memory."""
    source = pa.BufferReader(content)
    try:
        parts = list(parse_blocks(contract, file_name, source))
    except WholeFile as why:
        return reject_file(contract, file_name, why, source)
    if not parts:
        return no_records(contract, Rejects(file_name))
    return ParsedRecords(
        pa.concat_tables([part.table for part in parts]),
        pa.concat_tables([part.rejected for part in parts]),
        sum_counts(part.notes for part in parts),
    )


def count_records(contract: StreamContract, content: bytes) -> int:
    """Return an upper bound of the line numbers that `parse_records` returns."""
    return measure_file(contract, pa.BufferReader(content)).records

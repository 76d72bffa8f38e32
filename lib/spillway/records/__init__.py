"""Records: from a landing file's bytes to typed tuples and named rejects. Pure: bytes in, tables out.

A record is **rejected**, with line, field, rule, value, remedy and its original bytes, when
- its line is not UTF-8, not one JSON object, not CSV, or has more or fewer fields than the header;
- it holds a field the contract does not know, or one field twice;
- a value is not of its attribute's type (`convert`: numbers are finite, integers fit 64 bits, no reading of
  numbers out of JSON text or text out of numbers);
- a key, the order attribute, or an attribute declared `nullable: false` is null or absent.
A nullable measure that is absent is null: real nulls are no defects. Blank lines and a byte order mark are
nothing. A repeated record is a record: only whole files are recognised as repeats. What a cut-off last line
of CSV has lost inside its last field cannot be seen.

A **file** is rejected as one record (line 0, Parquet; line 1, a CSV header) when it is not readable Parquet, or
a column is unknown, missing though required, repeated, or (Parquet) of another type. An empty file holds no
records and no rejects.

Lines are physical lines from 1 (the CSV header is line 1; a quoted record is named by its first line), rows from
1 for Parquet.

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
"a.csv:3: `delay_ms` must be a finite number, got 'fast'; send a number, or null for none"
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet

from spillway.contracts.model import StreamContract
from spillway.records.assemble import Parsed, table_schema
from spillway.records.csv_lines import parse_csv
from spillway.records.json_lines import parse_json
from spillway.records.parquet import parse_parquet
from spillway.records.rejects import REJECTED_SCHEMA

__all__ = ["REJECTED_SCHEMA", "Parsed", "count_records", "parse_records", "table_schema"]

_PARSERS = {"json": parse_json, "csv": parse_csv, "parquet": parse_parquet}


def parse_records(contract: StreamContract, file_name: str, content: bytes) -> Parsed:
    """The usable records of a landing file and the rejected ones; every record is in exactly one of the two."""
    return _PARSERS[contract.source.format](contract, file_name, content)


def count_records(contract: StreamContract, content: bytes) -> int:
    """No line number of `parse_records` is above it: cheap, so that `seq` can be given before parsing."""
    if not content:
        return 0
    if contract.source.format != "parquet":
        return content.count(b"\n") + (not content.endswith(b"\n"))
    try:
        return int(pyarrow.parquet.ParquetFile(pa.BufferReader(content)).metadata.num_rows)
    except (pa.ArrowException, OSError, ValueError):
        return 1  # the one rejection that stands for the file

"""How columns are written, and what that weighs: the one width that training, plan, capacity check and ledger use.

>>> rows = pa.table({"a": [1] * 4096, "b": list(range(4096))})
>>> widths_of(rows)["a"] < widths_of(rows)["b"]
True
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_IN_A_GROUP = 1 << 19
NEVER_REPEATED = frozenset({"seq", "payload"})
"""Columns for which a dictionary is only a burden."""


def encoder(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of Parquet as every table is written; what a narrow channel would use."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[name for name in schema.names if name not in NEVER_REPEATED],
        write_statistics=[field.name for field in schema if _has_edges(field.type)],
        # Parquet's own types say it all; Arrow's copy of the schema would cost every small batch a kilobyte
        store_schema=False,
    )


def widths_of(rows: pa.Table) -> dict[str, int]:
    """Compressed bytes of each column, as a table's file of these rows would have them."""
    sink = io.BytesIO()
    with encoder(sink, rows.schema) as writer:
        writer.write_table(rows, row_group_size=ROWS_IN_A_GROUP)
    return chunk_bytes(pq.ParquetFile(sink).metadata)


def empty_bytes(schema: pa.Schema) -> int:
    """What a file of these columns takes that has no row."""
    sink = io.BytesIO()
    encoder(sink, schema).close()
    return len(sink.getvalue())


def chunk_bytes(metadata: pq.FileMetaData, group: int | None = None) -> dict[str, int]:
    """Compressed bytes of each column of one file (or of one of its row groups), by its footer."""
    found: dict[str, int] = {}
    for place in range(metadata.num_row_groups) if group is None else [group]:
        row_group = metadata.row_group(place)
        for index in range(metadata.num_columns):
            chunk = row_group.column(index)
            name = chunk.path_in_schema.split(".")[0]
            found[name] = found.get(name, 0) + chunk.total_compressed_size
    return found


def _has_edges(kind: pa.DataType) -> bool:
    """Whether a column's smallest and largest value are written down.

    Not of floats: Arrow leaves NaN out of them, where Spark takes it for the largest of all. Not of bytes: Arrow would
    write whole payloads, twice.
    """
    return not (pa.types.is_floating(kind) or pa.types.is_binary(kind))

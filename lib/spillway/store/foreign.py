"""Delta tables of others: read as they are, never mended or put aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from spillway.errors import RefusedElsewhere
from spillway.store.blobs import plain_uri


def read_foreign(path: str, columns: Callable[[Sequence[str]], Sequence[str]]) -> pa.Table:
    """Some columns of a table: those that are chosen of its names."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(plain_uri(path))
        return table.to_pyarrow_table(columns=list(columns([field.name for field in table.schema().fields])))
    except DeltaError as problem:
        reason = str(problem).partition("\n")[0]
        remedy = "name another, or write what it holds to a Parquet file"
        raise RefusedElsewhere("table", "be one that delta-rs reads", reason, remedy, path) from problem

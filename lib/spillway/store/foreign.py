"""Delta tables that other programs wrote: read as they are, never repaired or moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from spillway.errors import RefusedElsewhere, SpillwayError
from spillway.store.blobs import plain_uri, store_fault, store_faults
from spillway.store.features import READ_FEATURES, refuse_features, refuse_unknown

FOREIGN_READ_FEATURES = READ_FEATURES | {"columnMapping", "deletionVectors", "v2Checkpoint"}
"""The reader features that delta-rs's `QueryBuilder` supports."""


def read_foreign(path: str, columns: Callable[[Sequence[str]], Sequence[str]]) -> pa.Table:
    """Return columns of a table; `columns` chooses them from all names.

    A table with an unknown reader feature is refused by the name of the feature. Rows are read by delta-rs's
    `QueryBuilder`, which applies deletion vectors and column mapping; its `to_pyarrow_table` refuses the first and
    returns nulls for the second.
    """
    from deltalake import DeltaTable, QueryBuilder

    try:
        with store_faults(path, missing_too=True):
            table = DeltaTable(plain_uri(path))
        refuse_features(path, table, to_write=False, known=FOREIGN_READ_FEATURES)
        chosen = ", ".join(_quoted(name) for name in columns([one.name for one in table.schema().fields]))
        rows = QueryBuilder().register("foreign_table", table).execute(f"SELECT {chosen} FROM foreign_table")
        return pa.table(rows.read_all())
    except SpillwayError:
        raise
    except Exception as problem:  # for an absent or damaged file delta-rs raises a bare Exception
        refuse_unknown(path, problem)
        if isinstance(problem, OSError) and "://" in path:
            raise store_fault(path, problem) from problem
        reason = str(problem).partition("\n")[0]
        remedy = "name another, or write what it holds to a Parquet file"
        raise RefusedElsewhere("table", "be one that delta-rs reads", reason, remedy, path) from problem


def _quoted(name: str) -> str:
    """Return a column's name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'

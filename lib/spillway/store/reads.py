"""The rows of a table's files that answer a question: only row groups that may hold one are decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.store.files import DataFile, row_count, rows_of
from spillway.store.filters import Filter, matching, spans
from spillway.store.writing import shaped

ROWS_AT_A_TIME = 131_072


def matching_rows(file: DataFile, asked: pa.Schema, where: Filter) -> pa.Table:
    """The rows of a file that match, with the columns of `asked`, those it is partitioned by among them."""
    partition = dict(file.partition)
    inside = pa.schema([one for one in asked if one.name not in partition])
    parts = []
    for part in _parts(file, inside, where):
        for one in (one for one in asked if one.name in partition):
            value = pa.repeat(pa.scalar(partition[one.name], one.type), part.num_rows)
            part = part.append_column(one, value)
        part = part.filter(matching(part, where)) if where else part
        parts.append(part.select(asked.names))
    return pa.concat_tables(parts) if parts else asked.empty_table()


def largest(files: Iterable[DataFile], asked: pa.Schema, by: str, where: Filter) -> Any:
    """The largest value of a column of whole numbers among the rows that match; None where there is none.

    Files are read from the one that may hold the largest down, until no other can.
    """

    def order(file: DataFile) -> tuple[bool, int]:
        high = file.high(by)
        return high is not None, 0 if high is None else -high

    best: Any = None
    for file in sorted(files, key=order):
        if best is not None and file.high(by) is not None and file.high(by) <= best:
            break
        found = pc.max(matching_rows(file, asked, where)[by]).as_py()
        best = found if best is None else best if found is None else max(best, found)
    return best


def _parts(file: DataFile, inside: pa.Schema, where: Filter) -> Iterator[pa.Table]:
    if not inside.names:
        # only partition columns are asked for: as many rows as there are
        yield pa.table({"": pa.nulls(file.records or row_count(file))})
        return
    ranges = [one for one in spans(where) if one[0] in inside.names]
    for part in rows_of(file, inside.names, ROWS_AT_A_TIME, ranges):
        yield shaped(part, inside)

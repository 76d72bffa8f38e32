"""Reading a stream's tuples by `seq` from the lake's files, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from spillway.settings import Settings
from spillway.store.batches import Batch
from spillway.store.files import DataFile, data_files, holding, read_rows
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path


def stream_files(
    settings: Settings, table: str, stream: str, batches: Iterable[Batch] | None = None
) -> list[DataFile]:
    """The live files of a stream's table, of all batches or only of those that hold `batches`."""
    files = data_files(table_path(settings, table_contracts(settings.schemas)[table], stream))
    if batches is None:
        return files
    return holding(files, ((batch.batch_date, batch.batch) for batch in batches))


def synopsis_files(settings: Settings, stream: str) -> list[DataFile]:
    """The live files of the stream's synopsis."""
    files = data_files(table_path(settings, table_contracts(settings.schemas)["synopsis"]))
    return [file for file in files if file.value("stream") == stream]


def edge_rows(files: Sequence[DataFile], columns: Sequence[str], count: int, last: bool) -> pa.Table:
    """The first (or last) `count` rows of the files, in seq order."""
    ordered = sorted(files, key=lambda file: int(file.low("seq")), reverse=last)
    held = 0
    chosen: list[DataFile] = []
    for file in ordered:
        if held >= count:
            break
        chosen.append(file)
        held += file.records
    if not chosen:
        return read_rows([], columns, 0, -1)
    rows = read_rows(chosen, columns, min(f.low("seq") for f in chosen), max(f.high("seq") for f in chosen))
    return rows.slice(rows.num_rows - min(count, rows.num_rows)) if last else rows.slice(0, count)

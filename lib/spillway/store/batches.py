"""The table `batches`: load and save, each save a compare-and-swap on what was read."""

from __future__ import annotations

from collections.abc import Sequence

from spillway.batch import Batch
from spillway.store.tables import Tables


def load_batches(tables: Tables, stream: str | None = None) -> list[Batch]:
    """All batches (of one stream) in order."""
    where = {} if stream is None else {"stream": stream}
    found = [Batch.from_row(row) for row in tables.at("batches").rows(**where).to_pylist()]
    return sorted(found, key=lambda batch: (batch.stream, batch.batch))


def save_batches(tables: Tables, batches: Sequence[Batch]) -> None:
    """Write the rows of `batches` (of one stream) in one commit, replacing what they were."""
    if batches:
        rows = [one.row() for one in batches]
        tables.at("batches").replace(rows, stream=batches[0].stream, batch=[one.batch for one in batches])

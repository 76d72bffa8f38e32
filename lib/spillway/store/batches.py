"""The table `batches`: load and save, each save a compare-and-swap on what was read.

Whoever loads says which batches it needs: a stream has a hundred of them a day, and years of days.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spillway.batch import Batch
from spillway.store.tables import Between, Tables

RATED = Between(low=math.ulp(0.0))
"""What `seconds_covered` of a batch is whose rate is known."""


def load_batches(tables: Tables, stream: str | None = None, **where: Any) -> list[Batch]:
    """The batches (of one stream) that match, in order: `status=DONE`, `batch_date=days`, `rows=Between(1)`."""
    mine = where if stream is None else {"stream": stream, **where}
    found = [Batch.from_row(row) for row in tables.at("batches").rows(**mine).to_pylist()]
    return sorted(found, key=lambda batch: (batch.stream, batch.batch))


def newest_batch(tables: Tables, stream: str, **where: Any) -> Batch | None:
    """The last batch of the stream that matches; none where none does."""
    found = tables.at("batches").newest("batch", stream=stream, **where).to_pylist()
    return Batch.from_row(found[0]) if found else None


def save_batches(tables: Tables, batches: Sequence[Batch]) -> None:
    """Write the rows of `batches` (of one stream) in one commit, replacing what they were."""
    if batches:
        rows = [one.row() for one in batches]
        tables.at("batches").replace(rows, stream=batches[0].stream, batch=[one.batch for one in batches])

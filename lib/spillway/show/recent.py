"""What is read of a stream to show how it fares: its last batches, and what was said of them.

A stream has a hundred batches a day, and years of days; of each some rows stand in the ledger, the certificates and the
schemes. Whoever shows figures shows those of the last `SHOWN_BATCHES`, so that what is read does not grow with the
history. What was counted all along (tuples taken in and refused) comes from `batches`, column by column; what was
read again of it, from what `rejected` notes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import SHOWN_BATCHES, Batch
from spillway.ledger import Row
from spillway.show.refused import read_again
from spillway.store.batches import load_batches
from spillway.store.tables import Between, Tables


@dataclass(frozen=True)
class Recent:
    """A stream's last batches, in order, with their rows of the ledger and their certificates."""

    stream: str
    batches: tuple[Batch, ...] = ()
    ledger: tuple[Row, ...] = ()
    certificates: tuple[Row, ...] = ()
    tuples: int = 0
    rejected: int = 0
    """Of all batches, as `tuples`; what was read again counts where it was read last."""
    violations: int = 0
    """Of all certificates."""

    @property
    def first(self) -> int:
        """The number of the first batch that is shown."""
        return self.batches[0].batch if self.batches else 1


def read_recent(tables: Tables, stream: str, most: int = SHOWN_BATCHES) -> Recent:
    """The last batches of a stream; of one that nothing was taken in of, none."""
    held = tables.at("batches").rows(["batch", "rows", "rejected"], stream=stream)
    if not held.num_rows:
        return Recent(stream)
    since = Between(pc.max(held["batch"]).as_py() - most + 1)
    wrong = tables.at("certificates").rows(["violations"], stream=stream, violations=Between(1))
    return Recent(
        stream,
        tuple(load_batches(tables, stream, batch=since)),
        tuple(tables.at("ledger").rows(scope="stream", subject=stream, batch=since).to_pylist()),
        tuple(tables.at("certificates").rows(stream=stream, batch=since).to_pylist()),
        _sum(held["rows"]),
        _sum(held["rejected"]) - read_again(tables, stream, held),
        _sum(wrong["violations"]),
    )


def last_windows(tables: Tables, subject: str, most: int = SHOWN_BATCHES) -> tuple[Row, ...]:
    """What the ledger says of the last windows of a join or a query."""
    found = tables.at("ledger").last("batch", most, scope=["join", "query"], subject=subject)
    return tuple(found.to_pylist())


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)

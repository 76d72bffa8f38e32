"""What is read of a stream to show how it fares: its last batches, and what was said of them.

A stream has a hundred batches a day, and years of days; of each some rows stand in the ledger, the certificates and the
schemes. Whoever shows figures shows those of the last `SHOWN_BATCHES`, so that what is read does not grow with the
history. What was counted all along (tuples taken in and refused) comes from `batches`, column by column; what was
read again of it, from what `rejected` notes.

How many tuples of a stream are refused: what was read again since counts where it was read last.

A batch counts what it refused, and so does the batch that a replay made of it, or that read the mended file: the same
record would count twice, or as refused although it was taken in. `rejected` notes what was read again; of the batches
with such notes alone it is read, column by column.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import SHOWN_BATCHES, Batch
from spillway.intake.dedupe import DELIVERED_BEFORE
from spillway.ledger import Row
from spillway.records.rejects import WHOLE_FILE
from spillway.store.batches import load_batches
from spillway.store.tables import Between, Tables


def read_again(tables: Tables, stream: str, held: pa.Table) -> int:
    """Of what the batches of `held` refused, how many tuples a later one read again.

    A file that was refused whole stands in `rejected` once: its tuples are what its batch counts beyond its records. Of
    several in one batch none is taken off before the last is read again.
    """
    table = tables.at("rejected")
    noted = table.rows(["batch"], stream=stream, replayed_by=Between(0))["batch"].unique().to_pylist()
    if not noted:
        return 0
    rows = table.rows(["batch", "line", "reason", "replayed_by"], stream=stream, batch=noted)
    rows = rows.filter(pc.not_equal(rows["reason"], DELIVERED_BEFORE))  # counted as a repeat
    whole = pc.equal(pc.fill_null(rows["line"], WHOLE_FILE), WHOLE_FILE)
    records, files = rows.filter(pc.invert(whole)), rows.filter(whole)
    again = len(records) - records["replayed_by"].null_count
    waiting = set(files.filter(pc.is_null(files["replayed_by"]))["batch"].to_pylist())
    for batch in set(files["batch"].to_pylist()) - waiting:
        counted = pc.sum(held.filter(pc.equal(held["batch"], batch))["rejected"]).as_py() or 0
        again += max(0, counted - int(pc.sum(pc.equal(records["batch"], batch)).as_py() or 0))
    return again


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

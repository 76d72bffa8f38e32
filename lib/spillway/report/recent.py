"""Read the recent state of a stream: its last batches with their ledger rows and certificates.

A stream has about a hundred batches a day, for years. Each batch has rows in the ledger, the certificates and
the schemes. Figures therefore cover the last `SHOWN_BATCHES` batches, so that the amount of data to read does
not grow with the history. The counts over the whole history (accepted and rejected tuples) come from three
columns of `batches`.

The number of rejected tuples is corrected for replays. A batch counts the records that it rejected. If a
replay, or a fixed file, delivers the same record again, a later batch counts it too. Without a correction such
a record would count twice, or as rejected although it was accepted later. The table `rejected` notes which
records a later batch read. It is read only for the batches that have such notes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import SHOWN_BATCHES, Batch
from spillway.intake.dedupe import DELIVERED_BEFORE
from spillway.ledger import Row
from spillway.records.rejects import WHOLE_FILE
from spillway.store.batches import load_batches
from spillway.store.tables import Between, Tables


def count_replayed(tables: Tables, stream: str, held: pa.Table) -> int:
    """Return how many tuples that the batches of `held` rejected were read again by a later batch.

    A file that was rejected as a whole has one row in `rejected`. Its number of tuples is the batch's count of
    rejected tuples minus the rejected records. If a batch has several such files, they count only when all of
    them were read again.
    """
    table = tables.at("rejected")
    noted = table.rows(["batch"], stream=stream, replayed_by=Between(0))["batch"].unique().to_pylist()
    if not noted:
        return 0
    rows = table.rows(["batch", "line", "reason", "replayed_by"], stream=stream, batch=noted)
    rows = rows.filter(pc.not_equal(rows["reason"], DELIVERED_BEFORE))  # counted as duplicates
    whole = pc.equal(pc.fill_null(rows["line"], WHOLE_FILE), WHOLE_FILE)
    records, files = rows.filter(pc.invert(whole)), rows.filter(whole)
    again = len(records) - records["replayed_by"].null_count
    waiting = set(files.filter(pc.is_null(files["replayed_by"]))["batch"].to_pylist())
    for batch in set(files["batch"].to_pylist()) - waiting:
        counted = pc.sum(held.filter(pc.equal(held["batch"], batch))["rejected"]).as_py() or 0
        again += max(0, counted - int(pc.sum(pc.equal(records["batch"], batch)).as_py() or 0))
    return again


@dataclass(frozen=True)
class RecentBatches:
    """A stream's last batches, in order, with their ledger rows and certificates."""

    stream: str
    batches: tuple[Batch, ...] = ()
    ledger: tuple[Row, ...] = ()
    certificates: tuple[Row, ...] = ()
    tuples: int = 0
    rejected: int = 0
    """Of all batches, like `tuples`. A record that was read again counts in the batch that read it last."""
    violations: int = 0
    """Of all certificates."""

    @property
    def first(self) -> int:
        """Return the number of the first batch that is shown."""
        return self.batches[0].batch if self.batches else 1


def read_recent(tables: Tables, stream: str, most: int = SHOWN_BATCHES) -> RecentBatches:
    """Return the last `most` batches of a stream; an empty result if the stream has no batch."""
    held = tables.at("batches").rows(["batch", "rows", "rejected"], stream=stream)
    if not held.num_rows:
        return RecentBatches(stream)
    first = pc.max(held["batch"]).as_py() - most + 1
    since = Between(first)
    certificates = tables.at("certificates")
    proofs = certificates.rows(stream=stream, batch=since)
    older = {"stream": stream, "batch": Between(high=first - 1), "violations": Between(1)}
    return RecentBatches(
        stream,
        tuple(load_batches(tables, stream, batch=since)),
        tuple(tables.at("ledger").rows(scope="stream", subject=stream, batch=since).to_pylist()),
        tuple(proofs.to_pylist()),
        _sum(held["rows"]),
        _sum(held["rejected"]) - count_replayed(tables, stream, held),
        _sum(proofs["violations"]) + _sum(certificates.rows(["violations"], **older)["violations"]),
    )


def read_recent_of_all(
    tables: Tables, streams: Collection[str], most: int = SHOWN_BATCHES
) -> dict[str, RecentBatches]:
    """Return the last `most` batches of each stream, by name.

    Streams with no more batches than that are read together, so that each file of a shared table is opened once and
    its rows are filtered once. The others are read one by one.
    """
    numbers = tables.at("batches").rows(["stream", "batch"])
    last = numbers.group_by("stream").aggregate([("batch", "max")])
    few = {
        name
        for name, number in zip(last["stream"].to_pylist(), last["batch_max"].to_pylist(), strict=True)
        if number <= most and name in streams
    }
    mine = sorted(few) if len(few) < last.num_rows else None
    batches, ledger, certificates = (
        _by_name(tables.at(table).rows(**where, **({} if mine is None else {column: mine})), column)
        for table, column, where in (
            ("batches", "stream", {}),
            ("ledger", "subject", {"scope": "stream"}),
            ("certificates", "stream", {}),
        )
    )
    replayed = set(tables.at("rejected").rows(["stream"], replayed_by=Between(0))["stream"].to_pylist())
    found = {}
    for name in streams:
        if name not in few:
            found[name] = read_recent(tables, name, most)
            continue
        held, proofs = batches[name], certificates.get(name)
        again = count_replayed(tables, name, held) if name in replayed else 0
        found[name] = RecentBatches(
            name,
            tuple(sorted(map(Batch.from_row, held.to_pylist()), key=lambda one: one.batch)),
            tuple(ledger[name].to_pylist()) if name in ledger else (),
            () if proofs is None else tuple(proofs.to_pylist()),
            _sum(held["rows"]),
            _sum(held["rejected"]) - again,
            0 if proofs is None else _sum(proofs["violations"]),
        )
    return found


def _by_name(rows: pa.Table, column: str) -> dict[str, pa.Table]:
    """Return the rows of each name; each row is looked at once, and not once per name."""
    ordered = rows.combine_chunks().sort_by(column) if rows.num_rows else rows
    if not ordered.num_rows:
        return {}
    edges = pc.run_end_encode(ordered[column].combine_chunks())
    found, start = {}, 0
    for name, end in zip(edges.values.to_pylist(), edges.run_ends.to_pylist(), strict=True):
        found[name] = ordered.slice(start, end - start)
        start = end
    return found


def last_windows(tables: Tables, subject: str, most: int = SHOWN_BATCHES) -> tuple[Row, ...]:
    """Return the ledger rows of the last `most` windows of a join or a query."""
    found = tables.at("ledger").last("batch", most, scope=["join", "query"], subject=subject)
    return tuple(found.to_pylist())


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)

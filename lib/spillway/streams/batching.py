"""Let small batches wait in `raw`, and send them together, by the contract's `batching:`.

A batch that is sent alone costs a file and a commit. If a contract has `batching:`, batches are taken into `raw` at
once, but wait there until they have `until_bytes`, or until the oldest of their batch date was taken in `until_seconds`
ago. The batches of one batch date are then sent as a group, in one file and one commit. A group never holds two batch
dates, because a quota belongs to a date.

A batch that a run has begun to send never waits: the next run finishes it, in the same group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from spillway.batch import DONE, PENDING, RECORDED, Batch
from spillway.contracts import StreamContract
from spillway.errors import format_bytes, format_count
from spillway.intake.ingest import is_waiting_for_rate
from spillway.store.batches import load_batches
from spillway.store.tables import Tables

CLOCKS_DIFFER = timedelta(minutes=5)
"""How far the clocks of two machines may differ. A batch that was taken in later than this from now does not wait."""


@dataclass(frozen=True)
class WaitingBatches:
    """The batches of a stream that wait to be sent together: since when, and until when at the latest."""

    stream: str
    batches: tuple[int, ...]
    tuples: int
    raw_bytes: int
    until_bytes: int
    since: datetime
    until: datetime

    @property
    def sentence(self) -> str:
        """Return which batches wait, since when, and until when at the latest."""
        return (
            f"{self.stream}: {format_count(len(self.batches), 'batch waits', 'batches wait')} to be sent together "
            f"({self.tuples:,} tuples, {format_bytes(self.raw_bytes)} of {format_bytes(self.until_bytes)} in raw), "
            f"since {self.since:%Y-%m-%d %H:%M:%S}, until {self.until:%Y-%m-%d %H:%M:%S} UTC at the latest"
        )


def waiting_batches(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch], now: datetime
) -> WaitingBatches | None:
    """Return which of these batches of a stream wait at `now`; None if none does."""
    if contract.batching is None:
        return None
    fresh = [batch for batch in batches if batch.rows and not batch.is_pinned]
    sizes = raw_sizes(tables, contract.stream, fresh)
    if not fresh or sum(sizes.values()) >= contract.batching.until_bytes:
        return None
    longest = timedelta(seconds=contract.batching.until_seconds)
    since: dict[date, datetime] = {}
    for batch in fresh:
        since[batch.batch_date] = min(batch.created_at, since.get(batch.batch_date, batch.created_at))
    # if the clock was set back since a batch was taken in, it is not known how long it has waited
    waiting = [
        batch
        for batch in fresh
        if since[batch.batch_date] - CLOCKS_DIFFER <= now < since[batch.batch_date] + longest
    ]
    if not waiting:
        return None
    first = min(since[batch.batch_date] for batch in waiting)
    return WaitingBatches(
        contract.stream,
        tuple(batch.batch for batch in waiting),
        sum(batch.rows or 0 for batch in waiting),
        sum(sizes.get(batch.batch, 0) for batch in waiting),
        contract.batching.until_bytes,
        first,
        first + longest,
    )


def load_waiting_batches(tables: Tables, contract: StreamContract, now: datetime) -> WaitingBatches | None:
    """Return the batches of a stream that wait to be sent together at `now`; None if none does."""
    if contract.batching is None:
        return None
    statuses = [status for status in PENDING if status != RECORDED]
    begun = load_batches(tables, contract.stream, status=statuses)
    return waiting_batches(tables, contract, [one for one in begun if not is_waiting_for_rate(one)], now)


def raw_sizes(tables: Tables, stream: str, batches: Sequence[Batch]) -> dict[int, int]:
    """Return the bytes of the files of `raw` by batch, from the table's log; no file is opened.

    If a file holds several of these batches, it counts for the first one.
    """
    if not batches:
        return {}
    sizes = dict.fromkeys((batch.batch for batch in batches), 0)
    days = sorted({batch.batch_date for batch in batches})
    for file in tables.at("raw", stream).files(batch_date=days, batch=sorted(sizes)):
        low, high = file.low("batch"), file.high("batch")
        inside = [n for n in sizes if (low is None or n >= low) and (high is None or n <= high)]
        if inside:
            sizes[min(inside)] += file.size
    return sizes


def group_batches(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch]
) -> list[tuple[Batch, ...]]:
    """Return the batches in groups, oldest first; each group is sent in one commit.

    Batches that are not pinned yet are grouped by batch date, up to `until_bytes`. Pinned batches stay in their group.
    """
    most = 0 if contract.batching is None else contract.batching.until_bytes
    sizes = (
        {} if not most else raw_sizes(tables, contract.stream, [one for one in batches if not one.is_pinned])
    )
    groups: list[list[Batch]] = []
    size = 0
    for batch in batches:
        last = groups[-1][-1] if groups else None
        if batch.is_pinned:
            goes_on = last is not None and last.is_pinned and _in_one_group(last, batch)
        else:
            day = (batch.batch_date, batch.quota_day)
            same = last is not None and not last.is_pinned and (last.batch_date, last.quota_day) == day
            goes_on = same and bool(batch.rows) and bool(last and last.rows) and size < most
        if not goes_on:
            groups.append([])
            size = 0
        groups[-1].append(batch)
        size += sizes.get(batch.batch, 0)
    return [tuple(group) for group in groups]


def complete_groups(tables: Tables, batches: Sequence[Batch]) -> list[Batch]:
    """Return these pending batches and the done batches that share a file with one of them.

    So a group is always sent again as a whole, and its file still fits the shares of all its batches. Batches whose raw
    tuples are retired stay as they are.
    """
    begun = [batch for batch in batches if batch.is_pinned and batch.sent_with is not None]
    if not begun:
        return list(batches)
    labels = sorted({batch.sent_with for batch in begun if batch.sent_with is not None})
    done = load_batches(tables, begun[0].stream, sent_with=labels, status=DONE)
    mine = [one for one in done if any(_in_one_group(one, batch) for batch in begun)]
    return sorted([*batches, *mine], key=lambda batch: batch.batch)


def _in_one_group(first: Batch, second: Batch) -> bool:
    """Return whether two pinned batches are in one group; a batch that was pinned again alone has left its group."""
    return first.sent_with is not None and _group_of(first) == _group_of(second)


def _group_of(batch: Batch) -> tuple[object, ...]:
    """Return what the batches of one group have in common."""
    days, shed_by = (batch.batch_date, batch.quota_day), (batch.levers, dict(batch.models), batch.sent_whole)
    return batch.sent_with, *days, *shed_by, batch.allowed_kbps

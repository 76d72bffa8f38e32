"""Spending quotas: what each waiting batch may send, where a channel has so many bytes a day or a month.

The batch date is the clock: recorded with the batch, never recomputed. A batch belongs to the period that its date lies
in, and covers its own seconds of it; streams of one channel cover theirs at the same time. Spent is what done batches
were counted to send, what was asked back of them, and, of batches that were pinned and are not done, all that they may
still send. So a run that died, or one that brings several days through at once, promises no byte twice.

For the batches at hand a channel with a quota is then a channel of a rate (`Room` with that capacity), divided and
pinned as any other is: a rerun does what the first run did.

Not known is time in which nothing was delivered at all, but for whole days of a month: a day with one delivery spends
over the day as if the rest were still to come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, RETIRED, Batch
from spillway.contracts import Contracts
from spillway.contracts.quota import DAY_SECONDS, Period, Quota
from spillway.ledger import TOTAL
from spillway.levers.protocol import Part, Room
from spillway.pipeline.faults import Faults
from spillway.pipeline.room import parts
from spillway.store.batches import load_batches, newest_batch
from spillway.store.tables import Between, Tables

LEAST_KBPS = 1e-6
"""What a channel whose quota is spent still is planned for: nothing, but for a number that may be divided by."""

Parts = dict[str, dict[int, Part]]
"""By stream and batch."""


def parts_of_batches(
    tables: Tables, room: Room, waiting: Mapping[str, Sequence[Batch]], faults: Faults | None = None
) -> Parts:
    """The part of every waiting batch: of what the room's channels carry, or of what is left of their quotas.

    Streams that cannot be planned are noted in `faults`; the others are given their parts beside them.
    """
    channels = _channels_of(room)
    quotas = {
        name: quota
        for name in channels
        if (quota := room.contracts.channels[name].capacity.quota) is not None
    }
    if not quotas:
        shares = parts(tables, room, waiting, faults=faults)
        return {stream: {one.batch: shares[stream] for one in found} for stream, found in waiting.items()}
    days = {batch.batch_date for found in waiting.values() for batch in found}
    spent = {name: spending_of(tables, room.contracts, name, days) for name in quotas}
    promised: Parts = {stream: {} for stream in waiting}
    for group in _by_period(quotas.values(), waiting):
        day = min(batch.batch_date for found in group.values() for batch in found)
        at_hand = {name: _at_hand(room.contracts, name, group) for name in quotas}
        now = {
            name: max(LEAST_KBPS, spent[name].allowance(quota, day, at_hand[name]))
            for name, quota in quotas.items()
        }
        shares = parts(tables, _at_rates(room, now), group, faults=faults)
        for stream, found in group.items():
            promised[stream] |= {one.batch: shares[stream] for one in found}
            pinned = [_promised(one, shares[stream]) for one in found]
            for name in {room.contracts.streams[stream].channel, room.name} & set(quotas):
                spent[name] = spent[name].beside(pinned)
    return promised


@dataclass(frozen=True)
class Spending:
    """What the batches of a channel have spent, or may still spend since it was promised to them."""

    batches: tuple[Batch, ...]
    crossed_bytes: Mapping[tuple[str, int], int]
    """Of done batches, by stream and batch."""

    def spent(self, period: Period) -> int:
        """Bytes of the period."""
        return sum(self._of(batch) for batch in self.batches if batch.batch_date in period)

    def elapsed(self, period: Period, day: date) -> float:
        """Seconds of the period that are over when a batch of that day begins: those covered, whole days at least."""
        whole = (day - period.first).days * DAY_SECONDS
        since = [batch for batch in self.batches if batch.batch_date in period and batch.batch_date >= day]
        before = [batch for batch in self.batches if batch.batch_date in period]
        return max(_covered(before), whole + _covered(since))

    def left(self, quota: Quota, period: Period) -> int:
        """Bytes that the period may still send, what moved on to it included."""
        spent, after = self.spent(period), self.spent(quota.after(period))
        return quota.left(spent, self.carried(quota, period), after)

    def carried(self, quota: Quota, period: Period) -> int:
        """Bytes that moved on from the period before; none where the channel was not used yet."""
        before = quota.before(period)
        if not self.batches or min(batch.batch_date for batch in self.batches) > before.last:
            return 0
        return quota.carried(self.spent(before))

    def allowance(self, quota: Quota, day: date, at_hand: float) -> float:
        """Kbps for batches from that day on that cover so many seconds."""
        period = quota.period_of(day)
        return quota.allowance(
            period.seconds,
            self.spent(period),
            self.elapsed(period, day),
            at_hand,
            self.carried(quota, period),
            self.spent(quota.after(period)),
        )

    def beside(self, batches: Iterable[Batch]) -> Spending:
        """With some more batches, to which something was promised."""
        return replace(self, batches=(*self.batches, *batches))

    def _of(self, batch: Batch) -> int:
        if batch.status in (DONE, RETIRED):
            return self.crossed_bytes.get((batch.stream, batch.batch), 0)
        return math.ceil(batch.allowed_kbps * 125.0 * (batch.seconds_covered or 0.0))


def spends(batch: Batch) -> bool:
    """Whether the batch has sent something, or has been promised that it may."""
    return batch.is_pinned or batch.status in (DONE, RETIRED)


def last_spent(tables: Tables, stream: str) -> date | None:
    """The last batch date of which a batch `spends`, column by column; None where none does."""
    held = tables.at("batches").rows(["batch_date", "status", "frame_origin"], stream=stream)
    done = pc.is_in(held["status"], value_set=pa.array([DONE, RETIRED]))
    spent = pc.max(held["batch_date"].filter(pc.or_(done, pc.is_valid(held["frame_origin"]))))
    found: date | None = spent.as_py()
    return found


def spenders(contracts: Contracts, channel: str) -> tuple[str, ...]:
    """The streams of a channel: what one has spent is spent, whether its contract can be used today or not."""
    return (*(one.stream for one in contracts.streams_of(channel)), *contracts.withheld(channel))


def spending_of(tables: Tables, contracts: Contracts, channel: str, days: Iterable[date]) -> Spending:
    """What the tables say of a channel around some days: its pinned batches, and what the done ones sent."""
    quota = contracts.channels[channel].capacity.quota
    assert quota is not None, "only a quota is spent"
    near = {one for day in days for one in _around(quota, quota.period_of(day))}
    if not near:
        return Spending((), {})
    batches: list[Batch] = []
    crossed: dict[tuple[str, int], int] = {}
    for stream in spenders(contracts, channel):
        span = Between(min(one.first for one in near), max(one.last for one in near))
        pinned = [one for one in load_batches(tables, stream, batch_date=span) if spends(one)]
        # of those before, one is enough to say that the channel was in use
        earlier = Between(high=span.low - timedelta(days=1))
        before = newest_batch(tables, stream, batch_date=earlier, frame_origin=Between())
        pinned += [before] if before is not None else []
        batches += pinned
        done = {one.batch: one for one in pinned if any(one.batch_date in period for period in near)}
        crossed |= {(stream, number): sent for number, sent in _crossed(tables, stream, done).items()}
    return Spending(tuple(batches), crossed)


def _around(quota: Quota, period: Period) -> tuple[Period, Period, Period]:
    return quota.before(period), period, quota.after(period)


def _crossed(tables: Tables, stream: str, batches: Mapping[int, Batch]) -> dict[int, int]:
    """Bytes of each batch that crossed: what its last stage kept, and what was asked back of it later."""
    if not batches:
        return {}
    rows = (
        tables.at("ledger")
        .rows(
            ["batch", "ordinal", "bytes_kept", "bytes_asked_back"],
            subject=stream,
            batch=list(batches),
            batch_date=sorted({batch.batch_date for batch in batches.values()}),
            unit="rows",
            dimension_kind=TOTAL,
        )
        .to_pylist()
    )
    last = {row["batch"]: row for row in sorted(rows, key=lambda row: row["ordinal"]) if row["ordinal"] > 0}
    asked_back = dict.fromkeys(batches, 0)
    for row in rows:
        asked_back[row["batch"]] += row["bytes_asked_back"]
    return {
        number: asked_back[number] + (last[number]["bytes_kept"] if number in last else 0)
        for number in batches
    }


def _channels_of(room: Room) -> list[str]:
    """The room's channel and those that go into it."""
    return sorted({room.name} | {contract.channel for contract in room.contracts.streams_of(room.name)})


def _by_period(
    quotas: Iterable[Quota], waiting: Mapping[str, Sequence[Batch]]
) -> list[dict[str, list[Batch]]]:
    """The batches that are not pinned yet, period by period of the shortest quota, oldest first."""
    shortest = min(quotas, key=lambda quota: ("day", "month").index(quota.per))
    groups: dict[Period, dict[str, list[Batch]]] = {}
    for stream, batches in waiting.items():
        for batch in batches:
            if not batch.is_pinned:
                period = shortest.period_of(batch.batch_date)
                groups.setdefault(period, {}).setdefault(stream, []).append(batch)
    return [groups[period] for period in sorted(groups)]


def _at_hand(contracts: Contracts, channel: str, group: Mapping[str, Sequence[Batch]]) -> float:
    """Seconds that the batches at hand take of the channel."""
    mine = {contract.stream for contract in contracts.streams_of(channel)}
    return _covered(batch for stream, batches in group.items() if stream in mine for batch in batches)


def _covered(batches: Iterable[Batch]) -> float:
    """Seconds that are covered: streams at the same time, the batches of one after one another."""
    seconds: dict[str, float] = {}
    for batch in batches:
        seconds[batch.stream] = seconds.get(batch.stream, 0.0) + (batch.seconds_covered or 0.0)
    return max(seconds.values(), default=0.0)


def _promised(batch: Batch, part: Part) -> Batch:
    return replace(
        batch,
        status="planned",
        capacity_kbps=part.own_kbps,
        trunk_kbps=part.trunk_kbps,
        frame_origin=batch.first_seq,
    )


def _at_rates(room: Room, kbps: Mapping[str, float]) -> Room:
    """The room, its channels with quotas carrying so much now."""
    channels = dict(room.contracts.channels)
    for name, rate in kbps.items():
        channels[name] = replace(
            channels[name], capacity=replace(channels[name].capacity, kbps=rate, quota=None)
        )
    return replace(room, contracts=replace(room.contracts, channels=channels))

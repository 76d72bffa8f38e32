"""Divide channels among streams, plan all streams of a channel together, and spend quotas.

Shares of a channel (Ahuja 2006, section 3.3): first, every channel is divided among its own streams. If channels go
into another channel (`into`), the rates that they would send are then divided again.

- `divide_by: proportional` is the rule of the thesis: one drop rate for all streams.
- `divide_by: utility` chooses among all treatments of all streams the combination with the least loss
  (`levers.knapsack`). The share of a stream is the rate that it would send then.

A stream with nothing waiting counts with its last known rate, so that a quiet quarter of an hour does not cost it its
share. So does a stream that fails here, or whose contract cannot be used: a fault neither frees a share nor takes one
from others.

Planning (`plan_all`): the levers of all streams are planned position by position, before anything is applied.

Quotas: a channel may send a number of bytes per day or month. The batch date is the clock. It is recorded with the
batch and never recomputed. A batch belongs to the period of its date, and covers its own seconds of it. Streams of one
channel cover theirs at the same time. These bytes are spent:

- the counted bytes of done batches, and the bytes that were requested back from them;
- for batches that are pinned and not done, all bytes that they may still send.

So a run that was interrupted, or one that sheds several days at once, promises no byte twice.

For the waiting batches, a channel with a quota becomes a channel with a rate (`CapacityGroup` with that capacity). It
is divided and pinned like any other, so a rerun does what the first run did. If several batches wait, they get their
shares one after another, oldest first; the later ones count as expected bytes. Batches that are sent together
(`streams.batching`) have one share, over the seconds of all of them.

If the unspent bytes cover a batch and the bytes expected for the rest of the period, the batch is sent without loss.
The expected bytes come from the last earlier day (`Spending.expected`): today is expected to offer what that day
offered after the same time of day, and each later day of a month as much as that day in total. So a day whose offer
fits is sent without loss, also if all of it comes in the morning or in the evening.

Limitation: time in which nothing was delivered is not known, except for whole days of a month. A day with one delivery
spends over the day as if the rest were still to come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, QUARANTINED, RETIRED, Batch
from spillway.contracts import Channel, Contracts, StreamContract
from spillway.contracts.capacity import DAY_SECONDS, Period, Quota
from spillway.errors import ExternalFault, SpillwayError
from spillway.ledger import TOTAL
from spillway.levers.knapsack import least_cost
from spillway.levers.loss_curve import proportional_capacities
from spillway.levers.protocol import (
    OVERHEAD,
    CapacityGroup,
    CapacityShare,
    Load,
    MeasuredDraft,
    Offer,
    Plan,
    Work,
)
from spillway.registry import columns_of, lever
from spillway.store.batches import load_batches, newest_batch
from spillway.store.delta_log import commit_bytes, written_file
from spillway.store.files import batch_bytes
from spillway.store.tables import Between, Tables
from spillway.streams.batching import group_batches
from spillway.streams.facts import needed_facts, newest_facts
from spillway.streams.faults import Faults
from spillway.streams.stages import SentColumns, ShedPath


def measure_load(tables: Tables, contract: StreamContract, batch: Batch) -> Load:
    """Return the width and rate of a batch.

    The width is that of compressed bytes as written, or of declared bits. The rate is the number of tuples over the
    seconds that the batch covers.
    """
    rows = max(1, batch.rows or 0)
    if not batch.seconds_covered:
        raise SpillwayError(
            f"{contract.stream}: the rate of batch {batch.batch} must be known, got no span of time from "
            f"`rate: {{from: {contract.rate.from_}}}`; declare it: `rate: {{from: declared, tuples_per_second: ...}}`"
        )
    if contract.width == "declared":
        widths = {a.name: float(a.declared_bits) for a in contract.attributes} | dict.fromkeys(OVERHEAD, 64.0)
        fixed_kbps = 0.0
    else:
        measured, around = raw_column_bytes(tables, contract, batch)
        widths = {name: size * 8.0 / rows for name, size in measured.items()}
        fixed_kbps = around * 8.0 / 1000.0 / batch.seconds_covered
    return Load(widths, rows / batch.seconds_covered, fixed_kbps)


def raw_column_bytes(tables: Tables, contract: StreamContract, batch: Batch) -> tuple[dict[str, int], int]:
    """Return the compressed bytes of each column of a batch in `raw`, and the bytes outside of columns.

    The bytes outside of columns are footers and log entries; the files that are sent will have about as many. If the
    number was stored when the files were written, that number is returned: a later compaction must not change a plan.
    """
    raw = tables.at("raw", contract.stream)
    files = raw.files(batch_date=batch.batch_date, batch=batch.batch)
    measured, around = batch_bytes(files, [*OVERHEAD, *contract.names], batch.batch)
    if batch.overhead_bytes is not None:
        return measured, max(0, batch.overhead_bytes)
    return measured, around + commit_bytes([written_file(file, raw.path) for file in files])


def divide_channel(channel: Channel, offers: Mapping[str, Offer]) -> dict[str, float]:
    """Return the kbps of the channel for each stream; if all streams fit, the free capacity is divided too.

    >>> from spillway.contracts import read_channel
    >>> divide_channel(read_channel("up", {"capacity": "40 kbps"}), {"a": Offer(60.0), "b": Offer(20.0)})
    {'a': 30.0, 'b': 10.0}
    >>> divide_channel(read_channel("up", {"capacity": "160 kbps"}), {"a": Offer(60.0), "b": Offer(20.0)})
    {'a': 120.0, 'b': 40.0}
    """
    rates = {stream: offer.rate_kbps for stream, offer in offers.items()}
    capacity, total = channel.capacity_kbps, sum(rates.values())
    if total <= capacity:
        # a stream without a rate has a share too, and all shares together do not exceed the channel
        each = {stream: rate / total if total else 1 / len(rates) for stream, rate in rates.items()}
        return {stream: capacity * part for stream, part in each.items()}
    if channel.divide_by == "utility":
        return _divide_by_utility(offers, capacity)
    return _divide_proportionally(offers, capacity)


def _divide_proportionally(offers: Mapping[str, Offer], capacity_kbps: float) -> dict[str, float]:
    """Apply one drop rate to all streams whose levers can shed; the others are sent as they are, while they fit.

    >>> _divide_proportionally({"a": Offer(60.0), "b": Offer(20.0), "c": Offer(40.0, sheds=False)}, 80.0)
    {'a': 30.0, 'b': 10.0, 'c': 40.0}
    >>> _divide_proportionally({"a": Offer(60.0), "b": Offer(40.0, sheds=False)}, 20.0)
    {'a': 12.0, 'b': 8.0}
    """
    rates = {stream: offer.rate_kbps for stream, offer in offers.items()}
    whole = {stream: rate for stream, rate in rates.items() if not offers[stream].sheds}
    left = capacity_kbps - sum(whole.values())
    if left <= 0:
        # the streams cannot fit: each gets its share, and records its shortfall
        whole, left = {}, capacity_kbps
    others = {stream: rate for stream, rate in rates.items() if stream not in whole}
    parts = dict(zip(others, proportional_capacities(list(others.values()), left), strict=True))
    return {stream: whole.get(stream, parts.get(stream, 0.0)) for stream in rates}


def _divide_by_utility(offers: Mapping[str, Offer], capacity_kbps: float) -> dict[str, float]:
    """Return what each stream would send in the combination with the least total loss; free capacity is divided too."""
    items = [(stream, item) for stream, offer in offers.items() for item in offer.items]
    fixed = {stream: offer.fixed_kbps for stream, offer in offers.items()}
    found = least_cost([item for _, item in items], capacity_kbps - sum(fixed.values()))
    sent = dict(fixed)
    for (stream, item), pick in zip(items, found.picks, strict=True):
        sent[stream] += item[pick].crosses
    total, left = sum(sent.values()), capacity_kbps - sum(sent.values())
    if left < 0:  # the streams cannot fit: each gets its share, and records its shortfall
        return {stream: kbps * capacity_kbps / total for stream, kbps in sent.items()}
    offered = sum(offer.rate_kbps for offer in offers.values())
    return {stream: kbps + left * offers[stream].rate_kbps / offered for stream, kbps in sent.items()}


def capacity_shares(
    tables: Tables,
    room: CapacityGroup,
    waiting: Mapping[str, Sequence[Batch]],
    by_rate: bool = False,
    faults: Faults | None = None,
) -> dict[str, CapacityShare]:
    """Return the shares of every stream that is planned with the room's channel.

    `by_rate`: if true, divide by the offered rates alone and ignore what was learned. Training uses this, so that the
    share that a stream is trained for does not depend on which other streams were trained before.
    `faults`: records streams whose load cannot be measured; without it, the error is raised. Such a stream counts with
    its last offered rate.
    """
    found = Faults() if faults is None else faults
    shared = _capacity_shares(tables, room, waiting, by_rate, found)
    if faults is None:
        found.raise_all()
    return shared


def _capacity_shares(
    tables: Tables, room: CapacityGroup, waiting: Mapping[str, Sequence[Batch]], by_rate: bool, faults: Faults
) -> dict[str, CapacityShare]:
    contracts = {contract.stream: contract for contract in room.contracts.streams_of(room.name)}
    loads: dict[str, Load | float] = {}
    for stream, contract in contracts.items():
        mine = waiting.get(stream, ())
        load = faults.attempt(stream, "plan", partial(_load, tables, contract, mine), mine)
        loads[stream] = _last_known(tables, contract, mine) if load is None else load

    def offered(stream: str, own_kbps: float | None = None) -> Offer:
        mine, load = waiting.get(stream, ()), loads[stream]
        of = partial(offer, tables, room, contracts[stream], load, own_kbps, by_rate)
        found = faults.attempt(stream, "plan", of, mine)
        return found if found is not None else _of_rate(load, own_kbps, contracts[stream])

    own: dict[str, float] = {}
    unseen: list[Offer] = []
    for name in sorted({contract.channel for contract in contracts.values()}):
        offers = {stream: offered(stream) for stream, one in contracts.items() if one.channel == name}
        absent = {
            stream: Offer(last_sent_kbps(tables, stream))
            for stream in room.contracts.broken_streams(name)
            if stream not in offers
        }
        shared = divide_channel(room.contracts.channels[name], {**offers, **absent})
        unseen += [Offer(min(one.rate_kbps, shared[stream])) for stream, one in absent.items()]
        own |= {stream: shared[stream] for stream in offers}
    if all(contract.channel == room.name for contract in contracts.values()):
        return {stream: CapacityShare(kbps) for stream, kbps in own.items()}
    sent = {stream: offered(stream, own[stream]) for stream in contracts}
    beside = {f" {place}": one for place, one in enumerate(unseen)}
    trunk = divide_channel(room.contracts.channels[room.name], {**sent, **beside})
    return {stream: CapacityShare(own[stream], trunk[stream]) for stream in contracts}


def offer(
    tables: Tables,
    room: CapacityGroup,
    contract: StreamContract,
    load: Load | float,
    own_kbps: float | None = None,
    by_rate: bool = False,
) -> Offer:
    """Return the rate of the stream, and the treatments that could lower it.

    `own_kbps`: if given, the rate after the stream's own shedding to this share.
    """
    if by_rate or not isinstance(load, Load):
        return _of_rate(load, own_kbps, contract)
    found = Offer(load.rate_kbps, load, sheds=bool(contract.lever_names))
    channel = room.contracts.channels[contract.channel]
    for name in contract.lever_names:
        facts = newest_facts(tables, contract.stream, name)
        found = lever(name).update_offer(found, contract, channel, facts, own_kbps)
    return found


def _load(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> Load | float:
    """Return what the stream offers: the load of its densest waiting batch, because its share must hold each of them.

    Batches with less than half of the mean number of tuples are ignored: the fixed bytes of files would dominate their
    rate. If nothing waits, return the last offered rate.
    """
    waiting = [(measure_load(tables, contract, b), b.rows or 0) for b in batches if b.rows]
    if not waiting:
        return _last_rate(tables, contract)
    mean = sum(rows for _, rows in waiting) / len(waiting)
    return max((load for load, rows in waiting if 2 * rows >= mean), key=lambda load: load.rate_kbps)


def _of_rate(load: Load | float, own_kbps: float | None, contract: StreamContract) -> Offer:
    rate, sheds = load.rate_kbps if isinstance(load, Load) else load, bool(contract.lever_names)
    return Offer(rate if own_kbps is None or not sheds else min(rate, own_kbps), sheds=sheds)


def _last_rate(tables: Tables, contract: StreamContract) -> float:
    """Return what the last sent batch offered; if its raw rows are gone, as the ledger has it."""
    last = _last_sent(tables, contract.stream)
    if last is not None and last.status == DONE and last.seconds_covered:
        return measure_load(tables, contract, last).rate_kbps
    return last_sent_kbps(tables, contract.stream)


def _last_known(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> float:
    """Return the last offered rate of a stream whose load cannot be measured, from the ledger.

    If the stream never sent anything, use the bits that its contract declares. So a fault does not lower the rate.
    """
    known = last_sent_kbps(tables, contract.stream)
    bits = sum(attribute.declared_bits for attribute in contract.attributes)
    rates = [(b.rows or 0) / b.seconds_covered * bits / 1000.0 for b in batches if b.seconds_covered]
    return known or max(rates, default=0.0)


def _last_sent(tables: Tables, stream: str) -> Batch | None:
    return newest_batch(tables, stream, status=[DONE, RETIRED], rows=Between(1))


def last_sent_kbps(tables: Tables, stream: str) -> float:
    """Return what the last sent batch offered, from the ledger; needs neither the contract nor raw tuples."""
    last = _last_sent(tables, stream)
    if last is None or not last.seconds_covered:
        return 0.0
    rows = tables.at("ledger").rows(
        ["ordinal", "bytes_offered"],
        subject=stream,
        batch=last.batch,
        unit="rows",
        dimension_kind=TOTAL,
    )
    final = max(rows.to_pylist(), key=lambda row: row["ordinal"], default=None)
    return final["bytes_offered"] * 8.0 / 1000.0 / last.seconds_covered if final else 0.0


@dataclass(frozen=True)
class ShedPlan:
    """Some batches of a stream with the plans of all its levers, in order."""

    contract: StreamContract
    batches: tuple[Batch, ...]
    loads: Mapping[int, Load]
    plans: tuple[Plan, ...]
    down: ShedPath

    @property
    def numbers(self) -> list[int]:
        return [batch.batch for batch in self.batches]


@dataclass(frozen=True)
class DraftMeasurements:
    """The measurements of an earlier draft of the same batches, for planning them again."""

    aims: Mapping[int, float] = field(default_factory=dict)
    """By batch, the share of its capacity to aim at."""
    tried: Mapping[int, Mapping[int, tuple[Plan, MeasuredDraft]]] = field(default_factory=dict)
    """By ordinal of the lever and batch: its plan, and what the draft of the plan measured."""
    fixed_kbps: Mapping[int, float] = field(default_factory=dict)
    """By batch, the kbps that were sent outside of the columns of `transmitted`."""
    exact_widths: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """By batch, the bits per row of the columns that were sent exactly, which depend on the order of the rows."""
    fits: bool = False
    """Whether a draft that fits exists already."""


def plan_all(
    room: CapacityGroup,
    runs: Mapping[tuple[str, tuple[str, ...]], Sequence[Batch]],
    again: DraftMeasurements | None = None,
    loads: Mapping[str, Mapping[int, Load]] | None = None,
) -> list[ShedPlan]:
    """Plan the batches of every stream (and order of levers) together, position by position.

    If several streams have the same lever at the same position, the lever plans for all of them at once.

    `loads`: by stream and batch, the loads that are known already.
    """
    tables: Tables = room.tables  # type: ignore[assignment]
    ways: list[ShedPlan] = []
    for (stream, _), batches in runs.items():
        contract = room.contracts.streams[stream]
        known = (loads or {}).get(stream, {})
        mine = {b.batch: known.get(b.batch) or measure_load(tables, contract, b) for b in batches}
        if again is not None:
            mine |= {n: replace(mine[n], fixed_kbps=kbps) for n, kbps in again.fixed_kbps.items()}
            for n, widths in again.exact_widths.items():
                mine[n] = replace(mine[n], widths_bits={**mine[n].widths_bits, **widths})
        days = sorted({batch.batch_date for batch in batches})
        raw = tables.at("raw", stream).stored_files(batch_date=days)
        stretches = tuple((batch.first_seq, batch.last_seq) for batch in batches)
        sent_columns = SentColumns(frozenset(["seq", *contract.names]), stretches)
        down = ShedPath(raw, (), len(contract.attributes), sent_columns)
        ways.append(ShedPlan(contract, tuple(batches), mine, (), down))
    for ordinal in range(1, max((len(way.batches[0].levers) for way in ways), default=0) + 1):
        here = {
            i: way.batches[0].levers[ordinal - 1]
            for i, way in enumerate(ways)
            if len(way.batches[0].levers) >= ordinal
        }
        for name in sorted(set(here.values())):
            places = [i for i, other in here.items() if other == name]
            works = [_work(tables, ways[i], name, ordinal, again or DraftMeasurements()) for i in places]
            plans = lever(name).plan(room, works)
            for i, plan in zip(places, plans, strict=True):
                way = ways[i]
                down = replace(way.down, decisions=(*way.down.decisions, plan.decision))
                ways[i] = replace(way, plans=(*way.plans, plan), down=down)
    return ways


def _work(tables: Tables, way: ShedPlan, name: str, ordinal: int, again: DraftMeasurements) -> Work:
    contract, stream = way.contract, way.contract.stream
    if name not in contract.lever_names:
        numbers = ", ".join(map(str, way.numbers))
        raise ExternalFault(
            f"{stream}: batch {numbers} is pinned to the lever {name}, which its contract must list to shed it again, "
            f"got levers {', '.join(contract.lever_names) or 'none'}; list it, or leave the batch as it is"
        )
    days, levers = {batch.batch_date for batch in way.batches}, way.batches[0].levers
    mine = {batch.batch: batch for batch in way.batches}
    others = [
        batch
        for batch in load_batches(tables, stream, batch_date=days)
        if batch.levers == levers and batch.rows and batch.batch not in mine and batch.status != QUARANTINED
    ]
    framed = tuple(sorted([*others, *way.batches], key=lambda batch: batch.batch))
    versions = {batch.models[name] for batch in framed if name in batch.models}
    loads = {
        batch.batch: way.plans[-1].output_load(batch.batch) if way.plans else way.loads[batch.batch]
        for batch in way.batches
    }
    return Work(
        contract,
        needed_facts(tables, stream, name, versions),
        way.batches,
        framed,
        lambda day: way.down.rows_before(ordinal, day),
        loads,
        {number: again.aims.get(number, 1.0) for number in way.numbers},
        again.tried.get(ordinal, {}),
        again.fits,
        (*(c for one in levers[: ordinal - 1] for c, _, _ in columns_of(one)), *contract.names),
        ordinal,
        {other: newest_facts(tables, stream, other) for other in levers[ordinal:]},
    )


LEAST_KBPS = 1e-6
"""The rate of a channel whose quota is spent: practically 0, but a number that may be divided by."""

SPARE = 1.02
"""A batch that is sent without loss may take this many times the bytes that it took in `raw`."""
METADATA_BYTES = 6_000
"""Bytes that destination metadata and a file of synopses may add to a batch."""
STEADY = 0.1
"""The share of the earlier day that is added to both days before they are compared, so that few data weigh little."""

BatchShares = dict[str, dict[int, CapacityShare]]
"""The shares by stream and batch."""


def batch_shares(
    tables: Tables, room: CapacityGroup, waiting: Mapping[str, Sequence[Batch]], faults: Faults | None = None
) -> BatchShares:
    """Return the share of every waiting batch in the channels' rates, or in the rest of their quotas.

    Streams that cannot be planned are recorded in `faults`; the others get their shares.
    """
    channels = _channels_of(room)
    quotas = {
        name: quota
        for name in channels
        if (quota := room.contracts.channels[name].capacity.quota) is not None
    }
    if not quotas:
        shares = capacity_shares(tables, room, waiting, faults=faults)
        return {stream: {one.batch: shares[stream] for one in found} for stream, found in waiting.items()}
    days = {batch.quota_day for found in waiting.values() for batch in found}
    spent = {name: spent_in(tables, room, name, days) for name in quotas}
    sent_together = {
        stream: group_batches(tables, room.contracts.streams[stream], found)
        for stream, found in waiting.items()
    }
    offered = _offered_bytes(tables, room, waiting, sent_together)
    promised: BatchShares = {stream: {} for stream in waiting}
    groups = _by_period(quotas.values(), sent_together)
    for place, group in enumerate(groups):
        day = min(batch.quota_day for found in group.values() for batch in found)
        at_hand = {name: _at_hand(room.contracts, name, group) for name in quotas}
        now = {}
        for name, quota in quotas.items():
            mine = _streams_of(room.contracts, name)
            period = quota.period_of(day)
            follow = sum(
                offered[one.stream, one.batch]
                for later in groups[place + 1 :]
                for found in later.values()
                for one in found
                if one.stream in mine and one.quota_day in period
            )
            kbps = _offered_kbps(tables, room.contracts, name, group, offered)
            bytes_ = kbps * 125.0 * at_hand[name]
            expected = max(follow, spent[name].expected(quota, day, at_hand[name], bytes_))
            now[name] = max(
                LEAST_KBPS, spent[name].allowance(quota, day, at_hand[name], bytes_ * SPARE, expected)
            )
        shares = capacity_shares(tables, _at_rates(room, now), group, faults=faults)
        for stream, found in group.items():
            promised[stream] |= {one.batch: shares[stream] for one in found}
            pinned = [promised_to(one, shares[stream]) for one in found]
            for name in {room.contracts.streams[stream].channel, room.name} & set(quotas):
                spent[name] = spent[name].including(pinned)
    return promised


def assign_quota_days(
    tables: Tables, room: CapacityGroup, waiting: Mapping[str, Sequence[Batch]]
) -> dict[str, list[Batch]]:
    """Return the batches with the day whose quota they spend; a queued batch spends the newest day of the channel."""
    batches = [batch for found in waiting.values() for batch in found]
    if not any(batch.spends_on and not batch.is_pinned for batch in batches):
        return {stream: list(found) for stream, found in waiting.items()}
    spent = [last_quota_date(tables, stream) for stream in _streams_of(room.contracts, room.name)]
    newest = max([batch.quota_day for batch in batches] + [day for day in spent if day is not None])
    return {
        stream: [
            replace(batch, spends_on=newest) if batch.spends_on and not batch.is_pinned else batch
            for batch in found
        ]
        for stream, found in waiting.items()
    }


@dataclass(frozen=True)
class QuotaSpending:
    """What the batches of a channel have spent, or may still spend because it was promised to them."""

    batches: tuple[Batch, ...]
    crossed_bytes: Mapping[tuple[str, int], int]
    """The bytes that done batches sent, by stream and batch."""
    offered_bytes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The bytes that done batches would have sent without shedding, by stream and batch."""

    def spent(self, period: Period) -> int:
        """Return the bytes that are spent of the period."""
        return sum(self._of(batch) for batch in self.batches if batch.quota_day in period)

    def elapsed(self, period: Period, day: date) -> float:
        """Return the seconds of the period before a batch of that day: those covered, but at least the whole days."""
        whole = (day - period.first).days * DAY_SECONDS
        since = [batch for batch in self.batches if batch.quota_day in period and batch.quota_day >= day]
        before = [batch for batch in self.batches if batch.quota_day in period]
        return max(_covered(before), whole + _covered(since))

    def left(self, quota: Quota, period: Period) -> int:
        """Return the bytes that the period may still send, including those carried over."""
        spent, after = self.spent(period), self.spent(quota.after(period))
        return quota.left(spent, self.carried(quota, period), after)

    def carried(self, quota: Quota, period: Period) -> int:
        """Return the bytes carried over from the period before; 0 if the channel was not in use then."""
        before = quota.before(period)
        if not self.batches or min(batch.quota_day for batch in self.batches) > before.last:
            return 0
        return quota.carried(self.spent(before))

    def expected(self, quota: Quota, day: date, at_hand: float, offered: float) -> float:
        """Return the bytes that the rest of the period is expected to offer after the batches at hand.

        `at_hand`, `offered`: the seconds that these batches cover, and the bytes that they offer.

        The rest of today is expected to offer what the last earlier day offered after the same time of day, scaled by
        the ratio of today to that day so far. If there is no earlier day, the rate so far is scaled by the third power
        of the share of the day that is over, because the first hours of a day say little about its rest. So a steady
        first day that fits is sent whole, and so is one that begins with four times its mean rate. Each later day of
        the period is expected to offer as much as the last earlier day, or else as much as today so far.
        """
        period = quota.period_of(day)
        today = [batch for batch in self.batches if batch.quota_day == day]
        reached = _covered(today) + at_hand
        so_far = offered + sum(self._offered(batch) for batch in today)
        earlier = [batch for batch in self.batches if batch.quota_day < day and self._offered(batch)]
        later_days = max(0, (period.last - day).days)
        if not earlier:
            seen = min(1.0, reached / DAY_SECONDS)
            rest = so_far / reached * (DAY_SECONDS - reached) * seen**3 if 0 < reached < DAY_SECONDS else 0.0
            return rest + later_days * so_far
        last = max(batch.quota_day for batch in earlier)
        before, after = self._offered_around([one for one in earlier if one.quota_day == last], reached)
        usual = before + after
        return after * (so_far + STEADY * usual) / (before + STEADY * usual) + later_days * usual

    def _offered(self, batch: Batch) -> int:
        return self.offered_bytes.get((batch.stream, batch.batch), 0)

    def _offered_around(self, batches: Sequence[Batch], reached: float) -> tuple[float, float]:
        """Return the bytes that a day's batches offered in its first `reached` seconds, and after them."""
        before = after = 0.0
        covered: dict[str, float] = {}
        for batch in sorted(batches, key=lambda one: one.batch):
            start, seconds = covered.get(batch.stream, 0.0), batch.seconds_covered or 0.0
            covered[batch.stream] = start + seconds
            share = min(1.0, max(0.0, (reached - start) / seconds)) if seconds else float(start < reached)
            before += share * self._offered(batch)
            after += (1.0 - share) * self._offered(batch)
        return before, after

    def allowance(
        self, quota: Quota, day: date, at_hand: float, offered: float = 0.0, expected: float = 0.0
    ) -> float:
        """Return the kbps for batches of that day that cover `at_hand` seconds and offer `offered` bytes."""
        period = quota.period_of(day)
        return quota.allowance(
            period.seconds,
            self.spent(period),
            self.elapsed(period, day),
            at_hand,
            self.carried(quota, period),
            self.spent(quota.after(period)),
            offered,
            expected,
        )

    def including(self, batches: Iterable[Batch]) -> QuotaSpending:
        """Return the spending with some more batches, to which bytes were promised."""
        return replace(self, batches=(*self.batches, *batches))

    def _of(self, batch: Batch) -> int:
        if batch.status in (DONE, RETIRED):
            return self.crossed_bytes.get((batch.stream, batch.batch), 0)
        return math.ceil(batch.allowed_kbps * 125.0 * (batch.seconds_covered or 0.0))


def spent_in(tables: Tables, room: CapacityGroup, channel: str, days: Iterable[date]) -> QuotaSpending:
    """Return what is spent of the quota of a channel around some days."""
    if room.spending is None:
        return quota_spending(tables, room.contracts, channel, days)
    found: QuotaSpending = room.spending(channel, days)
    return found


def unspent_share(
    tables: Tables, room: CapacityGroup, batches: Sequence[Batch], needed_bytes: float
) -> CapacityShare:
    """Return the share of batches that are sent together if they may spend what the quotas of their channels have left.

    `needed_bytes`: the bytes that they need. The share grows only where the channel has a quota, and at most to what
    the quota has not spent or promised to others, at most at its `burst`.
    """
    first, contracts = batches[0], room.contracts
    channel = contracts.streams[first.stream].channel
    mine = {(batch.stream, batch.batch) for batch in batches}

    def grown(name: str, kbps: float) -> float:
        quota = contracts.channels[name].capacity.quota
        if quota is None:
            return kbps
        spent = spent_in(tables, room, name, [first.quota_day])
        others = tuple(one for one in spent.batches if (one.stream, one.batch) not in mine)
        free = replace(spent, batches=others)
        return max(kbps, free.allowance(quota, first.quota_day, _covered(batches), needed_bytes))

    own, into = first.capacity_kbps or 0.0, contracts.channels[channel].into
    trunk = first.trunk_kbps if first.trunk_kbps is None or into is None else grown(into, first.trunk_kbps)
    return CapacityShare(grown(channel, own), trunk)


def spends_quota(batch: Batch) -> bool:
    """Return whether the batch has sent something, or was promised that it may."""
    return batch.is_pinned or batch.status in (DONE, RETIRED)


def last_quota_date(tables: Tables, stream: str) -> date | None:
    """Return the last batch date with a batch that spends quota (see `spends_quota`); None if there is none.

    The function reads columns, not `Batch` objects, so that it stays fast.
    """
    held = tables.at("batches").rows(["batch_date", "status", "frame_origin"], stream=stream)
    done = pc.is_in(held["status"], value_set=pa.array([DONE, RETIRED]))
    spent = pc.max(held["batch_date"].filter(pc.or_(done, pc.is_valid(held["frame_origin"]))))
    found: date | None = spent.as_py()
    return found


def streams_of_quota(contracts: Contracts, channel: str) -> tuple[str, ...]:
    """Return the streams of a channel, also those with invalid contracts, because their bytes are spent too."""
    return (*(one.stream for one in contracts.streams_of(channel)), *contracts.broken_streams(channel))


def quota_spending(tables: Tables, contracts: Contracts, channel: str, days: Iterable[date]) -> QuotaSpending:
    """Return the bytes of a channel that its pinned and done batches spent around some days."""
    quota = contracts.channels[channel].capacity.quota
    assert quota is not None, "only a quota is spent"
    near = {one for day in days for one in _around(quota, quota.period_of(day))}
    if not near:
        return QuotaSpending((), {})
    batches: list[Batch] = []
    crossed: dict[tuple[str, int], int] = {}
    offered: dict[tuple[str, int], int] = {}
    for stream in streams_of_quota(contracts, channel):
        span = Between(min(one.first for one in near), max(one.last for one in near))
        found = load_batches(tables, stream, batch_date=span)
        known = {one.batch for one in found}
        found += [one for one in load_batches(tables, stream, spends_on=span) if one.batch not in known]
        pinned = [one for one in found if spends_quota(one)]
        # one earlier batch is enough to show that the channel was in use
        earlier = Between(high=span.low - timedelta(days=1))
        before = newest_batch(tables, stream, batch_date=earlier, frame_origin=Between())
        pinned += [before] if before is not None else []
        batches += pinned
        done = {one.batch: one for one in pinned if any(one.quota_day in period for period in near)}
        for number, (sent, brought) in _crossed(tables, stream, done).items():
            crossed[stream, number], offered[stream, number] = sent, brought
    return QuotaSpending(tuple(batches), crossed, offered)


def _around(quota: Quota, period: Period) -> tuple[Period, Period, Period]:
    return quota.before(period), period, quota.after(period)


def _crossed(tables: Tables, stream: str, batches: Mapping[int, Batch]) -> dict[int, tuple[int, int]]:
    """Return for each batch the bytes that were sent, and the bytes that it offered.

    The bytes sent are those that its last stage kept, and those that were requested later.
    """
    if not batches:
        return {}
    rows = (
        tables.at("ledger")
        .rows(
            ["batch", "ordinal", "bytes_offered", "bytes_kept", "bytes_requested"],
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
        asked_back[row["batch"]] += row["bytes_requested"]
    nothing = {"bytes_kept": 0, "bytes_offered": 0}
    return {
        number: (
            asked_back[number] + last.get(number, nothing)["bytes_kept"],
            last.get(number, nothing)["bytes_offered"],
        )
        for number in batches
    }


def _offered_bytes(
    tables: Tables,
    room: CapacityGroup,
    waiting: Mapping[str, Sequence[Batch]],
    sent_together: Mapping[str, Sequence[Sequence[Batch]]],
) -> dict[tuple[str, int], float]:
    """Return the bytes that each waiting batch would send without shedding; 0 if that is not known.

    These are the bytes of the batch in `raw`. Batches that are sent together take fewer: by as much as those that were
    sent together last, because the ledger, from which later offers are expected, has the fewer bytes.
    """
    found = {}
    for stream, batches in waiting.items():
        contract = room.contracts.streams[stream]
        grouped = {one.batch for group in sent_together[stream] if len(group) > 1 for one in group}
        saved = (
            Faults().attempt(stream, "plan", partial(_bytes_together, tables, contract)) if grouped else 1.0
        )
        for batch in batches:
            measure = partial(measure_load, tables, contract, batch)
            load = Faults().attempt(stream, "plan", measure, [batch]) if batch.rows else None
            bytes_ = load.rate_kbps * 125.0 * (batch.seconds_covered or 0.0) if load is not None else 0.0
            found[stream, batch.batch] = bytes_ * ((saved or 1.0) if batch.batch in grouped else 1.0)
    return found


def _bytes_together(tables: Tables, contract: StreamContract) -> float:
    """Return the bytes that batches take together, over those that they take alone in `raw`, of the last such batch."""
    stream = contract.stream
    last = newest_batch(tables, stream, status=DONE, rows=Between(1), sent_with=Between(0))
    if last is None or contract.width == "declared":
        return 1.0
    measured, around = raw_column_bytes(tables, contract, last)
    _, together = _crossed(tables, stream, {last.batch: last})[last.batch]
    alone = sum(measured.values()) + around
    return min(1.0, together / alone) if together and alone else 1.0


def _offered_kbps(
    tables: Tables,
    contracts: Contracts,
    channel: str,
    group: Mapping[str, Sequence[Batch]],
    offered: Mapping[tuple[str, int], float],
) -> float:
    """Return the rate that a channel's streams offer together; a stream without batches counts with its last rate."""
    total = 0.0
    for stream in _streams_of(contracts, channel):
        batches = group.get(stream, ())
        seconds = _covered(batches)
        bytes_ = sum(offered[stream, batch.batch] for batch in batches)
        if bytes_ and seconds:
            total += (bytes_ + METADATA_BYTES) / 125.0 / seconds
        else:
            total += last_sent_kbps(tables, stream)
    return total


def _streams_of(contracts: Contracts, channel: str) -> list[str]:
    """Return the streams that are planned with a channel, also those whose contracts cannot be used now."""
    streams = [contract.stream for contract in contracts.streams_of(channel)]
    return list(dict.fromkeys([*streams, *contracts.broken_streams(channel)]))


def _channels_of(room: CapacityGroup) -> list[str]:
    """Return the room's channel and the channels that go into it."""
    return sorted({room.name} | {contract.channel for contract in room.contracts.streams_of(room.name)})


def _by_period(
    quotas: Iterable[Quota], waiting: Mapping[str, Sequence[Sequence[Batch]]]
) -> list[dict[str, list[Batch]]]:
    """Return the batches that are not pinned yet in rounds: of each stream the oldest group that is sent together.

    The rounds are ordered by the periods of the shortest quota.
    """
    shortest = min(quotas, key=lambda quota: ("day", "month").index(quota.per))
    groups: dict[tuple[Period, date, int], dict[str, list[Batch]]] = {}
    for stream, together in waiting.items():
        turns: dict[date, int] = {}
        for batches in sorted(together, key=lambda one: one[0].batch):
            if not batches[0].is_pinned:
                day = batches[0].quota_day
                turn = turns[day] = turns.get(day, -1) + 1
                groups.setdefault((shortest.period_of(day), day, turn), {})[stream] = list(batches)
    return [groups[place] for place in sorted(groups)]


def _at_hand(contracts: Contracts, channel: str, group: Mapping[str, Sequence[Batch]]) -> float:
    """Return the seconds of a channel that the waiting batches cover."""
    mine = {contract.stream for contract in contracts.streams_of(channel)}
    return _covered(batch for stream, batches in group.items() if stream in mine for batch in batches)


def _covered(batches: Iterable[Batch]) -> float:
    """Return the seconds covered: batches of one stream follow each other, streams run at the same time."""
    seconds: dict[str, float] = {}
    for batch in batches:
        seconds[batch.stream] = seconds.get(batch.stream, 0.0) + (batch.seconds_covered or 0.0)
    return max(seconds.values(), default=0.0)


def promised_to(batch: Batch, part: CapacityShare) -> Batch:
    """Return a batch as it is when its share is pinned."""
    return replace(
        batch,
        status="planned",
        capacity_kbps=part.own_kbps,
        trunk_kbps=part.trunk_kbps,
        frame_origin=batch.first_seq,
    )


def _at_rates(room: CapacityGroup, kbps: Mapping[str, float]) -> CapacityGroup:
    """Return the room with the quotas of its channels replaced by these rates."""
    channels = dict(room.contracts.channels)
    for name, rate in kbps.items():
        channels[name] = replace(
            channels[name], capacity=replace(channels[name].capacity, kbps=rate, quota=None)
        )
    return replace(room, contracts=replace(room.contracts, channels=channels))

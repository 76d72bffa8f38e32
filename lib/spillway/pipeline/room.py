"""Each stream's part of the channels it goes through (3.3): all streams of a channel are planned together.

First every channel is divided among its own streams; then, where channels go into another one (`into`), what they
would send is divided again. `divide_by: proportional` is the text's: one drop rate for all. `divide_by: utility`
chooses among all ways of all streams at once what costs least together (`levers.knapsack`), and each stream's
part is what it would send then. Streams with nothing waiting count
with their last known rate, so that a quiet quarter of an hour gives no place away for good. So do those that fail here,
or whose contracts cannot be used: a fault gives no place away, and keeps no other out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from spillway.batch import DONE, RETIRED, Batch
from spillway.contracts import Channel, StreamContract
from spillway.errors import SpillwayError
from spillway.ledger import TOTAL
from spillway.levers.knapsack import least_cost
from spillway.levers.loss_curve import proportional_capacities
from spillway.levers.protocol import OVERHEAD, Load, Offer, Part, Room
from spillway.pipeline.facts import newest_facts
from spillway.pipeline.faults import Faults
from spillway.registry import lever
from spillway.store.batches import newest_batch
from spillway.store.delta_log import as_written, commit_bytes
from spillway.store.files import batch_bytes
from spillway.store.tables import Between, Tables


def measure_load(tables: Tables, contract: StreamContract, batch: Batch) -> Load:
    """Width and rate of one batch: compressed bytes as written (or declared bits), tuples over its seconds."""
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
        measured, around = bytes_as_written(tables, contract, batch)
        widths = {name: size * 8.0 / rows for name, size in measured.items()}
        fixed_kbps = around * 8.0 / 1000.0 / batch.seconds_covered
    return Load(widths, rows / batch.seconds_covered, fixed_kbps)


def bytes_as_written(tables: Tables, contract: StreamContract, batch: Batch) -> tuple[dict[str, int], int]:
    """Compressed bytes of each column of a batch in `raw`, and of all around them, with what a log says of their files.

    What lies around columns in `raw` will lie around those that are sent. It is as it was when it was written, where
    that was kept: files that are put together later must not change a plan.
    """
    raw = tables.at("raw", contract.stream)
    files = raw.files(batch_date=batch.batch_date, batch=batch.batch)
    measured, around = batch_bytes(files, [*OVERHEAD, *contract.names], batch.batch)
    if batch.beside_bytes is not None:
        return measured, max(0, batch.beside_bytes)
    return measured, around + commit_bytes([as_written(file, raw.path) for file in files])


def divided(channel: Channel, offers: Mapping[str, Offer]) -> dict[str, float]:
    """Kbps of the channel for each stream; where all fits, what is free is shared out too.

    >>> from spillway.contracts import read_channel
    >>> divided(read_channel("up", {"capacity": "40 kbps"}), {"a": Offer(60.0), "b": Offer(20.0)})
    {'a': 30.0, 'b': 10.0}
    >>> divided(read_channel("up", {"capacity": "160 kbps"}), {"a": Offer(60.0), "b": Offer(20.0)})
    {'a': 120.0, 'b': 40.0}
    """
    rates = {stream: offer.rate_kbps for stream, offer in offers.items()}
    capacity, total = channel.capacity_kbps, sum(rates.values())
    if total <= capacity:
        # who brings nothing has a place all the same, and all places together are no more than the channel
        each = {stream: rate / total if total else 1 / len(rates) for stream, rate in rates.items()}
        return {stream: capacity * part for stream, part in each.items()}
    if channel.divide_by == "utility":
        return _by_utility(offers, capacity)
    return _proportionally(offers, capacity)


def _proportionally(offers: Mapping[str, Offer], capacity_kbps: float) -> dict[str, float]:
    """One drop rate for all whose levers can give something up; the others cross as they are, as long as there is room.

    >>> _proportionally({"a": Offer(60.0), "b": Offer(20.0), "c": Offer(40.0, sheds=False)}, 80.0)
    {'a': 30.0, 'b': 10.0, 'c': 40.0}
    >>> _proportionally({"a": Offer(60.0), "b": Offer(40.0, sheds=False)}, 20.0)
    {'a': 12.0, 'b': 8.0}
    """
    rates = {stream: offer.rate_kbps for stream, offer in offers.items()}
    whole = {stream: rate for stream, rate in rates.items() if not offers[stream].sheds}
    left = capacity_kbps - sum(whole.values())
    if left <= 0:
        # it will not fit, whoever gives what: each is told its share, and puts on record what is too much
        whole, left = {}, capacity_kbps
    others = {stream: rate for stream, rate in rates.items() if stream not in whole}
    parts = dict(zip(others, proportional_capacities(list(others.values()), left), strict=True))
    return {stream: whole.get(stream, parts.get(stream, 0.0)) for stream in rates}


def _by_utility(offers: Mapping[str, Offer], capacity_kbps: float) -> dict[str, float]:
    """What each stream would send of the choice that costs least together; what that leaves is shared out too."""
    items = [(stream, item) for stream, offer in offers.items() for item in offer.items]
    fixed = {stream: offer.fixed_kbps for stream, offer in offers.items()}
    found = least_cost([item for _, item in items], capacity_kbps - sum(fixed.values()))
    sent = dict(fixed)
    for (stream, item), pick in zip(items, found.picks, strict=True):
        sent[stream] += item[pick].crosses
    total, left = sum(sent.values()), capacity_kbps - sum(sent.values())
    if left < 0:  # nothing fits: each is told its share all the same, and puts on record what is too much
        return {stream: kbps * capacity_kbps / total for stream, kbps in sent.items()}
    offered = sum(offer.rate_kbps for offer in offers.values())
    return {stream: kbps + left * offers[stream].rate_kbps / offered for stream, kbps in sent.items()}


def parts(
    tables: Tables,
    room: Room,
    waiting: Mapping[str, Sequence[Batch]],
    by_rate: bool = False,
    faults: Faults | None = None,
) -> dict[str, Part]:
    """The parts of every stream that is planned with the room's channel.

    `by_rate`: by what they offer alone, whatever was learned of them, so that what one is trained for does not hang on
    which of the others were trained before it. A stream whose load cannot be found out has the place of what it last
    offered; it is noted in `faults`, or raised where these are not given.
    """
    found = Faults() if faults is None else faults
    shared = _parts(tables, room, waiting, by_rate, found)
    if faults is None:
        found.tell()
    return shared


def _parts(
    tables: Tables, room: Room, waiting: Mapping[str, Sequence[Batch]], by_rate: bool, faults: Faults
) -> dict[str, Part]:
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
            stream: Offer(rate_on_record(tables, stream))
            for stream in room.contracts.withheld(name)
            if stream not in offers
        }
        shared = divided(room.contracts.channels[name], {**offers, **absent})
        unseen += [Offer(min(one.rate_kbps, shared[stream])) for stream, one in absent.items()]
        own |= {stream: shared[stream] for stream in offers}
    if all(contract.channel == room.name for contract in contracts.values()):
        return {stream: Part(kbps) for stream, kbps in own.items()}
    sent = {stream: offered(stream, own[stream]) for stream in contracts}
    beside = {f" {place}": one for place, one in enumerate(unseen)}
    trunk = divided(room.contracts.channels[room.name], {**sent, **beside})
    return {stream: Part(own[stream], trunk[stream]) for stream in contracts}


def offer(
    tables: Tables,
    room: Room,
    contract: StreamContract,
    load: Load | float,
    own_kbps: float | None = None,
    by_rate: bool = False,
) -> Offer:
    """The stream's rate (after its own shedding, when `own_kbps` is given) and what it could give up."""
    if by_rate or not isinstance(load, Load):
        return _of_rate(load, own_kbps, contract)
    found = Offer(load.rate_kbps, load, sheds=bool(contract.lever_names))
    channel = room.contracts.channels[contract.channel]
    for name in contract.lever_names:
        facts = newest_facts(tables, contract.stream, name)
        found = lever(name).offered(found, contract, channel, facts, own_kbps)
    return found


def _load(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> Load | float:
    """What the stream offers: the load of its densest waiting batch, for its part is to hold each of them.

    Batches of less than half as many tuples as the mean have no say: what files take around so few would seem to be the
    stream's rate. Where nothing waits, its last offered rate.
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
    """What the last batch that was sent had offered; of one whose raw is gone, by what the ledger says it took."""
    last = _last_sent(tables, contract.stream)
    if last is not None and last.status == DONE and last.seconds_covered:
        return measure_load(tables, contract, last).rate_kbps
    return rate_on_record(tables, contract.stream)


def _last_known(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> float:
    """What a stream offers whose load cannot be found out: what it last did, by the ledger; of one that never sent, by
    the bits that its contract declares. Never less than that for being faulty."""
    known = rate_on_record(tables, contract.stream)
    bits = sum(attribute.declared_bits for attribute in contract.attributes)
    rates = [(b.rows or 0) / b.seconds_covered * bits / 1000.0 for b in batches if b.seconds_covered]
    return known or max(rates, default=0.0)


def _last_sent(tables: Tables, stream: str) -> Batch | None:
    return newest_batch(tables, stream, status=[DONE, RETIRED], rows=Between(1))


def rate_on_record(tables: Tables, stream: str) -> float:
    """What the ledger says the last batch that was sent had offered: it needs neither contract nor raw tuples."""
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

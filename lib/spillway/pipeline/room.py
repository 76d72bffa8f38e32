"""Each stream's part of the channels it goes through (3.3): all streams of a channel are planned together.

First every channel is divided among its own streams; then, where channels go into another one (`into`), what they
would send is divided again. `divide_by: proportional` is the text's: one drop rate for all. `utility` takes from
the streams whose next attribute costs least, weighed by what the stream is worth. Streams with nothing waiting count
with their last known rate, so that a quiet quarter of an hour gives no place away for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spillway.batch import DONE, RETIRED, Batch
from spillway.contracts import Channel, StreamContract
from spillway.errors import SpillwayError
from spillway.ledger import TOTAL
from spillway.levers.protocol import Load, Offer, Part, Room
from spillway.levers.shares import proportional_capacities, utility
from spillway.pipeline.facts import newest_facts
from spillway.registry import lever
from spillway.store.batches import load_batches
from spillway.store.files import column_bytes
from spillway.store.tables import Tables

OVERHEAD = ("seq",)
"""Columns that travel beside the attributes and are counted like them."""


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
    else:
        columns = [*OVERHEAD, *contract.names]
        files = tables.at("raw", contract.stream).files(batch_date=batch.batch_date, batch=batch.batch)
        measured = column_bytes(files, columns)
        widths = {name: measured[name] * 8.0 / rows for name in columns}
    return Load(widths, rows / batch.seconds_covered)


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
    given = rates
    if total > capacity and channel.divide_by == "utility":
        weights = {stream: offer.weight for stream, offer in offers.items()}
        steps = {stream: offer.steps for stream, offer in offers.items()}
        given = dict(utility(rates, steps, capacity, weights).capacities_kbps)
    free = capacity - sum(given.values())
    if free >= 0:
        # that of whole attributes that go, too
        each = {stream: rate / total if total else 1 / len(rates) for stream, rate in rates.items()}
        return {stream: kbps + free * each[stream] for stream, kbps in given.items()}
    # too few attributes to go (none, where nothing is trained yet): no part is more than there is all the same
    return dict(zip(given, proportional_capacities(list(given.values()), capacity), strict=True))


def parts(tables: Tables, room: Room, waiting: Mapping[str, Sequence[Batch]]) -> dict[str, Part]:
    """The parts of every stream that is planned with the room's channel."""
    contracts = {contract.stream: contract for contract in room.contracts.streams_of(room.name)}
    own: dict[str, float] = {}
    loads = {stream: _load(tables, one, waiting.get(stream, ())) for stream, one in contracts.items()}
    for name in sorted({contract.channel for contract in contracts.values()}):
        offers = {
            stream: offer(tables, contract, loads[stream])
            for stream, contract in contracts.items()
            if contract.channel == name
        }
        own |= divided(room.contracts.channels[name], offers)
    if all(contract.channel == room.name for contract in contracts.values()):
        return {stream: Part(kbps) for stream, kbps in own.items()}
    sent = {s: offer(tables, contract, loads[s], own[s]) for s, contract in contracts.items()}
    trunk = divided(room.contracts.channels[room.name], sent)
    return {stream: Part(own[stream], trunk[stream]) for stream in contracts}


def offer(
    tables: Tables, contract: StreamContract, load: Load | float, own_kbps: float | None = None
) -> Offer:
    """The stream's rate (after its own shedding, when `own_kbps` is given) and what it could give up."""
    if not isinstance(load, Load):
        return Offer(load if own_kbps is None else min(load, own_kbps))
    found = Offer(load.rate_kbps, load, (), contract.priority)
    for name in contract.lever_names:
        found = lever(name).offered(found, contract, newest_facts(tables, contract.stream, name), own_kbps)
    return found


def _load(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> Load | float:
    """What the stream offers over its waiting batches, by time; its last offered rate where there are none."""
    loads = [(measure_load(tables, contract, b), b.seconds_covered or 0.0) for b in batches if b.rows]
    seconds = sum(span for _, span in loads)
    if not seconds:
        return _last_rate(tables, contract)
    tuples = sum(load.tuples_per_second * span for load, span in loads)
    widths = {
        name: sum(load.widths_bits[name] * load.tuples_per_second * span for load, span in loads) / tuples
        for name in loads[-1][0].widths_bits
    }
    return Load(widths, tuples / seconds)


def _last_rate(tables: Tables, contract: StreamContract) -> float:
    """What the last batch that was sent had offered; of one whose raw is gone, by what the ledger says it took."""
    sent = [b for b in load_batches(tables, contract.stream) if b.status in (DONE, RETIRED) and b.rows]
    if not sent or not sent[-1].seconds_covered:
        return 0.0
    last = sent[-1]
    if last.status == DONE:
        return measure_load(tables, contract, last).rate_kbps
    rows = tables.at("ledger").rows(
        ["ordinal", "bytes_offered"],
        subject=contract.stream,
        batch=last.batch,
        unit="rows",
        dimension_kind=TOTAL,
    )
    final = max(rows.to_pylist(), key=lambda row: row["ordinal"], default=None)
    return final["bytes_offered"] * 8.0 / 1000.0 / last.seconds_covered if final else 0.0

"""What a channel trades: error against capacity, as its streams are now, and what a little more would buy.

Nothing is written. The loads are those of each stream's last batch whose raw is there (one whose raw is gone takes what
it sent last, and has no choice), what could cross in other ways is told by the levers (`Lever.offered`), and the
choice at every capacity is the plan's own (`levers.loss_curve`). What a plan makes of a batch differs a little: it
ranks window by window, and goes by what drafts came to.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.batch import DONE, HELD, RETIRED, Batch
from spillway.contracts import Contracts
from spillway.ledger import TOTAL
from spillway.levers.loss_curve import (
    MORE,
    LossPoint,
    NextPaid,
    at_capacity,
    capacities_of,
    curve_of_loss,
    dropping_rows_pct,
    pays_next,
)
from spillway.levers.protocol import Offer, Room
from spillway.store.batches import RATED, newest_batch
from spillway.store.tables import Between, Tables
from spillway.streams.capacity import measure_load, offer


@dataclass(frozen=True)
class Trade:
    """A channel: what is offered to it, the curve, the point in use, and what comes next."""

    channel: str
    streams: tuple[str, ...]
    offered_kbps: float
    in_use: LossPoint
    more: LossPoint
    next_paid: NextPaid | None
    curve: tuple[LossPoint, ...]

    @property
    def dropping_rows_pct(self) -> float:
        """What dropping rows at random would lose of every value instead."""
        return dropping_rows_pct(self.offered_kbps, self.in_use.capacity_kbps)


def trade(tables: Tables, contracts: Contracts, channel: str, points: int = 12) -> Trade | None:
    """The channel's trade; None where nothing is at hand to measure. `points` 0: no curve."""
    offers = channel_offers(tables, contracts, channel)
    offered = sum(one.rate_kbps for one in offers.values())
    if not offered:
        return None
    stated = contracts.channels[channel]
    capacity = stated.capacity_kbps
    in_use = at_capacity(offers, capacity, stated.divide_by)
    curve = curve_of_loss(offers, capacities_of(offers, capacity, points), stated.divide_by) if points else []
    return Trade(
        channel,
        tuple(offers),
        offered,
        in_use,
        at_capacity(offers, capacity * MORE, stated.divide_by),
        pays_next(offers, in_use) if in_use.loss_pct else None,
        tuple(curve),
    )


def channel_offers(tables: Tables, contracts: Contracts, channel: str) -> dict[str, Offer]:
    """What the streams of a channel offer, each by its last batch whose raw is at hand."""
    room = Room(channel, contracts, tables)
    found: dict[str, Offer] = {}
    for contract in contracts.streams_of(channel):
        if contract.channel != channel:
            continue
        batch = last_batch(tables, contract.stream)
        load = _last_sent(tables, contract.stream) if batch is None else measure_load(tables, contract, batch)
        found[contract.stream] = offer(tables, room, contract, load)
    return {stream: one for stream, one in found.items() if one.rate_kbps}


def last_batch(tables: Tables, stream: str) -> Batch | None:
    """The stream's last batch whose raw tuples and rate are there."""
    return newest_batch(tables, stream, status=HELD, rows=Between(1), seconds_covered=RATED)


def _last_sent(tables: Tables, stream: str) -> float:
    """The rate at which the stream's last batch crossed, as the ledger has it."""
    sent = newest_batch(tables, stream, status=[DONE, RETIRED], seconds_covered=RATED)
    if sent is None:
        return 0.0
    where = {"subject": stream, "batch": sent.batch, "unit": "rows", "dimension_kind": TOTAL}
    rows = tables.at("ledger").rows(["ordinal", "bytes_kept"], **where).to_pylist()
    final = max(rows, key=lambda row: int(row["ordinal"]), default=None)
    return final["bytes_kept"] * 8.0 / 1000.0 / (sent.seconds_covered or 1.0) if final else 0.0

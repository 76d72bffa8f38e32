"""Show what a channel trades: loss against capacity, and what a little more capacity would gain.

Nothing is written. The loads are those of each stream's last batch with rows in `raw`. If a stream has none, it counts
with the rate that it sent last, without a choice. The levers say which other treatments are possible (`Lever.offered`).
The choice at each capacity is made as in a plan (`levers.loss_curve`). The plan of a batch differs a little: it ranks
window by window, and uses measured drafts.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.batch import DONE, HELD, RETIRED, Batch
from spillway.contracts import Contracts
from spillway.ledger import TOTAL
from spillway.levers.loss_curve import (
    MORE,
    LossPoint,
    NextChange,
    best_next_change,
    curve_capacities,
    loss_at_capacity,
    loss_curve,
    row_drop_loss_pct,
)
from spillway.levers.protocol import CapacityGroup, Offer
from spillway.store.batches import RATED, newest_batch
from spillway.store.tables import Between, Tables
from spillway.streams.capacity import measure_load, offer


@dataclass(frozen=True)
class TradeOff:
    """A channel: the offered rate, the curve, the point in use, and the next gain."""

    channel: str
    streams: tuple[str, ...]
    offered_kbps: float
    in_use: LossPoint
    more: LossPoint
    next_paid: NextChange | None
    curve: tuple[LossPoint, ...]

    @property
    def dropping_rows_pct(self) -> float:
        """What dropping rows at random would lose of every value instead, in per cent."""
        return row_drop_loss_pct(self.offered_kbps, self.in_use.capacity_kbps)


def measure_trade_off(
    tables: Tables, contracts: Contracts, channel: str, points: int = 12, capacity_kbps: float | None = None
) -> TradeOff | None:
    """Return the channel's trade-off; None if there is nothing to measure.

    `points`: the number of points of the curve; 0 for no curve. `capacity_kbps`: the capacity in use (default: that of
    the channel; for a quota, its mean rate).
    """
    offers = channel_offers(tables, contracts, channel)
    offered = sum(one.rate_kbps for one in offers.values())
    if not offered:
        return None
    stated = contracts.channels[channel]
    capacity = stated.capacity_kbps if capacity_kbps is None else capacity_kbps
    in_use = loss_at_capacity(offers, capacity, stated.divide_by)
    curve = loss_curve(offers, curve_capacities(offers, capacity, points), stated.divide_by) if points else []
    return TradeOff(
        channel,
        tuple(offers),
        offered,
        in_use,
        loss_at_capacity(offers, capacity * MORE, stated.divide_by),
        best_next_change(offers, in_use) if in_use.loss_pct else None,
        tuple(curve),
    )


def channel_offers(tables: Tables, contracts: Contracts, channel: str) -> dict[str, Offer]:
    """Return what the streams of a channel offer, each by its last batch with rows in `raw`."""
    room = CapacityGroup(channel, contracts, tables)
    found: dict[str, Offer] = {}
    for contract in contracts.streams_of(channel):
        if contract.channel != channel:
            continue
        batch = last_batch(tables, contract.stream)
        load = _last_sent(tables, contract.stream) if batch is None else measure_load(tables, contract, batch)
        found[contract.stream] = offer(tables, room, contract, load)
    return {stream: one for stream, one in found.items() if one.rate_kbps}


def last_batch(tables: Tables, stream: str) -> Batch | None:
    """Return the stream's last batch with a known rate whose tuples are in `raw`."""
    return newest_batch(tables, stream, status=HELD, rows=Between(1), seconds_covered=RATED)


def _last_sent(tables: Tables, stream: str) -> float:
    """Return the rate at which the stream's last batch was sent, from the ledger."""
    sent = newest_batch(tables, stream, status=[DONE, RETIRED], seconds_covered=RATED)
    if sent is None:
        return 0.0
    where = {"subject": stream, "batch": sent.batch, "unit": "rows", "dimension_kind": TOTAL}
    rows = tables.at("ledger").rows(["ordinal", "bytes_kept"], **where).to_pylist()
    final = max(rows, key=lambda row: int(row["ordinal"]), default=None)
    return final["bytes_kept"] * 8.0 / 1000.0 / (sent.seconds_covered or 1.0) if final else 0.0

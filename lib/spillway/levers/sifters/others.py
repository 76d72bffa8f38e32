"""What the levers behind this one would lose for the same bytes, told by themselves."""

from __future__ import annotations

from spillway.batch import Batch
from spillway.levers.loss_curve import at_capacity
from spillway.levers.protocol import Lever, Offer, Room, Work
from spillway.registry import lever


def columns_lose_pct(room: Room, work: Work, batch: Batch) -> float:
    """What they would lose of a value on average, all rows sent; 100 where they cannot fit them."""
    load = work.loads[batch.batch]
    channel = room.contracts.channels[work.contract.channel]
    found = Offer(load.rate_kbps, load)
    for name, facts in work.behind.items():
        other: Lever = lever(name)
        found = other.offered(found, work.contract, channel, facts, None)
    point = at_capacity({work.contract.stream: found}, batch.allowed_kbps)
    return 100.0 if point.over_kbps > 0 else point.loss_pct

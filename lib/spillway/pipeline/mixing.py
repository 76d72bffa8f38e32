"""Mixed drafts: the first tuples of a batch are treated as in a finer plan that was too large, the rest as planned.

A plan treats whole attributes; what is left over may be most of what one attribute takes. Between a draft that fits and
one that does not, whose sizes L < capacity < H were both measured, the first share

    p = (capacity - L) / (H - L)

of the tuples may have the finer treatment: bytes and loss both lie on the line between those of the two drafts. So what
is lost follows what the channel lacks. Each mixed draft is measured as every other one, and narrows the interval in
which the share lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.engine.protocol import Engine
from spillway.pipeline.accounting import all_crossing
from spillway.pipeline.drafting import Drafts, draft
from spillway.pipeline.planning import WayDown
from spillway.store.tables import Tables

MOST_MIXTURES, MOST_TRIES = 2, 3
"""Larger drafts that are mixed with the fitting one, and drafts that are made to find the share of each."""
AIM = 0.98
"""How much of what is left a mixed draft aims to use."""


@dataclass(frozen=True)
class TooLarge:
    """A draft that did not fit: its plans, and the bytes of it that would have crossed."""

    way: WayDown
    bytes: int


def too_large(way: WayDown, drafts: Drafts) -> TooLarge:
    """Return what is known of a draft that does not fit, whose files are thrown away."""
    return TooLarge(way, _crossing(way, drafts))


def use_what_is_left(
    tables: Tables, engine: Engine, fitting: tuple[WayDown, Drafts], larger: Sequence[TooLarge]
) -> tuple[WayDown, Drafts]:
    """Return a draft that fits and loses less, mixed from the fitting one and a larger one; else the fitting one.

    The files of the drafts that are not returned are thrown away.
    """
    way, drafts = fitting
    if way.contract.width == "declared" or len(way.plans) != 1:
        return fitting
    capacity = sum(batch.allowed_kbps * 125.0 * (batch.seconds_covered or 0.0) for batch in way.batches)
    low = _crossing(way, drafts)
    if low > capacity:
        return fitting
    tries: list[tuple[float, int, TooLarge]] = []
    for other in larger:
        if other.bytes > capacity:
            mixed = way.plans[0].mixed(other.way.plans[0], (capacity - low) / (other.bytes - low))
            if mixed is not None:
                tries.append((max(mixed.lost_of(number) for number in way.numbers), len(tries), other))
    for _, _, finer in sorted(tries, key=lambda one: one[:2])[:MOST_MIXTURES]:
        fitting = _mixed_with(tables, engine, fitting, (way, low), finer, capacity)
    return fitting


def _mixed_with(
    tables: Tables,
    engine: Engine,
    fitting: tuple[WayDown, Drafts],
    coarser: tuple[WayDown, int],
    finer: TooLarge,
    capacity: float,
) -> tuple[WayDown, Drafts]:
    """Return the best of the fitting draft and the mixtures of two plans that are tried."""
    way, low = coarser
    (least, least_bytes), (most, most_bytes) = (0.0, low), (1.0, finer.bytes)
    for attempt in range(MOST_TRIES):
        share = least + (most - least) * AIM * (capacity - least_bytes) / max(1.0, most_bytes - least_bytes)
        if attempt and most < 1.0:
            # bytes need not lie on the line: a dictionary takes as much for half of the tuples
            share = min(share, (least + most) / 2.0)
        plan = way.plans[0].mixed(finer.way.plans[0], share)
        if plan is None or not plan.is_worth_a_draft(fitting[0].plans[0]):
            break
        found = replace(way, plans=(plan,), down=replace(way.down, decisions=(plan.decision,)))
        try:
            made = draft(tables, engine, found)
        except BaseException:
            fitting[1].discard()
            raise
        came = _crossing(found, made)
        if came > capacity or any(_exceeds(found, made, number) for number in found.numbers):
            made.discard()
            most, most_bytes = share, max(came, least_bytes + 1)
        else:
            fitting[1].discard()
            fitting = (found, made)
            least, least_bytes = share, came
    return fitting


def _exceeds(way: WayDown, drafts: Drafts, number: int) -> bool:
    """Whether one batch does not fit its own part, by the rate that is compared with it."""
    (batch,) = [one for one in way.batches if one.batch == number]
    kbps = all_crossing(drafts, number) * 8.0 / 1000.0 / (batch.seconds_covered or 1.0)
    return len(way.batches) == 1 and kbps > batch.allowed_kbps


def _crossing(way: WayDown, drafts: Drafts) -> int:
    return sum(all_crossing(drafts, number) for number in way.numbers)

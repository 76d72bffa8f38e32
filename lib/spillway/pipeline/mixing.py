"""Mix two plans of a batch: a finer plan, whose draft was too large, for the first tuples, and a plan that fits.

A plan treats whole attributes, so it may leave almost the bytes of one attribute unused. Take a draft that fits and one
that does not, with measured sizes L < capacity < H. The first share

    p = (capacity - L) / (H - L)

of the tuples can have the finer treatment. Bytes and loss are both interpolated linearly between the two drafts, so the
loss grows in proportion to the shortfall. Each mixed draft is measured like every other draft, and narrows the interval
of p.
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
"""The most larger drafts that are mixed with the fitting one, and the most drafts that are made for each of them."""
AIM = 0.98
"""The share of the unused capacity that a mixed draft aims to use."""


@dataclass(frozen=True)
class OversizedDraft:
    """A draft that did not fit: its plans, and the bytes that it would have sent."""

    way: WayDown
    bytes: int


def oversized_draft(way: WayDown, drafts: Drafts) -> OversizedDraft:
    """Return the plans and the bytes of a draft that does not fit; the caller deletes its files."""
    return OversizedDraft(way, _crossing(way, drafts))


def use_remaining_capacity(
    tables: Tables, engine: Engine, fitting: tuple[WayDown, Drafts], larger: Sequence[OversizedDraft]
) -> tuple[WayDown, Drafts]:
    """Return a draft that fits and loses less, mixed from the fitting draft and a larger one; else the fitting draft.

    The files of all other drafts are deleted.
    """
    way, drafts = fitting
    if way.contract.width == "declared" or len(way.plans) != 1:
        return fitting
    capacity = sum(batch.allowed_kbps * 125.0 * (batch.seconds_covered or 0.0) for batch in way.batches)
    low = _crossing(way, drafts)
    if low > capacity:
        return fitting
    tries: list[tuple[float, int, OversizedDraft]] = []
    for other in larger:
        if other.bytes > capacity:
            mixed = way.plans[0].mix(other.way.plans[0], (capacity - low) / (other.bytes - low))
            if mixed is not None:
                tries.append((max(mixed.loss_of(number) for number in way.numbers), len(tries), other))
    for _, _, finer in sorted(tries, key=lambda one: one[:2])[:MOST_MIXTURES]:
        fitting = _best_mixture(tables, engine, fitting, (way, low), finer, capacity)
    return fitting


def _best_mixture(
    tables: Tables,
    engine: Engine,
    fitting: tuple[WayDown, Drafts],
    coarser: tuple[WayDown, int],
    finer: OversizedDraft,
    capacity: float,
) -> tuple[WayDown, Drafts]:
    """Return the best of the fitting draft and the mixtures of the two plans."""
    way, low = coarser
    (least, least_bytes), (most, most_bytes) = (0.0, low), (1.0, finer.bytes)
    for attempt in range(MOST_TRIES):
        share = least + (most - least) * AIM * (capacity - least_bytes) / max(1.0, most_bytes - least_bytes)
        if attempt and most < 1.0:
            # bytes may not be linear: a dictionary takes the same bytes for half of the tuples
            share = min(share, (least + most) / 2.0)
        plan = way.plans[0].mix(finer.way.plans[0], share)
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
    """Return whether a batch that is sent alone exceeds its share of the channel, by the rate that checks compare."""
    (batch,) = [one for one in way.batches if one.batch == number]
    kbps = all_crossing(drafts, number) * 8.0 / 1000.0 / (batch.seconds_covered or 1.0)
    return len(way.batches) == 1 and kbps > batch.allowed_kbps


def _crossing(way: WayDown, drafts: Drafts) -> int:
    return sum(all_crossing(drafts, number) for number in way.numbers)

"""Planning: every stream of a room, place by place on their ways, before anything is applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spillway.batch import SET_ASIDE, Batch
from spillway.contracts import StreamContract
from spillway.errors import LiesElsewhere
from spillway.levers.protocol import Drafted, Load, Plan, Room, Work
from spillway.pipeline.facts import needed_facts, newest_facts
from spillway.pipeline.room import measure_load
from spillway.pipeline.stages import Down, SentColumns
from spillway.registry import columns_of, lever
from spillway.store.batches import load_batches
from spillway.store.tables import Tables


@dataclass(frozen=True)
class WayDown:
    """Some batches of a stream with the plans of all its levers, in order."""

    contract: StreamContract
    batches: tuple[Batch, ...]
    loads: Mapping[int, Load]
    plans: tuple[Plan, ...]
    down: Down

    @property
    def numbers(self) -> list[int]:
        return [batch.batch for batch in self.batches]


@dataclass(frozen=True)
class Again:
    """What an earlier draft of these batches told, where they are planned again."""

    aims: Mapping[int, float] = field(default_factory=dict)
    """By batch, the share of its part to aim at."""
    tried: Mapping[int, Mapping[int, tuple[Plan, Drafted]]] = field(default_factory=dict)
    """By ordinal of the lever and batch, its plan and what that came to."""
    fixed_kbps: Mapping[int, float] = field(default_factory=dict)
    """By batch, what crossed beside the columns of `transmitted`."""
    exact_widths: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """By batch, the bits per row of the columns that were sent exactly, which depend on the order of the rows."""
    fits: bool = False
    """Whether a draft that fits is at hand."""


def plan_all(
    room: Room,
    runs: Mapping[tuple[str, tuple[str, ...]], Sequence[Batch]],
    again: Again | None = None,
    loads: Mapping[str, Mapping[int, Load]] | None = None,
) -> list[WayDown]:
    """A way for the batches of every stream (and order of levers): all streams are planned together, place by place.

    A lever at the same place on the way of several streams plans for all of them at once. `loads`: by stream and batch,
    the loads that are known already.
    """
    tables: Tables = room.tables  # type: ignore[assignment]
    ways: list[WayDown] = []
    for (stream, _), batches in runs.items():
        contract = room.contracts.streams[stream]
        known = (loads or {}).get(stream, {})
        mine = {b.batch: known.get(b.batch) or measure_load(tables, contract, b) for b in batches}
        if again is not None:
            mine |= {n: replace(mine[n], fixed_kbps=kbps) for n, kbps in again.fixed_kbps.items()}
            for n, widths in again.exact_widths.items():
                mine[n] = replace(mine[n], widths_bits={**mine[n].widths_bits, **widths})
        days = sorted({batch.batch_date for batch in batches})
        raw = tables.at("raw", stream).stored(batch_date=days)
        stretches = tuple((batch.first_seq, batch.last_seq) for batch in batches)
        sent_columns = SentColumns(frozenset(["seq", *contract.names]), stretches)
        down = Down(raw, (), len(contract.attributes), sent_columns)
        ways.append(WayDown(contract, tuple(batches), mine, (), down))
    for ordinal in range(1, max((len(way.batches[0].levers) for way in ways), default=0) + 1):
        here = {
            i: way.batches[0].levers[ordinal - 1]
            for i, way in enumerate(ways)
            if len(way.batches[0].levers) >= ordinal
        }
        for name in sorted(set(here.values())):
            places = [i for i, other in here.items() if other == name]
            works = [_work(tables, ways[i], name, ordinal, again or Again()) for i in places]
            plans = lever(name).plan(room, works)
            for i, plan in zip(places, plans, strict=True):
                way = ways[i]
                down = replace(way.down, decisions=(*way.down.decisions, plan.decision))
                ways[i] = replace(way, plans=(*way.plans, plan), down=down)
    return ways


def _work(tables: Tables, way: WayDown, name: str, ordinal: int, again: Again) -> Work:
    contract, stream = way.contract, way.contract.stream
    if name not in contract.lever_names:
        numbers = ", ".join(map(str, way.numbers))
        raise LiesElsewhere(
            f"{stream}: batch {numbers} is pinned to the lever {name}, which its contract must list to shed it again, "
            f"got levers {', '.join(contract.lever_names) or 'none'}; list it, or leave the batch as it is"
        )
    days, levers = {batch.batch_date for batch in way.batches}, way.batches[0].levers
    mine = {batch.batch: batch for batch in way.batches}
    others = [
        batch
        for batch in load_batches(tables, stream, batch_date=days)
        if batch.levers == levers and batch.rows and batch.batch not in mine and batch.status != SET_ASIDE
    ]
    framed = tuple(sorted([*others, *way.batches], key=lambda batch: batch.batch))
    versions = {batch.models[name] for batch in framed if name in batch.models}
    loads = {
        batch.batch: way.plans[-1].offers_on(batch.batch) if way.plans else way.loads[batch.batch]
        for batch in way.batches
    }
    return Work(
        contract,
        needed_facts(tables, stream, name, versions),
        way.batches,
        framed,
        lambda day: way.down.before(ordinal, day),
        loads,
        {number: again.aims.get(number, 1.0) for number in way.numbers},
        again.tried.get(ordinal, {}),
        again.fits,
        (*(c for one in levers[: ordinal - 1] for c, _, _ in columns_of(one)), *contract.names),
        ordinal,
        {other: newest_facts(tables, stream, other) for other in levers[ordinal:]},
    )

"""The lever `attributes`: round or shed columns if a channel is too narrow, and recover them within an error bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, StreamContract
from spillway.levers.attributes.apply import SENT_SYNOPSIS, SYNOPSIS, Shedding
from spillway.levers.attributes.capacity.crossings import choices_of
from spillway.levers.attributes.facts import Learned
from spillway.levers.attributes.plan import AttributePlan, shedding
from spillway.levers.attributes.policy import (
    Choosing,
    choosing,
    decide_stages,
    measures_now,
    own_settings,
    prefixes,
    with_fewest_bytes,
)
from spillway.levers.attributes.scheme import SCHEMES, load_runs
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT
from spillway.levers.knapsack import Alternative
from spillway.levers.protocol import (
    Facts,
    Lesson,
    Lever,
    Noticed,
    Offer,
    Part,
    Picture,
    Plan,
    Room,
    Split,
    Told,
    Views,
    Work,
)


class Attributes(Lever):
    """The lever that rounds and sheds columns."""

    name = "attributes"
    needs_training = True
    aside_tables = (SYNOPSIS, SENT_SYNOPSIS)
    record_tables = (SCHEMES,)

    def train(self, lesson: Lesson) -> Split | None:
        from spillway.levers.attributes.training.lesson import learn

        return learn(lesson)

    def offered(
        self,
        offer: Offer,
        contract: StreamContract,
        channel: Channel,
        facts: Facts | None,
        own_kbps: float | None,
    ) -> Offer:
        if facts is None or offer.load is None:
            return offer
        learned = Learned.from_facts(facts)
        # the contract may have lost attributes, or protected them, since training
        measures = measures_now(contract, learned)
        rests_on = choosing(contract, channel, learned, offer.load, measures)
        ranking = learned.ranked(measures, own_settings(contract).rank_by)
        items = tuple(ways_out(rests_on, ranking))
        if own_kbps is None:
            return replace(offer, items=(*offer.items, *items))
        sent = decide_stages(rests_on, Part(own_kbps), ranking).planned_kbps
        return replace(offer, rate_kbps=min(sent, offer.rate_kbps), items=())

    def plan(self, room: Room, work: Sequence[Work]) -> Sequence[Plan]:
        channels = room.contracts.channels
        return [AttributePlan(one, channels[one.contract.channel], room.tables, one.framed) for one in work]

    def decided(
        self,
        contract: StreamContract,
        batches: Sequence[Batch],
        facts: Mapping[int, Facts],
        tables: Views,
    ) -> Shedding:
        learned = {version: Learned.from_facts(one) for version, one in facts.items()}
        runs = load_runs(tables, contract.stream, [batch.batch for batch in batches])
        found = shedding(contract, runs, learned, batches)
        days = sorted({batch.batch_date for batch in batches})
        synopses = tuple(
            tables.at(table).stored("frame", stream=contract.stream, batch_date=days)
            for table in self.aside_tables
        )
        # the destination has the synopses that were sent, and must request those that stay at the source
        return replace(found, synopses=synopses, held_here=tables.at(SYNOPSIS).exists)

    def stored(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        numbers = [batch.batch for batch in batches]
        found: dict[tuple[int, str], int] = {}
        for table in self.aside_tables:
            rows = tables.at(table).rows(
                ["batch", "attribute", "entries"],
                stream=contract.stream,
                batch_date=sorted({batch.batch_date for batch in batches}),
                batch=numbers,
            )
            for row in rows.to_pylist():
                place = (row["batch"], row["attribute"])
                found[place] = found.get(place, 0) + row["entries"]
        return found

    def absent(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        rows = tables.at(SYNOPSIS).rows(
            ["batch", "attribute", "shed_values"],
            stream=contract.stream,
            batch_date=sorted({batch.batch_date for batch in batches}),
            batch=[batch.batch for batch in batches],
        )
        found: dict[tuple[int, str], int] = {}
        for row in rows.to_pylist():
            place = (row["batch"], row["attribute"])
            found[place] = found.get(place, 0) + row["shed_values"]
        return found

    def with_fewest_bytes(self, contract: StreamContract, exact: bool) -> StreamContract | None:
        return with_fewest_bytes(contract, exact)

    def inexact_attributes(self, contract: StreamContract) -> frozenset[str]:
        from spillway.levers.attributes.policy import inexact_names

        return inexact_names(contract)

    def whole_bound_pct(self, facts: Facts | None) -> float:
        rate = (
            LOOSEST_PCT if facts is None else Learned.from_facts(facts).category.get("rate_pct", LOOSEST_PCT)
        )
        return min(float(rate), LOOSEST_PCT)

    def noticed(
        self,
        contract: StreamContract,
        facts: Facts,
        edge: Callable[[Sequence[str], int], pa.Table],
    ) -> list[Noticed]:
        from spillway.levers.attributes.training.lesson import noticed

        return noticed(contract, facts, edge)

    def told(
        self, contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
    ) -> Told | None:
        from spillway.levers.attributes.explain import told

        return told(contract, attribute, facts, tables)

    def pictures(self, contract: StreamContract, facts: Facts | None, tables: Views) -> Iterable[Picture]:
        from spillway.levers.attributes.explain import pictures

        return pictures(contract, facts, tables)


def ways_out(rests_on: Choosing, ranking: Sequence[str]) -> Iterator[tuple[Alternative, ...]]:
    """Yield the alternatives of a stream, in kbps.

    With `plan: prefix` (Ahuja 2006) there is one choice: how many attributes are shed. Otherwise there is one choice
    per attribute.
    """
    if rests_on.settings.plan == "prefix":
        yield prefixes(rests_on, ranking)
        return
    kbps, rate = rests_on.bytes_to_kbps, rests_on.load.tuples_per_second
    for ways, choices in choices_of(rests_on.offered, rests_on.worths(ranking), rests_on.terms):
        yield tuple(
            Alternative(
                one.crosses * kbps,
                one.cost if rests_on.terms.minimize == "error" else (one.cost[0] * kbps, *one.cost[1:]),
                way.option.attribute,
                way.name,
                way.loss,
                rate,
                one.last_resort,
                one.divisible,
            )
            for way, one in zip(ways, choices, strict=True)
        )


LEVER = Attributes()

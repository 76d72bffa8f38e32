"""The lever `attributes`: columns are rounded or shed where a channel is too narrow, and given back in a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.levers.attributes.apply import SYNOPSIS, Shedding
from spillway.levers.attributes.facts import Learned
from spillway.levers.attributes.option import of_way
from spillway.levers.attributes.plan import AttributePlan, shedding
from spillway.levers.attributes.policy import decide, measures_of, own_settings
from spillway.levers.attributes.schemes import SCHEMES, load_runs
from spillway.levers.attributes.threshold.categories import criticality_weight
from spillway.levers.protocol import (
    Fact,
    Facts,
    Lesson,
    Lever,
    Noticed,
    Offer,
    Picture,
    Plan,
    Room,
    Told,
    Views,
    Work,
)
from spillway.levers.shares import Step


class Attributes(Lever):
    """Sheds columns."""

    name = "attributes"
    needs_training = True
    aside_tables = (SYNOPSIS,)
    record_tables = (SCHEMES,)

    def train(self, lesson: Lesson) -> list[Fact] | None:
        from spillway.levers.attributes.training.lesson import learn

        return learn(lesson)

    def offered(
        self, offer: Offer, contract: StreamContract, facts: Facts | None, own_kbps: float | None
    ) -> Offer:
        if facts is None or offer.load is None:
            return offer
        learned = Learned.from_facts(facts)
        # the contract may have lost attributes, or protected them, since training
        options = {name: learned.options[name] for name in measures_of(contract, learned)}
        ranking = learned.ranked(list(options))
        gone: set[str] = set()
        rate = offer.rate_kbps
        if own_kbps is not None:
            decision = decide(own_settings(contract), options, offer.load, own_kbps, ranking)
            gone, rate = set(decision.scheme), decision.planned_kbps
        steps = []
        for name in ranking:
            shed = of_way(options[name], "shed")
            kbps = offer.load.widths_bits[name] * offer.load.tuples_per_second / 1000.0
            if shed is not None and name not in gone and kbps > 0:
                steps.append(Step(name, kbps, shed.mean_error_pct))
        weight = offer.weight * criticality_weight(learned.category.get("criticality"))
        return replace(offer, rate_kbps=rate, steps=(*offer.steps, *steps), weight=weight)

    def plan(self, room: Room, work: Sequence[Work]) -> Sequence[Plan]:
        return [AttributePlan(one, room.tables, one.framed) for one in work]

    def decided(
        self,
        contract: StreamContract,
        batches: Sequence[Batch],
        facts: Mapping[int, Facts],
        tables: Views,
    ) -> Shedding:
        learned = {version: Learned.from_facts(one) for version, one in facts.items()}
        runs = load_runs(tables, contract.stream, [batch.batch for batch in batches])
        found = shedding(contract.names, runs, learned, batches)
        days = sorted({batch.batch_date for batch in batches})
        synopsis = tables.at(SYNOPSIS).stored("frame", stream=contract.stream, batch_date=days)
        return replace(found, synopsis=synopsis)

    def stored(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        numbers = [batch.batch for batch in batches]
        rows = tables.at(SYNOPSIS).rows(
            ["batch", "attribute", "entries"],
            stream=contract.stream,
            batch_date=sorted({batch.batch_date for batch in batches}),
            batch=numbers,
        )
        found: dict[tuple[int, str], int] = {}
        for row in rows.to_pylist():
            place = (row["batch"], row["attribute"])
            found[place] = found.get(place, 0) + row["entries"]
        return found

    def noticed(
        self,
        contract: StreamContract,
        facts: Facts,
        edge: Callable[[Sequence[str], int], pa.Table],
    ) -> list[Noticed]:
        from spillway.levers.attributes.training.noticed import noticed

        return noticed(contract, facts, edge)

    def told(
        self, contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
    ) -> Told | None:
        from spillway.levers.attributes.told import told

        return told(contract, attribute, facts, tables)

    def pictures(self, contract: StreamContract, facts: Facts | None, tables: Views) -> Iterable[Picture]:
        from spillway.levers.attributes.told import pictures

        return pictures(contract, facts, tables)


LEVER = Attributes()

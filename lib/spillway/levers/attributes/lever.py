"""The lever `attributes`: round or shed columns if a channel is too narrow, and recover them within an error bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, StreamContract
from spillway.levers.attributes.apply import SENT_SYNOPSIS, SYNOPSIS, AttributeDecision
from spillway.levers.attributes.capacity.treatments import knapsack_choices
from spillway.levers.attributes.facts import CATEGORY, TrainedFacts
from spillway.levers.attributes.plan import AttributePlan, attribute_decision
from spillway.levers.attributes.policy import (
    DecisionInputs,
    decide_stages,
    decision_inputs,
    measures_now,
    own_settings,
    prefix_alternatives,
    with_fewest_bytes,
)
from spillway.levers.attributes.scheme import SCHEMES, destination_rows, load_runs
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT
from spillway.levers.knapsack import Alternative
from spillway.levers.protocol import (
    CapacityGroup,
    CapacityShare,
    Drift,
    Facts,
    Lever,
    LeverExplanation,
    Offer,
    Picture,
    Plan,
    Split,
    TrainingInput,
    Views,
    Work,
)


class Attributes(Lever):
    """The lever that rounds and sheds columns."""

    name = "attributes"
    needs_training = True
    tables_at_source = (SYNOPSIS, SENT_SYNOPSIS)
    record_tables = (SCHEMES,)

    def train(self, lesson: TrainingInput) -> Split | None:
        from spillway.levers.attributes.training.train import train_stream

        return train_stream(lesson)

    def update_offer(
        self,
        offer: Offer,
        contract: StreamContract,
        channel: Channel,
        facts: Facts | None,
        own_kbps: float | None,
    ) -> Offer:
        if facts is None or offer.load is None:
            return offer
        learned = TrainedFacts.from_facts(facts)
        # the contract may have lost attributes, or protected them, since training
        measures = measures_now(contract, learned)
        rests_on = decision_inputs(contract, channel, learned, offer.load, measures)
        ranking = learned.ranked_measures(measures, own_settings(contract).rank_by)
        items = tuple(knapsack_items(rests_on, ranking))
        if own_kbps is None:
            return replace(offer, items=(*offer.items, *items))
        sent = decide_stages(rests_on, CapacityShare(own_kbps), ranking).planned_kbps
        return replace(offer, rate_kbps=min(sent, offer.rate_kbps), items=())

    def plan(self, room: CapacityGroup, work: Sequence[Work]) -> Sequence[Plan]:
        channels = room.contracts.channels
        return [AttributePlan(one, channels[one.contract.channel], room.tables, one.framed) for one in work]

    def load_decision(
        self,
        contract: StreamContract,
        batches: Sequence[Batch],
        facts: Mapping[int, Facts],
        tables: Views,
    ) -> AttributeDecision:
        learned = {version: TrainedFacts.from_facts(one) for version, one in facts.items()}
        runs = load_runs(tables, contract.stream, [batch.batch for batch in batches])
        found = attribute_decision(contract, runs, learned, batches)
        days = sorted({batch.batch_date for batch in batches})
        synopses = tuple(
            tables.at(table).stored_files("frame", stream=contract.stream, batch_date=days)
            for table in self.tables_at_source
        )
        # the destination has the synopses that were sent, and must request those that stay at the source
        return replace(found, synopses=synopses, held_here=tables.at(SYNOPSIS).exists)

    def count_stored_corrections(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        numbers = [batch.batch for batch in batches]
        found: dict[tuple[int, str], int] = {}
        for table in self.tables_at_source:
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

    def count_absent_values(
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

    def destination_records(self, batch: Batch, tables: Views) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {SCHEMES: destination_rows(batch, load_runs(tables, batch.stream, [batch.batch]))}

    def with_fewest_bytes(self, contract: StreamContract, exact: bool) -> StreamContract | None:
        return with_fewest_bytes(contract, exact)

    def inexact_attributes(self, contract: StreamContract) -> frozenset[str]:
        from spillway.levers.attributes.policy import inexact_names

        return inexact_names(contract)

    def loss_at_bound_pct(self, facts: Facts | None) -> float:
        category = None if facts is None else facts.value(CATEGORY)
        return min(float((category or {}).get("rate_pct", LOOSEST_PCT)), LOOSEST_PCT)

    def detect_drift(
        self,
        contract: StreamContract,
        facts: Facts,
        edge: Callable[[Sequence[str], int], pa.Table],
    ) -> list[Drift]:
        from spillway.levers.attributes.training.train import detect_drift

        return detect_drift(contract, facts, edge)

    def explain(
        self, contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
    ) -> LeverExplanation | None:
        from spillway.levers.attributes.explain import explain_attribute

        return explain_attribute(contract, attribute, facts, tables)

    def pictures(self, contract: StreamContract, facts: Facts | None, tables: Views) -> Iterable[Picture]:
        from spillway.levers.attributes.explain import draw_charts

        return draw_charts(contract, facts, tables)


def knapsack_items(rests_on: DecisionInputs, ranking: Sequence[str]) -> Iterator[tuple[Alternative, ...]]:
    """Yield the alternatives of a stream, in kbps.

    With `plan: prefix` (Ahuja 2006) there is one choice: how many attributes are shed. Otherwise there is one choice
    per attribute.
    """
    if rests_on.settings.plan == "prefix":
        yield prefix_alternatives(rests_on, ranking)
        return
    kbps, rate = rests_on.bytes_to_kbps, rests_on.load.tuples_per_second
    for ways, choices in knapsack_choices(rests_on.offered_options, rests_on.worths(ranking), rests_on.terms):
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

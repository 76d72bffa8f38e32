"""The lever `sifters`: if rows do not fit, it sheds first the rows whose loss harms the queries least."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, StreamContract
from spillway.levers.dropped_rows import DroppedRows
from spillway.levers.knapsack import Alternative
from spillway.levers.protocol import (
    CapacityGroup,
    Decision,
    Drift,
    Fact,
    Facts,
    Lever,
    LeverExplanation,
    MinedEntry,
    Offer,
    OpenQuestion,
    Picture,
    Plan,
    TrainingInput,
    Views,
    Work,
)
from spillway.levers.sifters.apply import ASIDE
from spillway.levers.sifters.record import SIFTERS

STEPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
"""The shares of the rows that the lever offers to the planning of a capacity group."""


class SifterLever(Lever):
    """The lever that sheds rows."""

    name = "sifters"
    needs_training = True
    sheds_rows = True
    tables_at_source = (ASIDE,)
    record_tables = (SIFTERS,)

    def train(self, lesson: TrainingInput) -> list[Fact] | None:
        from spillway.levers.sifters.learn import train

        return train(lesson)

    def update_offer(
        self,
        offer: Offer,
        contract: StreamContract,
        channel: Channel,
        facts: Facts | None,
        own_kbps: float | None,
    ) -> Offer:
        if offer.load is None:
            return offer
        settings = contract.lever_settings("sifters")
        load = offer.load
        if settings.rows_per_second is not None and load.tuples_per_second > settings.rows_per_second:
            load = load.for_share_of_rows(settings.rows_per_second / load.tuples_per_second)
            offer = replace(offer, rate_kbps=min(offer.rate_kbps, load.rate_kbps), load=load)
        if own_kbps is not None:
            return replace(offer, rate_kbps=min(offer.rate_kbps, own_kbps))
        if contract.lever_names != (self.name,):
            return offer  # the other levers offer alternatives for the same bytes: do not count them twice
        return replace(
            offer,
            items=(*offer.items, row_alternatives(contract, facts, offer.rate_kbps, load.tuples_per_second)),
        )

    def plan(self, room: CapacityGroup, work: Sequence[Work]) -> Sequence[Plan]:
        from spillway.levers.sifters.plan import SifterPlan

        return [SifterPlan(one, room) for one in work]

    def load_decision(
        self, contract: StreamContract, batches: Sequence[Batch], facts: Mapping[int, Facts], tables: Views
    ) -> Decision:
        from spillway.levers.sifters.apply import SifterDecision
        from spillway.levers.sifters.record import sifted_batches

        found = sifted_batches(tables, contract, batches)
        aside = tables.at(ASIDE, contract.stream)
        days = sorted({batch.batch_date for batch in batches})
        lies = aside.exists and any(one.keep_at_source for one in found)
        return SifterDecision(
            found, contract.names, aside_rows=aside.stored_files(batch_date=days) if lies else None
        )

    def dropped_rows(self, tables: Views, stream: str, batches: Sequence[int]) -> Mapping[int, DroppedRows]:
        from spillway.levers.sifters.record import dropped_rows

        return dropped_rows(tables, stream, batches)

    def doubts(
        self, contract: StreamContract, edge: Callable[[Sequence[str], int], pa.Table]
    ) -> list[OpenQuestion]:
        from spillway.levers.sifters.unmatched_conditions import unmatched_conditions

        return [
            OpenQuestion(one.sentence, one.remedy)
            for one in unmatched_conditions(contract, self._last_rows(contract, edge))
        ]

    def detect_drift(
        self, contract: StreamContract, facts: Facts, edge: Callable[[Sequence[str], int], pa.Table]
    ) -> list[Drift]:
        return [
            Drift(
                "every_condition_matches_something", "0 rows", "at least 1 row",
                f"{contract.stream}: {one.sentence}; {one.remedy}",
            )
            for one in self.doubts(contract, edge)
        ]  # fmt: skip

    @staticmethod
    def _last_rows(contract: StreamContract, edge: Callable[[Sequence[str], int], pa.Table]) -> pa.Table:
        """Return the last rows, as many as training reads, with the attributes of the conditions."""
        from spillway.levers.sifters.parsed_queries import ParsedQueries

        settings = contract.lever_settings("sifters")
        return edge(ParsedQueries.of(settings, contract).columns, settings.sample.tuples)

    def mine_entry(
        self, contract: StreamContract, statements: Sequence[tuple[str, float]]
    ) -> MinedEntry | None:
        from spillway.levers.sifters.mine import build_entry

        return build_entry(contract, statements)

    def explain(
        self, contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
    ) -> LeverExplanation | None:
        from spillway.levers.sifters.explain import explain_rows

        return explain_rows(contract, attribute, facts, tables)

    def pictures(self, contract: StreamContract, facts: Facts | None, tables: Views) -> Iterable[Picture]:
        from spillway.levers.sifters.explain import row_pictures

        return row_pictures(contract, facts, tables)


def row_alternatives(
    contract: StreamContract, facts: Facts | None, rate_kbps: float, rows_per_second: float
) -> tuple[Alternative, ...]:
    """Return the shares of its rows that a stream may send, each with its kbps and its cost.

    The loss is the share of the queries' results that is lost, in %. The cost is the loss times the values per second
    and the stream's priority.
    """
    from spillway.levers.sifters.configure import configure_filter
    from spillway.levers.sifters.learn import learned_regions

    settings = contract.lever_settings("sifters")
    regions = learned_regions(contract, facts)
    values = rows_per_second * len(contract.attributes)
    found = []
    for share in STEPS:
        lost = 100.0 * (1.0 - share)
        if regions is not None and share < 1.0:
            outcome = configure_filter(regions.worth(), share, 0.0, settings.fairness, regions.base.share)
            share, lost = outcome.kept_share, 100.0 * (1.0 - outcome.quality)
        crosses = rate_kbps * share
        cost = (lost * values * contract.priority, 1.0 - share, crosses)
        found.append(Alternative(crosses, cost, "rows", f"{share:.0%} sent", lost, values, divisible=True))
    return tuple(dict.fromkeys(found))


LEVER = SifterLever()

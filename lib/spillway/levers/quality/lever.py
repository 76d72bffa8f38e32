"""The lever `quality`: queries share a capacity, report their coverage, and leave out portions on overload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.contracts.fields import Broken
from spillway.contracts.workload import Workload
from spillway.ledger import LedgerRow
from spillway.levers.protocol import CapacityGroup, LeverExplanation, Picture, Views
from spillway.levers.quality.checks import EXAMINED_ANSWER, check_answer
from spillway.levers.quality.decision import QueryDecision, tally_window
from spillway.levers.quality.overload import COVERAGE
from spillway.levers.quality.room_plan import LEVER_NAME, RoomRules, WindowShare, plan_room, room_rules
from spillway.levers.quality.scaled_answer import Ranges
from spillway.levers.quality.settings import QualitySettings
from spillway.levers.quality.sources import NumbersBefore, last_numbers, numbers_before, source_records
from spillway.levers.windows import ReadColumns, SqlQuery, Window, WindowLever, WindowPlan, WindowWork


def ranges_of(stream: StreamContract) -> Ranges:
    """Return the range of values of each attribute with a rule of kind `range` that has both ends and action `fail`."""
    said = [one for one in stream.checked_rules if one.kind == "range" and one.action == "fail"]
    return {
        name.lower(): (float(one.least), float(one.most))
        for one in said
        for name in one.attributes
        if all(isinstance(end, int | float) for end in (one.least, one.most))
    }


class QueryPlan(WindowPlan):
    """The plan of one query: the share of the capacity that each of its windows gets."""

    def __init__(
        self,
        work: WindowWork,
        room: str,
        rules: RoomRules,
        shares: Mapping[int, WindowShare],
        ranges: Ranges,
        before: NumbersBefore,
    ) -> None:
        self.work, self.room, self.rules, self.shares, self.ranges = work, room, rules, shares, ranges
        self.before = before
        self.settings = rules.queries[work.contract.subject]

    @property
    def decision(self) -> QueryDecision:
        contract = self.work.contract
        inputs, columns = tuple(contract.inputs), self.work.columns
        return QueryDecision(
            contract.subject,
            inputs,
            self.settings,
            self.shares,
            columns,
            self.ranges,
            self.before,
            self.work.losses,
        )

    def account(self, window: Window, results: int, counts: Mapping[str, int]) -> Iterable[LedgerRow]:
        share = self.shares[window.window]
        place = (window.scope, window.subject, window.window, window.day, LEVER_NAME, self.work.ordinal)
        shed = len(share.offered) - len(share.kept)
        reason = "" if not shed else f"too little room: {self.rules.policy}"
        if share.offered and not share.kept:
            reason += "; others were given all of its slice"
        owed = sorted(
            {one.stream for one in set(share.offered) - set(share.kept)} & set(self.settings.must_keep)
        )
        if owed:
            reason += f"; also of {', '.join(owed)}, which must be kept"
        yield LedgerRow(
            *place,
            "batches",
            offered=len(share.offered),
            kept=len(share.kept),
            shed=shed,
            lost=shed,
            reason=reason,
            bytes_offered=sum(one.size for one in share.offered),
            bytes_kept=sum(one.size for one in share.kept),
            seconds=counts.get("microseconds", 0) / 1e6,
        )
        offered, kept = (sum(one.tuples for one in some) for some in (share.offered, share.kept))
        yield LedgerRow(
            *place,
            "rows",
            offered=offered,
            kept=kept,
            shed=offered - kept,
            lost=offered - kept,
            reason=reason,
        )

    def records(
        self, window: Window, results: int, counts: Mapping[str, int]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        share = self.shares[window.window]
        losses = self.work.losses.get(window.window, {})
        inputs = tuple(dict.fromkeys(self.work.contract.inputs))
        found = tally_window(self.settings, inputs, share, losses, counts, window)
        arrived, kept = (sum(one.tuples for one in some) for some in (share.offered, share.kept))
        first = arrived if share.arrived_first is None else share.arrived_first
        produced = max(round(sum(one.produced for one in found.sources)), arrived)
        row = {
            "subject": window.subject,
            "window": window.window,
            "batch_date": window.day,
            "capacity_group": self.room,
            "slice": share.slice,
            "from_time": window.from_time,
            "to_time": window.to_time,
            "policy": self.rules.policy,
            "capacity": share.capacity,
            "weight": share.weight,
            "priority": self.settings.priority,
            "floor": self.settings.floor,
            "sic": found.sic,
            "relative": found.is_relative,
            "portions_offered": len(share.offered),
            "portions_kept": len(share.kept),
            "produced": produced,
            "arrived": arrived,
            "arrived_first": first,
            "late": max(0, arrived - first),
            "lost": produced - arrived,
            "tuples_kept": kept,
            "tuples_shed": arrived - kept,
            "bytes_offered": sum(one.size for one in share.offered),
            "bytes_kept": sum(one.size for one in share.kept),
            "cost": share.cost,
            "cost_offered": share.cost_offered,
            "rows": results,
            "results": len(self.settings.results(window.subject)),
            "seconds": counts.get("microseconds", 0) / 1e6,
            "sources": source_records(counts) or None,
            "last_numbers": last_numbers(counts) if self.settings.numbered else None,
            "updated_at": utc_now(),
        }
        return {COVERAGE: [row]}


class QualityLever(WindowLever):
    """The lever that computes queries within the capacity of their room."""

    name = LEVER_NAME
    results_table = "results"
    record_tables = (COVERAGE,)
    examined = EXAMINED_ANSWER
    portioned = True
    slides = True

    def portion_tuples(self, contract: Workload) -> int | None:
        return contract.lever_settings(LEVER_NAME).portion_tuples

    def capacity_problems(self, contract: Workload, others: Sequence[Workload]) -> Iterable[Broken]:
        settings = [
            one.lever_settings(LEVER_NAME) for one in (contract, *others) if LEVER_NAME in one.lever_names
        ]
        capacity = next(
            (one.capacity.tuples for one in settings if one.capacity and one.capacity.tuples), None
        )
        portion = settings[0].portion_tuples
        if capacity is not None and portion is not None and portion > capacity:
            yield (
                "portion_tuples",
                f"be at most {capacity:g}, the capacity of its group in tuples, because a larger portion never fits",
                portion,
                f"write e.g. {max(1, int(capacity / 10))}, or raise the capacity",
            )

    def check_work(self, work: WindowWork, columns: Callable[[SqlQuery], pa.Schema]) -> None:
        contract = work.contract
        settings: QualitySettings = contract.lever_settings(LEVER_NAME)
        query = QueryDecision(contract.subject, tuple(contract.inputs), settings, {}, work.columns)
        query.check_sources()
        for result in query.result_steps:
            query.check_names(columns(query.result_query((), result)).names)

    def plan_windows(self, room: CapacityGroup, work: Sequence[WindowWork]) -> Sequence[WindowPlan]:
        rules = room_rules(room)
        shares = plan_room(room, work, rules)
        first = {one.contract.inputs[0] for one in work}
        ranges = {stream: ranges_of(room.contracts.stream(stream)) for stream in first}
        return [
            QueryPlan(
                one,
                room.name,
                rules,
                {w.window: shares[one.contract.subject, w.window] for w in one.windows},
                ranges[one.contract.inputs[0]],
                numbers_before(room.tables, one.contract.subject, one.windows, one.contract.window.overlap)
                if rules.queries[one.contract.subject].needs_previous_window
                else NumbersBefore(),
            )
            for one in work
        ]

    def examine(
        self,
        contract: Workload,
        room: CapacityGroup,
        window: Window,
        results: pa.Table,
        inputs: Mapping[str, ReadColumns] | None,
    ) -> Mapping[str, Any]:
        return check_answer(results)

    def explain(self, contract: Workload, tables: Views) -> LeverExplanation | None:
        from spillway.levers.quality.explain import explain_query

        return explain_query(contract, tables)

    def pictures(self, contract: Workload, tables: Views) -> Iterable[Picture]:
        from spillway.levers.quality.explain import query_pictures

        return query_pictures(contract, tables)


LEVER = QualityLever()

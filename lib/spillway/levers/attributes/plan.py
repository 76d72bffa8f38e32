"""The plan for a stream's batches: their runs, planned in order, what is recorded of them, and what they come to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from spillway.batch import Batch
from spillway.ledger import TOTAL, LedgerRow
from spillway.levers.attributes.apply import SYNOPSIS, Shedding
from spillway.levers.attributes.facts import Learned
from spillway.levers.attributes.planner import plan_batch
from spillway.levers.attributes.policy import policy_of
from spillway.levers.attributes.scheme import Run, Runs
from spillway.levers.attributes.schemes import SCHEMES, load_runs, scheme_row, scheme_rows, state_before
from spillway.levers.pieces import frame_parts
from spillway.levers.protocol import Drafted, Load, Part, Plan, Views, Work

HITS_UP_TO_ROWS = 300_000
"""Batches up to this size have every window ranked, to count hits; larger ones only those that are evaluated."""


class AttributePlan(Plan):
    """What is kept, rounded and shed of a stream's batches."""

    def __init__(self, work: Work, tables: Views, framed: Sequence[Batch]) -> None:
        """`framed`: every batch that may share a frame with these, themselves included."""
        self.work, self.contract, self.framed = work, work.contract, framed
        self.learned = {version: Learned.from_facts(facts) for version, facts in work.facts.items()}
        self.runs: dict[int, list[Run]] = {}
        self.states: dict[int, Mapping[str, Any]] = {}
        rows = scheme_rows(tables, self.contract.stream)
        state: Mapping[str, Any] | None = None
        for previous, batch in zip([None, *work.batches], work.batches, strict=False):
            # batches without rows leave no state; those of others' runs in between do
            between = previous is not None and any(
                previous.batch < row["batch"] < batch.batch for row in rows
            )
            if previous is None or between:
                state = state_before(rows, batch.batch)
            policy = policy_of(
                self.contract,
                self.learned[batch.models["attributes"]],
                work.loads[batch.batch],
                Part(batch.capacity_kbps or 0.0, batch.trunk_kbps),
                work.aims[batch.batch],
                hits=(batch.rows or 0) <= HITS_UP_TO_ROWS,
            )
            self.runs[batch.batch], state = plan_batch(
                work.before(batch.batch_date),
                batch.first_seq,
                batch.last_seq,
                batch.first_seq if batch.frame_origin is None else batch.frame_origin,
                batch.frame_tuples,
                policy,
                state,
            )
            self.states[batch.batch] = state
        mine = {batch.batch for batch in work.batches}
        others = [batch.batch for batch in framed if batch.batch not in mine]
        self._others = load_runs(tables, self.contract.stream, others)

    @cached_property
    def decision(self) -> Shedding:
        runs = Runs(tuple(run for found in self.runs.values() for run in found)) + self._others
        return shedding(self.contract.names, runs, self.learned, self.framed)

    def runs_of(self, batch: int) -> Runs:
        """The runs of one batch."""
        return Runs(tuple(self.runs[batch]))

    def offers_on(self, batch: int) -> Load:
        runs, load = self.runs[batch], self.work.loads[batch]
        # the widths of what is rounded are known when it is written: the rate is right, the columns are scaled to it
        planned = max((run.planned_kbps for run in runs), default=load.rate_kbps)
        factor = planned / load.rate_kbps if load.rate_kbps else 1.0
        return Load({name: bits * factor for name, bits in load.widths_bits.items()}, load.tuples_per_second)

    def said(self, batch: int) -> str:
        ways = {way: self.runs_of(batch).attributes(way) for way in ("round", "shed")}
        return "; ".join(f"{way} {', '.join(names)}" for way, names in ways.items() if names)

    def can_do_more(self, batch: int) -> bool:
        return any(run.shortfall_kbps == 0 for run in self.runs[batch])

    def fell_short(self, batch: int, excess_kbps: float) -> None:
        self.runs[batch] = [
            replace(
                run,
                shortfall_kbps=excess_kbps,
                reason=f"{run.reason}; {excess_kbps:.4g} kbps more came out",
            )
            for run in self.runs[batch]
        ]

    def records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {
            SCHEMES: [
                scheme_row(batch, number, run, self.states[batch.batch])
                for batch in self.work.batches
                for number, run in enumerate(self.runs[batch.batch])
            ]
        }

    def account(self, drafted: Drafted) -> Iterable[LedgerRow]:
        """Rows all go on; of the values, what was rounded and shed, by attribute, and what that took at the source."""
        batch, rows = drafted.batch, drafted.offered["rows"]
        runs, counts = self.runs_of(batch.batch), drafted.counts
        place = (
            "stream",
            batch.stream,
            batch.batch,
            batch.batch_date,
            "attributes",
            drafted.ordinal,
        )
        payload = sum(count for name, count in counts.items() if name.startswith("payload."))
        synopsis = drafted.aside_bytes.get(SYNOPSIS, 0)
        lines = []
        for name in self.contract.names:
            shed = counts.get(f"shed.{name}", 0)
            mine = counts.get(f"payload.{name}", 0)
            lines.append(
                LedgerRow(
                    *place,
                    "values",
                    "attribute",
                    name,
                    _reason(runs, name),
                    offered=rows,
                    kept=rows - shed,
                    rounded=self._rounded_rows(batch, runs, name, rows),
                    shed=shed,
                    recoverable=shed,
                    bytes_offered=drafted.raw_bytes.get(name, 0),
                    bytes_kept=drafted.sent_bytes.get(name, 0),
                    bytes_source=round(synopsis * mine / payload) if payload else 0,
                )
            )
        yield LedgerRow(*place, "rows", offered=rows, kept=rows, seconds=drafted.seconds)
        shed_values = sum(line.shed for line in lines)
        yield LedgerRow(
            *place,
            "values",
            TOTAL,
            reason=self.runs[batch.batch][-1].reason,
            offered=drafted.offered["values"],
            kept=drafted.offered["values"] - shed_values,
            rounded=sum(line.rounded for line in lines),
            shed=shed_values,
            recoverable=shed_values,
            shortfall=self._values_too_many(batch.batch, drafted.offered["values"] - shed_values),
            bytes_offered=sum(line.bytes_offered for line in lines),
            bytes_kept=sum(line.bytes_kept for line in lines),
            bytes_source=synopsis,
        )
        yield from lines

    def _values_too_many(self, batch: int, kept: int) -> int:
        """Of the values kept, about how many are more than there is room for."""
        run = self.runs[batch][-1]
        planned = run.capacity_kbps + run.shortfall_kbps
        return min(kept, math.ceil(kept * run.shortfall_kbps / planned)) if planned > 0 else 0

    def _rounded_rows(self, batch: Batch, runs: Runs, name: str, rows: int) -> int:
        stretches = runs.stretches(name, "round")
        if stretches == [(batch.first_seq, batch.last_seq)]:
            return rows
        if not stretches:
            return 0
        before = self.work.before(batch.batch_date)
        return sum(int(before([], low, high).num_rows) for low, high in stretches)


def shedding(
    attributes: Sequence[str], runs: Runs, learned: Mapping[int, Learned], framed: Sequence[Batch]
) -> Shedding:
    """The decision over some batches, from what was learned and where their frames lie."""
    mine = sorted(framed, key=lambda batch: batch.first_seq)
    return Shedding(
        {version: one.cycle.attributes for version, one in learned.items()},
        tuple(attributes),
        runs,
        {version: one.models for version, one in learned.items()},
        {batch.batch: batch.models["attributes"] for batch in mine},
        tuple(part for batch in mine for part in frame_parts(batch)),
        endless=any(batch.frame_tuples is None for batch in mine),
    )


def _reason(runs: Runs, name: str) -> str:
    found = [way.reason for run in runs for way in run.ways if way.attribute == name and way.way != "keep"]
    found += [way.reason for run in runs for way in run.ways if way.attribute == name]
    return found[0] if found else "kept"

"""Plan the batches of a stream in order.

`AttributePlan` holds the runs of each batch, compares planned with measured bytes, and writes the rows of `schemes` and
of the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

from spillway.batch import Batch
from spillway.contracts import Channel, StreamContract
from spillway.ledger import TOTAL, LedgerRow
from spillway.levers.attributes.apply import SENT_SYNOPSIS, SYNOPSIS, AttributeDecision
from spillway.levers.attributes.capacity.treatments import DIVIDED
from spillway.levers.attributes.facts import TrainedFacts
from spillway.levers.attributes.loss import option_loss
from spillway.levers.attributes.option import Option, options_of
from spillway.levers.attributes.policy import (
    bound_now,
    decision_inputs,
    measures_now,
    own_settings,
    policy_of,
)
from spillway.levers.attributes.scheme import (
    SCHEMES,
    Run,
    Runs,
    destination_rows,
    load_runs,
    scheme_row,
    state_before,
)
from spillway.levers.attributes.window_planner import plan_batch
from spillway.levers.frame_slices import frame_slices
from spillway.levers.protocol import CapacityShare, Load, MeasuredDraft, Plan, Views, Work

AROUND_SENT_BYTES = 2_000
"""First estimate of the bytes that a file of sent synopses and its log entry take in addition to the synopses. A draft
then measures them."""
LEAST_FACTOR, MOST_FACTOR = 0.1, 1e6
"""Limits of the ratio of measured to planned bytes of a batch."""
LEAST_DIVIDED = 0.9
"""Lower limit of this ratio for an attribute whose tuples have different treatments."""
OTHERWISE = 1.5
"""If an earlier draft of the same batch measured a ratio above `OTHERWISE` x the new one, the earlier ratio is kept.
The attributes that predict this one had other treatments in that draft, and may get them again."""
WORTH_A_DRAFT = 0.05
"""Share by which a new plan must reduce the loss before another draft is made."""


class AttributePlan(Plan):
    """The plan of which attributes are kept, rounded and shed in the batches of a stream."""

    def __init__(self, work: Work, channel: Channel, tables: Views, framed: Sequence[Batch]) -> None:
        """Plan all batches of `work`; `framed` has every batch that may share a frame with them, including them."""
        self.work, self.contract, self.framed = work, work.contract, framed
        self.channel = channel
        self.learned = {version: TrainedFacts.from_facts(facts) for version, facts in work.facts.items()}
        self.runs: dict[int, list[Run]] = {}
        self.states: dict[int, dict[str, Any]] = {}
        self.paid: dict[int, dict[str, dict[str, float]]] = {}
        """Ratio of measured to planned bytes by batch, attribute and treatment, as known at planning time."""
        self.around: dict[int, int] = {}
        """By batch, the bytes that a file of sent synopses takes in addition to the synopses, as known at planning
        time."""
        state: Mapping[str, Any] | None = None
        for previous, batch in zip([None, *work.batches], work.batches, strict=False):
            # a batch without rows leaves no state; a batch in between that another run planned does
            last, found = state_before(tables, self.contract.stream, batch.batch)
            if previous is None or last > previous.batch:
                state = found
            self.paid[batch.batch], self.around[batch.batch] = self._known_ratios(batch.batch, state)
            policy = policy_of(
                self.contract,
                channel,
                self.learned[batch.models["attributes"]],
                work.loads[batch.batch],
                CapacityShare(batch.capacity_kbps or 0.0, batch.trunk_kbps),
                work.aims[batch.batch],
                self.paid[batch.batch],
                self.around[batch.batch] / max(1, batch.rows or 0),
                work.fits,
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
            state |= {"paid": self.paid[batch.batch], "around": self.around[batch.batch]}
            self.states[batch.batch] = state
        mine = {batch.batch for batch in work.batches}
        others = [batch.batch for batch in framed if batch.batch not in mine]
        self.lost = {number: max(run.loss for run in runs) for number, runs in self.runs.items()}
        """By batch, the largest planned loss of any of its runs."""
        self._others = load_runs(tables, self.contract.stream, others)

    @cached_property
    def decision(self) -> AttributeDecision:
        runs = Runs(tuple(run for found in self.runs.values() for run in found)) + self._others
        return attribute_decision(self.contract, runs, self.learned, self.framed)

    def _known_ratios(
        self, batch: int, state: Mapping[str, Any] | None
    ) -> tuple[dict[str, dict[str, float]], int]:
        """Return the ratios of measured to planned bytes, and the bytes around sent synopses.

        They are those of the last draft of this batch, if there is one, else those of the batch before.
        """
        if batch in self.work.tried:
            plan, drafted = self.work.tried[batch]
            assert isinstance(plan, AttributePlan)
            return plan.measured_ratios(drafted), plan.sent_file_overhead(drafted)
        known = state or {}
        return dict(known.get("paid", {})), int(known.get("around", AROUND_SENT_BYTES))

    def sent_file_overhead(self, drafted: MeasuredDraft) -> int:
        """Return the bytes that the file of sent synopses took in addition to them; the known value if none was
        sent."""
        sent = sum(count for name, count in drafted.counts.items() if name.startswith("sent."))
        whole = drafted.crossed_bytes.get(SENT_SYNOPSIS, 0)
        return max(0, whole - sent) if whole else self.around[drafted.batch.batch]

    def measured_ratios(self, drafted: MeasuredDraft) -> dict[str, dict[str, float]]:
        """Return the ratio of measured bytes to the bytes that training predicts, by attribute and treatment.

        The next plan uses these ratios. They are measured on the draft. So the next batch already knows that a synopsis
        no longer saves bytes, and not only the next training. An attribute that was neither rounded nor shed keeps its
        earlier ratio.
        """
        batch = drafted.batch
        load = self.work.loads[batch.batch]
        learned = self.learned[batch.models["attributes"]]
        measures = measures_now(self.contract, learned)
        options = decision_inputs(self.contract, self.channel, learned, load, measures).measured_options
        known = self.paid[batch.batch]
        expected = decision_inputs(
            self.contract, self.channel, learned, load, measures, known
        ).measured_options
        found = {name: dict(ways) for name, ways in self.paid[batch.batch].items()}
        for name in measures:
            ways = {one for run in self.runs[batch.batch] for one in run.ways if one.attribute == name}
            if len({(one.way, one.precision, one.sent) for one in ways}) > 1:
                # the bytes of each slice are not known, only the sum; it is compared with the expected sum
                if dearer := self._mixed_ratio(drafted, name, expected[name]):
                    found.setdefault(name, {})[DIVIDED] = dearer
                continue
            planned = {"round": 0.0, "shed": 0.0}
            precisions: dict[str, set[int]] = {"round": set(), "shed": set()}
            others = 0.0
            for run in self.runs[batch.batch]:
                one = next((way for way in run.ways if way.attribute == name), None)
                option = None if one is None else _option(options[name], one.way, one.precision)
                if option is None:
                    continue
                share = (run.to_seq - run.from_seq + 1) / (batch.last_seq - batch.first_seq + 1)
                bytes_ = option.bytes_per_tuple * share * (batch.rows or 0)
                if option.way in planned:
                    planned[option.way] += bytes_
                    precisions[option.way].add(option.precision)
                else:
                    others += bytes_
            measured = {
                "round": drafted.sent_bytes.get(name, 0) - others,
                "shed": float(drafted.counts.get(f"payload.{name}", 0)),
            }
            for way, bytes_ in planned.items():
                if bytes_ > 0 and measured[way] > 0:
                    factor = min(MOST_FACTOR, max(LEAST_FACTOR, measured[way] / bytes_))
                    seen = [way] + [f"{way}/{one}" for one in precisions[way] if len(precisions[way]) == 1]
                    mine = found.setdefault(name, {})
                    for place in seen:
                        # another draft of this batch may have the other attributes' earlier treatments again
                        worse = batch.batch in self.work.tried and mine.get(place, 0.0) > OTHERWISE * factor
                        mine[place] = mine[place] if worse else factor
        return found

    def _mixed_ratio(self, drafted: MeasuredDraft, name: str, expected: Sequence[Option]) -> float:
        """Return the ratio of the attribute's bytes that crossed to those expected over all slices of the batch.

        It is 0 if none were expected.
        """
        batch, planned = drafted.batch, 0.0
        for run in self.runs[batch.batch]:
            one = next((way for way in run.ways if way.attribute == name), None)
            option = None if one is None else _option(expected, one.way, one.precision)
            if one is not None and option is not None:
                share = (run.to_seq - run.from_seq + 1) / (batch.last_seq - batch.first_seq + 1)
                packed = option.synopsis_bytes_per_tuple if one.sent else 0.0
                planned += (option.wire_bytes_per_tuple + packed) * share * (batch.rows or 0)
        crossed = drafted.sent_bytes.get(name, 0) + drafted.counts.get(f"sent.{name}", 0)
        return min(MOST_FACTOR, max(LEAST_DIVIDED, crossed / planned)) if planned > 0 else 0.0

    def runs_of(self, batch: int) -> Runs:
        """Return the runs of one batch."""
        return Runs(tuple(self.runs[batch]))

    def output_load(self, batch: int) -> Load:
        runs, load = self.runs[batch], self.work.loads[batch]
        # the width of a rounded column is known only after writing: all columns are scaled to the planned rate
        planned = max((run.planned_kbps for run in runs), default=load.rate_kbps)
        columns = load.rate_kbps - load.fixed_kbps
        factor = max(0.0, planned - load.fixed_kbps) / columns if columns else 0.0
        return replace(load, widths_bits={name: bits * factor for name, bits in load.widths_bits.items()})

    def exact_columns(self, batch: int) -> set[str]:
        touched = {way.attribute for run in self.runs[batch] for way in run.ways if way.way != "keep"}
        return set(self.contract.sheddable) - touched

    def summary(self, batch: int) -> str:
        runs = self.runs_of(batch)
        sent = {way.attribute for run in runs for way in run.ways if way.sent}
        held = {way.attribute for run in runs for way in run.ways if way.way == "shed" and not way.sent}
        found = {"round": set(runs.attributes("round")), "send synopses of": sent, "shed": held}
        named = {
            said: [name for name in self.contract.names if name in names] for said, names in found.items()
        }
        return "; ".join(f"{said} {', '.join(names)}" for said, names in named.items() if names)

    def could_lose_less(self, batch: int) -> bool:
        return self.channel.minimize == "error" and self.lost[batch] > 0

    def is_larger_than_exact(self, drafted: MeasuredDraft) -> bool:
        """Return whether a sent synopsis or a rounded column takes at least the bytes of the exact column.

        If tuples of an attribute have different treatments, the attribute is ignored: the next plan knows its bytes.
        """
        batch = drafted.batch
        load = self.work.loads[batch.batch]
        for name in measures_now(self.contract, self.learned[batch.models["attributes"]]):
            ways = {one for run in self.runs[batch.batch] for one in run.ways if one.attribute == name}
            treated = {(one.way, one.precision, one.sent) for one in ways}
            if len(treated) != 1:
                continue
            ((way, _, sent),) = treated
            if way == "round":
                took = drafted.sent_bytes.get(name, 0)
            elif way == "shed" and sent:
                took = drafted.counts.get(f"sent.{name}", 0)
            else:
                continue
            if took >= load.widths_bits[name] / 8.0 * (batch.rows or 0):
                return True
        return False

    def is_worth_a_draft(self, before: Plan) -> bool:
        assert isinstance(before, AttributePlan)
        if any(plan.is_larger_than_exact(drafted) for plan, drafted in self.work.tried.values()):
            return True
        return any(lost < (1.0 - WORTH_A_DRAFT) * before.lost[number] for number, lost in self.lost.items())

    def loss_of(self, batch: int) -> float:
        return self.lost[batch]

    def leaves_values_absent(self, batch: int) -> bool:
        return any(way.way == "shed" and not way.sent for run in self.runs[batch] for way in run.ways)

    def is_exact(self, batch: int) -> bool:
        return all(way.way == "keep" for run in self.runs[batch] for way in run.ways)

    def mix(self, finer: Plan, share: float) -> AttributePlan | None:
        assert isinstance(finer, AttributePlan)
        able = self.channel.minimize == "error" and own_settings(self.contract).plan == "least_loss"
        if not able or not any(finer.lost[number] < lost for number, lost in self.lost.items()):
            return None
        found = copy(self)
        found.__dict__.pop("decision", None)
        found.runs, found.lost = {}, {}
        for batch in self.work.batches:
            mine, better = self.runs[batch.batch], finer.runs[batch.batch]
            cut = batch.first_seq + round(share * (batch.last_seq - batch.first_seq + 1))
            lost = share * finer.lost[batch.batch] + (1.0 - share) * self.lost[batch.batch]
            first = [replace(run, to_seq=min(run.to_seq, cut - 1)) for run in better if run.from_seq < cut]
            rest = [
                # windows, evaluations and hits are counted once, in the first slice
                replace(run, from_seq=cut, windows=0, evaluations=0, hits=min(run.hits, 0))
                if run.from_seq < cut
                else run
                for run in mine
                if run.to_seq >= cut
            ]
            text = f"{share:.0%} of the tuples finer, to use the remaining capacity"
            found.runs[batch.batch] = [
                replace(run, reason=f"{mine[-1].reason}; {text}", loss=lost) for run in [*first, *rest]
            ]
            found.lost[batch.batch] = lost
        return found

    def shed_too(self, attribute: str) -> AttributePlan | None:
        able = self.channel.minimize == "error" and own_settings(self.contract).plan == "least_loss"
        if not able:
            return None
        found = copy(self)
        found.__dict__.pop("decision", None)
        found.runs, found.lost = {}, {}
        for batch in self.work.batches:
            learned, load = self.learned[batch.models["attributes"]], self.work.loads[batch.batch]
            measures = measures_now(self.contract, learned)
            if attribute not in measures:
                return None
            rests_on = decision_inputs(
                self.contract, self.channel, learned, load, measures, self.paid[batch.batch]
            )
            options, predictor = rests_on.options[attribute], learned.models[attribute].predictors[0].name
            held = min(
                options_of(options, "shed"), key=lambda one: one.synopsis_bytes_per_tuple, default=None
            )
            if held is None:
                return None
            found.runs[batch.batch] = []
            for run in self.runs[batch.batch]:
                (way,) = [one for one in run.ways if one.attribute == attribute]
                now = _option(options, way.way, way.precision)
                if now is None or (way.way == "shed" and not way.sent):
                    return None
                ranking = [name for name, _, _ in run.ranking]
                worth = rests_on.worths(
                    ranking or learned.ranked_measures(measures, own_settings(self.contract).rank_by)
                )
                shed = replace(
                    way,
                    way="shed",
                    sent=False,
                    precision=held.precision,
                    predictor=predictor,
                    reason="absent until it is asked for, so that the other attributes lose less",
                )
                ways = tuple(shed if one.attribute == attribute else one for one in run.ways)
                loss = run.loss + worth[attribute] * (option_loss(held) - option_loss(now, way.sent))
                found.runs[batch.batch].append(replace(run, ways=ways, loss=loss))
            found.lost[batch.batch] = max(run.loss for run in found.runs[batch.batch])
        return found

    def can_shed_more(self, batch: int) -> bool:
        return any(run.shortfall_kbps == 0 for run in self.runs[batch])

    def record_shortfall(self, batch: int, excess_kbps: float, remedy: str = "") -> None:
        self.runs[batch] = [
            replace(
                run,
                shortfall_kbps=max(run.shortfall_kbps, excess_kbps),
                reason=f"{run.reason}; it came out {excess_kbps:.4g} kbps above the part{remedy}",
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

    def destination_records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the rows of `schemes` that the destination gets: without reasons, rankings, shortfall and state."""
        return {
            SCHEMES: [
                row for batch in self.work.batches for row in destination_rows(batch, self.runs[batch.batch])
            ]
        }

    def account(self, drafted: MeasuredDraft) -> Iterable[LedgerRow]:
        """Yield the ledger rows of a draft.

        All rows are kept. For the values there is one row per attribute, with the counts that were rounded and shed and
        the bytes stored at the source, and one row with the totals.
        """
        batch, rows = drafted.batch, drafted.offered["rows"]
        self.states[batch.batch] |= {
            "paid": self.measured_ratios(drafted),
            "around": self.sent_file_overhead(drafted),
        }
        runs, counts = self.runs_of(batch.batch), drafted.counts
        place = (
            "stream",
            batch.stream,
            batch.batch,
            batch.batch_date,
            "attributes",
            drafted.ordinal,
        )
        synopsis = drafted.aside_bytes.get(SYNOPSIS, 0)
        sent = drafted.crossed_bytes.get(SENT_SYNOPSIS, 0)
        of_held, of_sent = (
            sum(count for name, count in counts.items() if name.startswith(f"{kind}."))
            for kind in ("held", "sent")
        )
        lines = []
        for name in self.contract.names:
            shed = counts.get(f"shed.{name}", 0)
            held, crossed = counts.get(f"held.{name}", 0), counts.get(f"sent.{name}", 0)
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
                    bytes_kept=drafted.sent_bytes.get(name, 0) + _part(sent, crossed, of_sent),
                    bytes_source=_part(synopsis, held, of_held),
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
        """Return about how many of the `kept` values exceed the capacity."""
        run = self.runs[batch][-1]
        planned = run.capacity_kbps + run.shortfall_kbps
        return min(kept, math.ceil(kept * run.shortfall_kbps / planned)) if planned > 0 else 0

    def _rounded_rows(self, batch: Batch, runs: Runs, name: str, rows: int) -> int:
        stretches = runs.treated_ranges(name, "round")
        if stretches == [(batch.first_seq, batch.last_seq)]:
            return rows
        if not stretches:
            return 0
        before = self.work.before(batch.batch_date)
        return sum(int(before([], low, high).num_rows) for low, high in stretches)


def attribute_decision(
    contract: StreamContract, runs: Runs, learned: Mapping[int, TrainedFacts], framed: Sequence[Batch]
) -> AttributeDecision:
    """Return the decision for the batches `framed`, from their `runs` and the trained facts by version."""
    mine = sorted(framed, key=lambda batch: batch.first_seq)
    return AttributeDecision(
        {version: one.cycle.attributes for version, one in learned.items()},
        contract.names,
        runs,
        {version: one.models for version, one in learned.items()},
        {batch.batch: batch.models["attributes"] for batch in mine},
        tuple(part for batch in mine for part in frame_slices(batch)),
        endless=any(batch.frame_tuples is None for batch in mine),
        bounds={
            version: {name: bound_now(contract, model) for name, model in one.models.items()}
            for version, one in learned.items()
        },
    )


def _option(options: Sequence[Option], way: str, precision: int) -> Option | None:
    return next((one for one in options if one.way == way and one.precision == precision), None)


def _part(whole: int, mine: int, all_: int) -> int:
    return round(whole * mine / all_) if all_ else 0


def _reason(runs: Runs, name: str) -> str:
    found = [way.reason for run in runs for way in run.ways if way.attribute == name and way.way != "keep"]
    found += [way.reason for run in runs for way in run.ways if way.attribute == name]
    return found[0] if found else "kept"

"""Shedding and recovering a stream in memory, delivery by delivery, by the product's planner and frames.

The steps are those of `steps.shed`: measure the load, plan, shed frame by frame, send, and plan again with less when
what came out is above the channel's part. Every shed value is recovered from what was sent and certified. Of the
synopsis the payloads are counted: what Delta adds around a block is the same for every contestant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from spillway.levers.attributes.capacity.channel_shares import Offer, divided

from evidence.attributes.streams import Delivery, MemoryStream, column_widths
from evidence.attributes.trained import Facts, load_of
from spillway.contracts import Contracts
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.frames import as_transmitted, frame_of, recover_frame, shed_frame
from spillway.levers.attributes.planner import Policy, plan_batch
from spillway.levers.attributes.policy import Part, policy_of
from spillway.levers.attributes.scheme import Run, Runs, Way
from spillway.levers.attributes.synopsis.certificate import certify
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.certificate import Certificate
from spillway.pipeline.shed import MOST_ATTEMPTS


@dataclass(frozen=True)
class Shed:
    """What shedding some deliveries under given runs and models sent, stored and gave back."""

    wire_bytes: int
    sent_bytes: Mapping[str, int]
    synopsis_bytes: Mapping[str, int]
    column_bytes: Mapping[str, int]
    certificates: Mapping[str, Certificate]
    runs: tuple[Run, ...]
    recovered: Mapping[str, Column] = field(default_factory=dict)

    @property
    def net_bytes(self) -> int:
        """Wire and synopsis together."""
        return self.wire_bytes + sum(self.synopsis_bytes.values())

    @property
    def violations(self) -> int:
        return sum(one.violations for one in self.certificates.values())

    def __add__(self, other: Shed) -> Shed:
        """Two deliveries as one."""

        def total(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
            return {
                name: left[name] + right[name]
                if name in left and name in right
                else left.get(name, right.get(name))
                for name in {**left, **right}
            }

        return Shed(
            self.wire_bytes + other.wire_bytes,
            total(self.sent_bytes, other.sent_bytes),
            total(self.synopsis_bytes, other.synopsis_bytes),
            total(self.column_bytes, other.column_bytes),
            total(self.certificates, other.certificates),
            self.runs + other.runs,
        )


def capacities_kbps(contracts: Contracts, streams: Mapping[str, MemoryStream]) -> dict[str, float]:
    """Each stream's part of its channel at its mean rate, as `steps.parts` divides it."""
    found: dict[str, float] = {}
    for name, channel in contracts.channels.items():
        offers = {}
        for stream in streams.values():
            if stream.contract.channel == name:
                kbits = [load_of(stream, one).rate_kbps * one.seconds_covered for one in stream.deliveries]
                offers[stream.name] = Offer(
                    sum(kbits) / sum(one.seconds_covered for one in stream.deliveries)
                )
        if offers:
            found |= divided(channel, offers)
    return found


def plan(
    stream: MemoryStream,
    delivery: Delivery,
    policy: Policy,
    before: Mapping[str, Any] | None,
) -> tuple[list[Run], dict[str, Any]]:
    """The product's plan of one delivery."""
    seq = np.asarray(delivery.rows["seq"])

    def rows(columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        first, stop = np.searchsorted(seq, from_seq), np.searchsorted(seq, to_seq, side="right")
        return delivery.rows.select(["seq", *(c for c in columns if c != "seq")]).slice(first, stop - first)

    frame_tuples = stream.contract.frame.tuples
    return plan_batch(
        rows, delivery.first_seq, delivery.last_seq, delivery.first_seq, frame_tuples, policy, before
    )


def shed_planned(stream: MemoryStream, facts: Facts, capacity_kbps: float) -> Shed:
    """Every delivery planned, shed, sent, recovered and certified under the contract."""
    before: dict[str, Any] | None = None
    parts = []
    for delivery in stream.deliveries:
        load = load_of(stream, delivery)
        aim = 1.0
        for attempt in range(1, MOST_ATTEMPTS + 1):
            policy = policy_of(stream.contract, facts.trained, load, Part(capacity_kbps), aim)
            runs, state = plan(stream, delivery, policy, before)
            sent = send(stream, delivery, runs, facts)
            kbps = sum(column_widths(sent).values()) * 8.0 / 1000.0 / delivery.seconds_covered
            more = any(run.shortfall_kbps == 0 for run in runs)
            if kbps <= capacity_kbps or not more or attempt == MOST_ATTEMPTS:
                break
            aim *= 0.98 * capacity_kbps / kbps
        before = state
        parts.append(shed_delivery(stream, delivery, runs, facts.models, facts, sent))
    return reduce(add, parts)


def shed_fixed(
    stream: MemoryStream,
    facts: Facts,
    ways: Mapping[str, str],
    models: Mapping[str, AttributeModel] | None = None,
    deliveries: Sequence[Delivery] | None = None,
) -> Shed:
    """One scheme for all deliveries: what a single way, or a list somebody made, would have cost."""
    parts = []
    chosen = facts.models if models is None else models
    for delivery in stream.deliveries if deliveries is None else deliveries:
        runs = [one_run(delivery, facts, ways)]
        parts.append(shed_delivery(stream, delivery, runs, chosen, facts))
    return reduce(add, parts)


def one_run(delivery: Delivery, facts: Facts, ways: Mapping[str, str]) -> Run:
    """A run over the whole delivery."""
    return Run(
        delivery.first_seq,
        delivery.last_seq,
        tuple(Way(name, ways.get(name, "keep")) for name in facts.models),
    )


def send(
    stream: MemoryStream,
    delivery: Delivery,
    runs: Sequence[Run],
    facts: Facts,
    models: Mapping[str, AttributeModel] | None = None,
) -> pa.Table:
    """The delivery's tuples as the destination sees them."""
    chosen = facts.models if models is None else models
    whole = Runs(tuple(runs))
    touched = dict.fromkeys([*whole.attributes("round"), *whole.attributes("shed")])
    sent = delivery.rows
    parts = []
    for low, high in frames_of(stream, delivery):
        rows = delivery.rows.slice(low, high - low)
        seen = as_transmitted(frame_of(rows, facts.cycle.attributes, touched), whole, chosen)
        for name in touched:
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, seen.columns[name].to_arrow(rows.schema.field(name).type))
        parts.append(rows)
    sent = pa.concat_tables(parts) if touched else delivery.rows
    return sent


def frames_of(stream: MemoryStream, delivery: Delivery) -> list[tuple[int, int]]:
    """Row ranges of the delivery's frames."""
    seq = np.asarray(delivery.rows["seq"])
    length = stream.contract.frame.tuples
    starts = seq * 0 if length is None else (seq - delivery.first_seq) // length
    return list(pairwise([0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(seq)]))


def shed_delivery(
    stream: MemoryStream,
    delivery: Delivery,
    runs: Sequence[Run],
    models: Mapping[str, AttributeModel],
    facts: Facts,
    sent: pa.Table | None = None,
    errors: Callable[[str, Column, Column, np.ndarray], None] | None = None,
) -> Shed:
    """Shed, recover and certify one delivery; `errors` sees every attribute's truth and what was given back."""
    whole = Runs(tuple(runs))
    key = facts.cycle.attributes
    if sent is None:
        sent = send(stream, delivery, runs, facts, models)
    names = whole.attributes("shed")
    sizes = dict.fromkeys(names, 0)
    columns = {name: delivery.column_bytes[name] for name in names}
    found: dict[str, Certificate] = {}
    for low, high in frames_of(stream, delivery):
        truth = delivery.rows.slice(low, high - low)
        blocks = shed_frame(truth, key, whole, models, int(truth["seq"][0].as_py()))
        payloads: dict[str, list[bytes]] = {}
        stored: dict[str, int] = {}
        for block in blocks:
            sizes[block.attribute] += len(block.payload)
            payloads.setdefault(block.attribute, []).append(block.payload)
            stored[block.attribute] = stored.get(block.attribute, 0) + block.entries
        given = recover_frame(sent.slice(low, high - low), key, whole, models, payloads)
        seq = np.asarray(truth["seq"])
        for name, recovered in given.items():
            was = Column.from_arrow(truth[name])
            gone = whole.mask(name, "shed", seq)
            one = certify(was, recovered.values, models[name].error_pct, gone, stored.get(name, 0))
            found[name] = found[name] + one if name in found else one
            if errors is not None:
                errors(name, was, recovered.values, gone)
    for name in whole.attributes("round"):
        rounded = certify(
            Column.from_arrow(delivery.rows[name]),
            Column.from_arrow(sent[name]),
            models[name].error_pct,
            whole.mask(name, "round", np.asarray(delivery.rows["seq"])),
        )
        if rounded.violations:
            raise AssertionError(
                f"{name}: {rounded.violations} rounded values miss {models[name].error_pct} %"
            )
    widths = column_widths(sent)
    return Shed(sum(widths.values()), widths, sizes, columns, found, tuple(runs))

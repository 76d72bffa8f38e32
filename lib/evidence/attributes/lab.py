"""A stream's columns ready to be sent, rounded or shed one by one, measured once and added up.

Wire bytes add over columns, and a synopsis depends on the other columns only through what its predictors may read:
so any scheme of kept, rounded and shed attributes is weighed without running it as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add

import numpy as np
import pyarrow as pa

from evidence.attributes.shedding import frames_of
from evidence.attributes.streams import MemoryStream, column_widths
from evidence.attributes.trained import Facts, load_of, regressors_of
from spillway.levers.attributes.capacity.fit import fit
from spillway.levers.attributes.columns import Frame
from spillway.levers.attributes.frames import frame_of
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.synopsis.certificate import certify
from spillway.levers.attributes.synopsis.entries import Entries, shed
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.synopsis.rounding import round_rows
from spillway.levers.certificate import Certificate


@dataclass(frozen=True)
class Stored:
    """A column shed whole: packed bytes and errors."""

    packed_bytes: int
    errors: Certificate


@dataclass(frozen=True)
class Scheme:
    """What a scheme costs and how far off it is: mean error over all values of all measures, kept ones exact."""

    wire_bytes: float
    synopsis_bytes: float
    mean_error_pct: float
    accuracy_pct: float

    @property
    def net_bytes(self) -> float:
        return self.wire_bytes + self.synopsis_bytes


@dataclass(frozen=True)
class Lab:
    """One stream with its facts; `stored` and `wire` remember what was measured."""

    stream: MemoryStream
    facts: Facts
    stored: dict[AttributeModel, Stored] = field(default_factory=dict)
    wire: dict[tuple[str, str], tuple[int, Certificate | None]] = field(default_factory=dict)

    @cached_property
    def measures(self) -> tuple[str, ...]:
        return tuple(self.facts.models)

    @cached_property
    def frames(self) -> list[Frame]:
        """Every frame of every delivery, with all columns that count."""
        names = dict.fromkeys([*self.measures, *regressors_of(self.stream)])
        return [
            frame_of(delivery.rows.slice(low, high - low), self.facts.cycle.attributes, names)
            for delivery in self.stream.deliveries
            for low, high in frames_of(self.stream, delivery)
        ]

    @cached_property
    def fixed_bytes(self) -> int:
        """The wire bytes of what is never shed, `seq` included."""
        return sum(
            size
            for delivery in self.stream.deliveries
            for name, size in delivery.column_bytes.items()
            if name not in self.measures
        )

    @cached_property
    def column_bytes(self) -> dict[str, int]:
        """The wire bytes of every measure kept."""
        return {
            name: sum(delivery.column_bytes[name] for delivery in self.stream.deliveries)
            for name in self.measures
        }

    def shed(self, model: AttributeModel) -> Stored:
        """The whole column shed by a model, frame by frame."""
        if model not in self.stored:
            self.stored[model] = reduce(_together, (_shed_frame(model, frame) for frame in self.frames))
        return self.stored[model]

    def errors(self, model: AttributeModel) -> Certificate:
        """As `shed`, without packing."""
        if model in self.stored:
            return self.stored[model].errors
        return reduce(add, (_errors(model, frame)[0] for frame in self.frames))

    def sent(self, name: str, way: str) -> tuple[int, Certificate | None]:
        """Wire bytes of a measure kept, rounded or shed (a column of nulls), and a rounded one's errors."""
        if (name, way) not in self.wire:
            self.wire[name, way] = self._send(name, way)
        return self.wire[name, way]

    def _send(self, name: str, way: str) -> tuple[int, Certificate | None]:
        if way == "keep":
            return self.column_bytes[name], None
        size, errors = 0, []
        for delivery in self.stream.deliveries:
            kind = delivery.rows.schema.field(name).type
            if way == "shed":
                column = pa.nulls(delivery.rows.num_rows, kind)
            else:
                frame = frame_of(delivery.rows, self.facts.cycle.attributes, [name])
                model = self.facts.models[name]
                rounded = round_rows(model, frame, np.ones(len(frame), np.bool_))
                errors.append(certify(frame.columns[name], rounded, model.error_pct))
                column = rounded.to_arrow(kind)
            size += column_widths(pa.table({name: column}))[name]
        return size, reduce(add, errors) if errors else None

    def weigh(
        self, ways: Mapping[str, str], models: Mapping[str, AttributeModel] | None = None, share: float = 1.0
    ) -> Scheme:
        """A scheme's bytes and errors; predictors read only what it keeps. `share`: of the tuples, for blends."""
        chosen = self.facts.models if models is None else models
        kept = {name for name in self._all_names if ways.get(name, "keep") == "keep"}
        wire, synopsis, total, shed_total, touched = float(self.fixed_bytes), 0.0, 0.0, 0.0, 0
        for name in self.measures:
            way = ways.get(name, "keep")
            size, errors = self.sent(name, way)
            wire += size
            if way == "shed":
                found = self.shed(chosen[name].for_scheme(kept))
                synopsis += found.packed_bytes
                errors = found.errors
            if errors is not None:
                total += errors.mean_error_pct
                shed_total += errors.mean_error_pct
                touched += 1
        return Scheme(
            wire,
            synopsis,
            share * total / len(self.measures),
            100.0 - shed_total / touched if touched else 100.0,
        )

    @cached_property
    def _all_names(self) -> set[str]:
        return {*self.measures, *regressors_of(self.stream)}

    def until_it_fits(self, ranking: Sequence[str], capacity_kbps: float) -> dict[str, str]:
        """The shortest prefix of a ranking that brings the stream under its capacity, by the largest load."""
        loads = [load_of(self.stream, delivery) for delivery in self.stream.deliveries]
        load = max(loads, key=lambda one: one.rate_kbps)
        found = fit(list(ranking), load.widths_bits, load.tuples_per_second, capacity_kbps, "bits")
        return dict.fromkeys(found.shed, "shed")

    def kbps(self, wire_bytes: float) -> float:
        """Bytes on the wire as a rate over the time the stream covers."""
        return wire_bytes * 8.0 / 1000.0 / sum(one.seconds_covered for one in self.stream.deliveries)


def mean_scheme(schemes: Iterable[Scheme]) -> Scheme:
    """The mean of several: random choices."""
    every = list(schemes)

    def mean(of: Callable[[Scheme], float]) -> float:
        return sum(of(one) for one in every) / len(every)

    return Scheme(
        mean(lambda s: s.wire_bytes), mean(lambda s: s.synopsis_bytes), mean(lambda s: s.mean_error_pct),
        mean(lambda s: s.accuracy_pct),
    )  # fmt: skip


def with_error(model: AttributeModel, error_pct: float) -> AttributeModel:
    """The model held to another E, its precision scaled alike (even steps stay: they fit the values)."""
    scale = error_pct / model.error_pct if model.error_pct else 0.0
    aim = None if model.aim_pct is None else min(error_pct, model.aim_pct * scale)
    step = model.step_pct * scale
    return replace(model, error_pct=error_pct, aim_pct=aim, step_pct=step, rounding_pct=None)


def _errors(model: AttributeModel, frame: Frame) -> tuple[Certificate, Entries]:
    result = shed(model, frame, np.ones(len(frame), np.bool_))
    truth = frame.columns[model.attribute]
    return certify(truth, result.reconstructed, model.error_pct, None, len(result.entries)), result.entries


def _shed_frame(model: AttributeModel, frame: Frame) -> Stored:
    errors, entries = _errors(model, frame)
    return Stored(len(pack(entries, frame)), errors)


def _together(left: Stored, right: Stored) -> Stored:
    return Stored(left.packed_bytes + right.packed_bytes, left.errors + right.errors)

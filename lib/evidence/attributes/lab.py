"""Try schemes, models and settings on one trained stream, each by the product's own steps.

`run` sheds, recovers and certifies the whole stream again: with other models (a version of the facts), with other
settings of the lever, or under a given scheme (`rival`). Frames and channel shares stay as they were pinned. The result
of a run is stored as a `RunResult`; the tables hold only the last run.

`weigh` returns only the bytes and errors of a scheme. Sent bytes add up over columns. The size of a synopsis depends
only on the treatments of the attributes from which it is predicted. So a new run is made only if an attribute occurs
with such a combination of treatments for the first time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evidence.attributes.costs import SchemeCost, cost_of
from evidence.attributes.lake import Lake
from evidence.attributes.results import RunResult, read_result
from evidence.attributes.rival.lever import WatchedPlan
from evidence.attributes.rival.settings import RivalSettings
from evidence.attributes.variants import with_equal_priorities, with_models, with_settings
from spillway.batch import PLANNED, Batch
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.contracts.channel import Prices
from spillway.levers.attributes.capacity.fit import fit_prefix
from spillway.levers.attributes.columns import Frame
from spillway.levers.attributes.cycle.identifier import Cycle
from spillway.levers.attributes.facts import THRESHOLD, TrainedFacts
from spillway.levers.attributes.frames import frame_of, with_regressors
from spillway.levers.attributes.plan import AttributePlan
from spillway.levers.attributes.policy import own_settings
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.frame_slices import frame_slices
from spillway.levers.protocol import CapacityGroup, Facts, Load
from spillway.registry import LEVERS, extra_levers
from spillway.store.batches import save_batches
from spillway.streams.capacity import plan_all
from spillway.streams.facts import Trained, load_facts, save_facts

DECIDES_ELSE = {"attributes": "evidence.attributes.rival", "product": LEVERS["attributes"]}
"""The lever with a rival's decisions. The lever itself stays registered, because its tables are in use."""
TRAINED, TRIED = 1, 2
"""Versions of the facts: the trained one, and the one with the models of the present run."""
_Place = tuple[str, str, frozenset[tuple[str, str]]]
"""An attribute, its treatment, and the treatments of the attributes from which it is predicted."""


@dataclass(frozen=True)
class _Part:
    """The result of one attribute under a scheme."""

    wire_bytes: int
    synopsis_bytes: int
    mean_error_pct: float


@dataclass
class Lab:
    """A stream that was trained and shed; `plan` is the result of the product's plan."""

    lake: Lake
    stream: str
    plan: RunResult = field(init=False)
    recovered: pa.Table = field(init=False)
    """The first batch's recovered rows under the plan."""

    def __post_init__(self) -> None:
        self._runs: dict[tuple[frozenset[AttributeModel], frozenset[tuple[str, str]]], RunResult] = {}
        self._parts: dict[_Place, _Part] = {}
        self.batches: list[Batch] = self.lake.batches(self.stream)
        self.every_batch = self.batches
        self.plan = read_result(self.lake, self.stream)
        self.recovered = self.lake.rows("recovered", self.stream, self.batches[0])

    @property
    def contract(self) -> StreamContract:
        return self.lake.contracts.streams[self.stream]

    @cached_property
    def facts(self) -> Facts:
        """The facts in `models`."""
        return load_facts(self.lake.tables, self.stream, "attributes", [TRAINED])[TRAINED]

    @cached_property
    def learned(self) -> TrainedFacts:
        return TrainedFacts.from_facts(self.facts)

    @property
    def models(self) -> Mapping[str, AttributeModel]:
        return self.learned.models

    @property
    def cycle(self) -> Cycle:
        return self.learned.cycle

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(self.models)

    @property
    def exact(self) -> tuple[str, ...]:
        """The measures that may not be inexact: text, codes, times, and those with the bound 0 in the contract."""
        return tuple(
            name for name, model in self.models.items() if model.kind == "text" or not model.bound.error_pct
        )

    @cached_property
    def thresholds(self) -> dict[str, tuple[float, str]]:
        """E of every measure, and its source."""
        found = self.facts.of(THRESHOLD)
        return {
            name: (
                math.inf if one.value["error_pct"] is None else one.value["error_pct"],
                one.value["source"],
            )
            for name, one in found.items()
        }

    @cached_property
    def error_pct(self) -> dict[str, float]:
        return {name: error for name, (error, _) in self.thresholds.items()}

    @cached_property
    def rows(self) -> pa.Table:
        """All raw tuples."""
        return self.lake.rows("raw", self.stream)

    @cached_property
    def training_rows(self) -> pa.Table:
        """The training tuples."""
        return self.rows.slice(0, own_settings(self.contract).training.tuples)

    @cached_property
    def trained_to_seq(self) -> int:
        """The last training tuple; training has seen no later one."""
        return int(self.training_rows["seq"][-1].as_py())

    @cached_property
    def loads(self) -> list[Load]:
        """The load of each batch."""
        return self.lake.loads(self.stream)

    @property
    def capacity_kbps(self) -> float:
        """The capacity of the stream."""
        return self.batches[0].allowed_kbps

    @cached_property
    def frames(self) -> list[Frame]:
        """Every frame with the columns of all measures, and the columns that predictions may read."""
        numeric = [
            a.name
            for a in self.contract.attributes
            if a.role in ("measure", "protected") and a.type != "string"
        ]
        names = dict.fromkeys([*self.measures, *numeric])
        seq = np.asarray(self.rows["seq"])
        found = []
        for part in (part for batch in self.batches for part in frame_slices(batch)):
            low, high = np.searchsorted(seq, [part.from_seq, part.to_seq + 1])
            if high > low:
                found.append(frame_of(self.rows.slice(low, high - low), self.cycle.attributes, names))
        return found

    @property
    def column_bytes(self) -> dict[str, int]:
        """The sent bytes of every measure if it is kept."""
        return {name: self.plan.raw_bytes[name] for name in self.measures}

    @property
    def fixed_bytes(self) -> int:
        """The sent bytes of the columns that are never shed, `seq` included."""
        return sum(size for name, size in self.plan.raw_bytes.items() if name not in self.models)

    def kbps(self, wire_bytes: float) -> float:
        """Return sent bytes as a rate over the time that the stream covers."""
        return wire_bytes * 8.0 / 1000.0 / sum(one.seconds_covered or 0.0 for one in self.batches)

    def run(
        self,
        scheme: Mapping[str, str] | None = None,
        models: Mapping[str, AttributeModel] | None = None,
        paid_by_byte: bool = False,
        **settings: Any,
    ) -> RunResult:
        """Shed, recover and certify all batches again under a scheme, with other models or other settings.

        `settings`: settings of the lever, by their names in contracts. `paid_by_byte`: use a channel that minimizes
        bytes, on which a stored byte costs as much as a sent one.
        """
        self._replan(self._version_of(models))
        lake = self._set(scheme=scheme, **settings)
        if paid_by_byte:
            name = self.contract.channel
            channel = replace(
                lake.contracts.channels[name],
                minimize="bytes",
                prices=Prices(sent_per_gb=1.0, kept_per_gb=1.0),
            )
            lake = lake.with_channels({**lake.contracts.channels, name: channel})
        with extra_levers(**DECIDES_ELSE):
            lake.shed([self.stream])
        found = read_result(lake, self.stream)
        lake.sweep()
        return found

    def sent(
        self,
        scheme: Mapping[str, str] | None = None,
        allowed_kbps: Mapping[int, float] | None = None,
        **settings: Any,
    ) -> Lake:
        """Send all batches again and recover nothing; `allowed_kbps`: the rate of each batch, with equal priorities."""
        self._replan(TRAINED, allowed_kbps)
        lake = self._set(scheme=scheme, **settings)
        if allowed_kbps is not None:
            lake = lake.with_contract(with_equal_priorities(lake.contracts.streams[self.stream], self.exact))
        with extra_levers(**DECIDES_ELSE):
            lake.send([self.stream])
        return lake

    def run_everywhere(
        self, scheme: Mapping[str, str], models: Mapping[str, AttributeModel] | None = None
    ) -> RunResult:
        """Return the stored result of `run` with a scheme for all tuples; compute it at the first call."""
        place = (frozenset((self.models if models is None else models).values()), frozenset(scheme.items()))
        if place not in self._runs:
            self._runs[place] = self.run(scheme, models)
        return self._runs[place]

    def watched_plan(self, **settings: Any) -> WatchedPlan:
        """Return the product's plan of the trained stream with every window ranked; `settings`: see `RivalSettings`."""
        plan = self.undrafted_plan(watched=True, **settings)
        assert isinstance(plan, WatchedPlan), "a watched stream has a watched plan"
        return plan

    def undrafted_plan(self, **settings: Any) -> AttributePlan:
        """Return the plan of all batches before anything is drafted."""
        self._replan(TRAINED)
        lake = self._set(**settings)
        batches = lake.batches(self.stream)
        room = CapacityGroup(
            lake.contracts.planning_channel(self.contract.channel), lake.contracts, lake.tables
        )
        with extra_levers(**DECIDES_ELSE):
            (way,) = plan_all(room, {(self.stream, batches[0].levers): batches})
        (plan,) = way.plans
        assert isinstance(plan, AttributePlan), "the lever plans for attributes"
        return plan

    def weigh(self, ways: Mapping[str, str]) -> SchemeCost:
        """Return the bytes and errors of a scheme with the trained models."""
        places = [self._place(name, ways) for name in self.measures]
        if any(place not in self._parts for place in places):
            self._measure(
                self.run_everywhere({name: way for name, way in ways.items() if way != "keep"}), places
            )
        parts = {place: self._parts[place] for place in places}
        return cost_of(
            self.fixed_bytes + sum(part.wire_bytes for part in parts.values()),
            sum(part.synopsis_bytes for part in parts.values()),
            {name: part.mean_error_pct for (name, way, _), part in parts.items() if way != "keep"},
            len(self.measures),
        )

    def cost(self, result: RunResult) -> SchemeCost:
        """Return the bytes and errors of a run."""
        errors = {name: one.mean_error_pct for name, one in result.certificates.items()}
        return cost_of(result.wire_bytes, sum(result.synopsis_bytes.values()), errors, len(self.measures))

    def until_it_fits(self, ranking: Sequence[str]) -> dict[str, str]:
        """Return the shortest prefix of a ranking with which the densest batch fits the capacity."""
        load = max(self.loads, key=lambda one: one.rate_kbps)
        found = fit_prefix(
            list(ranking), load.widths_bits, load.tuples_per_second, self.capacity_kbps, "bits"
        )
        return dict.fromkeys(found.shed, "shed")

    def paper_models(self) -> dict[str, AttributeModel]:
        """Return every model in the paper's form: last stored value, exact entries, the same E."""
        return {
            name: AttributeModel(name, model.kind, self.error_pct[name], cycle_length=self.cycle.length)
            for name, model in self.models.items()
        }

    def _set(self, **settings: Any) -> Lake:
        """Return the lake under a contract with these settings of the lever instead of its own."""
        own = own_settings(self.contract)
        stated = {item.name: getattr(own, item.name) for item in fields(own)}
        rival = RivalSettings(**{**stated, **settings})
        return self.lake.with_contract(with_settings(self.contract, rival))

    def _version_of(self, models: Mapping[str, AttributeModel] | None) -> int:
        """Return the version of the facts with these models instead of the trained ones."""
        if models is None:
            return TRAINED
        found = [with_models(one, models) for one in self.facts.facts.values()]
        span = (self.facts.from_seq, self.facts.to_seq)
        tables = self.lake.tables.now()
        tables.at("models").delete(stream=self.stream, lever="attributes", version=TRIED)
        save_facts(tables, [Trained(self.stream, "attributes", TRIED, span, found)])
        return TRIED

    def _replan(self, version: int, allowed_kbps: Mapping[int, float] | None = None) -> None:
        """Make all batches pending again, pinned as before except for the version of the facts and their rate."""
        now, models = utc_now(), {"attributes": version}
        stands = {batch.batch: batch.revision for batch in self.lake.batches(self.stream)}
        waiting = [
            one.with_changes(now, status=PLANNED, models=models, revision=stands[one.batch])
            for one in self.every_batch
        ]
        if allowed_kbps is not None:
            waiting = [
                replace(one, capacity_kbps=allowed_kbps[one.batch], trunk_kbps=None) for one in waiting
            ]
        save_batches(self.lake.tables, waiting)

    def _place(self, name: str, ways: Mapping[str, str]) -> _Place:
        way = ways.get(name, "keep")
        if way != "shed":
            return name, way, frozenset()
        rests_on = {
            other
            for one in with_regressors(self.models, [name])
            for predictor in self.models[one].predictors
            for other in predictor.regressors
        }
        found = {(other, ways[other]) for other in rests_on if ways.get(other, "keep") != "keep"}
        return name, way, frozenset(found - {(name, way)})

    def _measure(self, result: RunResult, places: Iterable[_Place]) -> None:
        for place in places:
            name = place[0]
            one = result.certificates.get(name)
            self._parts[place] = _Part(
                result.sent_bytes[name],
                result.synopsis_bytes.get(name, 0),
                0.0 if one is None else one.mean_error_pct,
            )


class LabPart(Lab):
    """Some batches of a lab: it runs the whole stream, and counts only these batches."""

    def __init__(self, whole: Lab, batches: Sequence[Batch]) -> None:
        self.whole, self.lake, self.stream = whole, whole.lake, whole.stream
        self.batches, self.every_batch = list(batches), whole.every_batch
        self._parts = {}
        self._numbers = [batch.batch for batch in batches]
        self.plan = whole.plan.of(self._numbers)

    @cached_property
    def rows(self) -> pa.Table:
        seq = self.whole.rows["seq"]
        kept = [
            pc.and_(pc.greater_equal(seq, b.first_seq), pc.less_equal(seq, b.last_seq)) for b in self.batches
        ]
        return self.whole.rows.filter(reduce(pc.or_, kept))

    @property
    def training_rows(self) -> pa.Table:
        return self.whole.training_rows

    def run(
        self,
        scheme: Mapping[str, str] | None = None,
        models: Mapping[str, AttributeModel] | None = None,
        paid_by_byte: bool = False,
        **settings: Any,
    ) -> RunResult:
        return self.whole.run(scheme, models, paid_by_byte, **settings).of(self._numbers)

    def run_everywhere(
        self, scheme: Mapping[str, str], models: Mapping[str, AttributeModel] | None = None
    ) -> RunResult:
        return self.whole.run_everywhere(scheme, models).of(self._numbers)


def training_and_later(lab: Lab) -> dict[str, LabPart]:
    """Return the batches with training tuples, and those of later tuples alone; an empty part is left out."""
    parts = {
        "training": [batch for batch in lab.batches if batch.first_seq <= lab.trained_to_seq],
        "later": [batch for batch in lab.batches if batch.first_seq > lab.trained_to_seq],
    }
    return {name: LabPart(lab, batches) for name, batches in parts.items() if batches}

"""Training in memory: the facts that `steps.train` writes, from an Arrow table, by the same functions.

>>> from evidence.attributes.generated import Source, generated
>>> facts = train(generated(Source("a.net", "internet", ("Router", "Response Time"), 9), cycles=40, seed=1))
>>> facts.cycle.attributes, facts.cycle.length, list(facts.models)
(('Router',), 9, ['Response_Time'])
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from evidence.attributes.streams import Delivery, MemoryStream
from spillway.levers.attributes.columns import Frame
from spillway.levers.attributes.cycle.find import Cycle
from spillway.levers.attributes.facts import Trained
from spillway.levers.attributes.frames import frame_of
from spillway.levers.attributes.policy import Load, Part
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold.curve import Threshold
from spillway.levers.attributes.training.choose import TrainedAttribute
from spillway.pipeline import train as step


@dataclass(frozen=True)
class Facts:
    """What training found, with the thresholds' sources and the rows it saw."""

    trained: Trained
    thresholds: Mapping[str, Threshold]
    rows: pa.Table

    @property
    def cycle(self) -> Cycle:
        return self.trained.cycle

    @property
    def models(self) -> Mapping[str, AttributeModel]:
        return self.trained.models

    @property
    def error_pct(self) -> dict[str, float]:
        """E by attribute."""
        return {name: one.error_pct for name, one in self.thresholds.items()}


def train(stream: MemoryStream, capacity_kbps: float | None = None) -> Facts:
    """Train a stream on its first tuples, as the first nightly training does.

    With the stream's part of its channel a second round leaves out the regressors that the scheme would shed.
    """
    contract = stream.contract
    rows = stream.rows.slice(0, contract.training.tuples)
    cycle = step.cycle_of(contract, stream.rows.slice(0, step.CYCLE_ROWS))
    category = step.category_of(contract)
    measures = [name for name in contract.sheddable if name not in cycle.attributes]
    thresholds = step.thresholds_of(contract, rows, cycle, category, measures)
    numeric = regressors_of(stream)
    frame = frame_of(rows, cycle.attributes, dict.fromkeys([*measures, *numeric]))
    errors = {name: thresholds[name].error_pct for name in measures}
    part = None if capacity_kbps is None else Part(capacity_kbps)
    load = None if part is None else load_of(stream, stream.deliveries[-1])
    found = step.train_models(contract, frame, errors, numeric, cycle, load, part)
    trained = Trained(
        contract.stream,
        1,
        cycle,
        {name: one.model for name, one in found.items()},
        {name: _evidence(one) for name, one in found.items()},
        {"domain": category.domain, "criticality": category.criticality},
        step.first_ranking(contract, rows, measures),
        int(rows["seq"][0].as_py()),
        int(rows["seq"][-1].as_py()),
    )
    return Facts(trained, thresholds, rows)


def _evidence(one: TrainedAttribute) -> dict[str, Any]:
    """An attribute's evidence as `models` holds it."""
    evidence = {**one.evidence, "options": [asdict(option) for option in one.options]}
    held: dict[str, Any] = json.loads(json.dumps(evidence, default=step.json_value))
    return held


def load_of(stream: MemoryStream, delivery: Delivery) -> Load:
    """Width and rate of a delivery, measured as `steps.policy.measure_load` does."""
    rows = delivery.rows.num_rows
    widths = {name: size * 8.0 / rows for name, size in delivery.column_bytes.items()}
    if stream.contract.width == "declared":
        widths = {a.name: float(a.declared_bits) for a in stream.contract.attributes} | {"seq": 64.0}
    return Load(widths, rows / delivery.seconds_covered)


def regressors_of(stream: MemoryStream) -> list[str]:
    """The numeric attributes that predictions may read when they are transmitted."""
    return [
        a.name
        for a in stream.contract.attributes
        if a.role in ("measure", "protected") and a.type != "string"
    ]


def training_frame(stream: MemoryStream, facts: Facts, rows: pa.Table | None = None) -> Frame:
    """The training rows (or others) as the frame that predictors are fitted on."""
    names = dict.fromkeys([*facts.models, *regressors_of(stream)])
    return frame_of(facts.rows if rows is None else rows, facts.cycle.attributes, names)


def paper_models(facts: Facts, names: Iterable[str] | None = None) -> dict[str, AttributeModel]:
    """The paper's form of every model: last stored value, exact entries, the same E."""
    chosen = facts.models if names is None else names
    return {
        name: AttributeModel(
            name, facts.models[name].kind, facts.error_pct[name], cycle_length=facts.cycle.length
        )
        for name in chosen
    }

"""Train a stream, and test later whether the trained facts still hold (drift).

`train_stream` finds the cycle, the category, the thresholds, a first ranking, and a model for each measure. The facts
of one training share one version. Measures are trained in two rounds: first as if every other attribute were sent, each
in a task of its own, then for the attributes that are shed at the current rate.

`detect_drift` compares the facts with later tuples during validation, and names what should be trained again:

- the cycle: members that joined or left, and how well its order still predicts the next tuple;
- the thresholds: the fixed point of later tuples and the trained one (Ahuja 2006, section 3.2.4.3), if the fixed point
  set the threshold;
- the attributes: trained attributes that the contract no longer has, or has with another type.

It trains nothing itself. The DAG `spillway_train` trains every night, and a batch keeps the models of its plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.levers.attributes import facts as kinds
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.cycle.identifier import (
    Cycle,
    CycleNotFound,
    cycle_drift,
    declared_cycle,
    find_cycle,
    single_sender_cycle,
)
from spillway.levers.attributes.facts import kind_of_type
from spillway.levers.attributes.frames import frame_of, key_codes
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.policy import (
    DecisionInputs,
    decide_stages,
    may_be_inexact,
    objective_of,
    own_bound,
    own_settings,
    smoothing_of,
    tuples_in_window,
)
from spillway.levers.attributes.ranking.rank import needs_data, rank
from spillway.levers.attributes.ranking.windows import window_tuples
from spillway.levers.attributes.settings import CRITICALITIES
from spillway.levers.attributes.threshold.category import Category, CategoryMatcher
from spillway.levers.attributes.threshold.curve import (
    LOOSEST_PCT,
    Threshold,
    are_codes,
    curve,
    fixed_point,
    threshold,
    threshold_drift,
)
from spillway.levers.attributes.training.cascade import (
    AttributeTrainer,
    recovery_order,
    train_attributes,
    train_cascade,
)
from spillway.levers.attributes.training.search import TrainedAttribute
from spillway.levers.attributes.window_planner import ranking_values
from spillway.levers.protocol import (
    CapacityShare,
    Drift,
    Fact,
    Facts,
    Load,
    Split,
    TrainingInput,
    question_evidence,
)

CYCLE_ROWS = 200_000
"""Number of rows in which the cycle is searched; more than for models, as members may join late and keys are cheap."""


def train_stream(lesson: TrainingInput) -> Split | None:
    """Return one training, divided by measure; None if the stream was trained before and has no tuples to learn from.

    What all measures need (cycle, category, thresholds) is found here. Then each measure is trained in a task of its
    own, and the facts are put together.
    """
    contract = lesson.contract
    rows, parity = _training_set(lesson)
    if lesson.is_retraining and not rows.num_rows:
        return None
    if rows.num_rows < 2:
        raise SpillwayError(
            f"{contract.stream}: training must have at least two tuples, got {rows.num_rows}; deliver more to "
            f"{contract.path} and let spillway_shed take them in"
        )
    cycle, unsure = cycle_of(contract, lesson.edge(contract.names, CYCLE_ROWS))
    category = category_of(contract)
    # an attribute of the identifier is never shed
    measures = tuple(name for name in contract.sheddable if name not in cycle.attributes)
    thresholds = thresholds_of(contract, rows, cycle, category, list(measures))
    lesson.say(
        f"{contract.stream}: learned from {rows.num_rows:,} tuples: {_describe_cycle(cycle)}, {category.domain}, "
        "thresholds " + ", ".join(f"{name} {_format_bound(thresholds[name])}" for name in measures)
    )
    training = Training(measures, cycle, unsure, category, thresholds, parity)
    return Split(measures, training.first_round, training.facts)


_read: tuple[Any, pa.Table, Frame] | None = None
"""The training set that this process read last, and the `TrainingInput.edge` that read it.

Parts of one training follow each other.
"""


@dataclass(frozen=True)
class Training:
    """What the parts of a training share. It travels to tasks; they read the training set themselves."""

    measures: tuple[str, ...]
    cycle: Cycle
    unsure: Mapping[str, Any]
    category: Category
    thresholds: Mapping[str, Threshold]
    parity: Mapping[str, Any]

    def first_round(self, lesson: TrainingInput, name: str) -> tuple[TrainedAttribute, dict[str, Any]]:
        """Return a measure, trained as if every other attribute were sent, and the evidence of its threshold."""
        rows, frame = self._training_set(lesson)
        learn = self._learning(lesson)
        (one,) = learn(frame, self._error_pct([name]), regressors=_numeric(lesson.contract)).values()
        return one, _curve_evidence(rows, self.cycle, name)

    def facts(
        self, lesson: TrainingInput, found: Sequence[tuple[TrainedAttribute, Mapping[str, Any]]]
    ) -> list[Fact]:
        """Return the facts; first train again the measures that the scheme would shed at the current rate."""
        contract = lesson.contract
        rows, frame = self._training_set(lesson)
        first = dict(zip(self.measures, (one for one, _ in found), strict=True))
        trained = second_round(
            lesson, frame, first, self._error_pct(self.measures), _numeric(contract), self._learning(lesson)
        )
        options = {name: one.options for name, one in trained.items()}
        facts = [
            Fact(
                kinds.CYCLE, "", self.cycle.to_dict(), {"rows": rows.num_rows, **self.parity, **self.unsure}
            ),
            category_fact(contract, self.category),
            Fact(
                kinds.RANKING,
                "",
                first_ranking(contract, rows, list(self.measures), self.cycle, lesson.load, options),
                {"rank_by": own_settings(contract).rank_by},
            ),
        ]
        for name, (_, curve_evidence) in zip(self.measures, found, strict=True):
            one, chosen = trained[name], self.thresholds[name]
            value = {
                "error_pct": _finite(chosen.error_pct),
                "error": chosen.error,
                "source": chosen.source,
            }
            facts.append(Fact(kinds.THRESHOLD, name, value, curve_evidence))
            facts.append(Fact(kinds.MODEL, name, one.model.to_dict(), one.evidence))
            facts.append(Fact(kinds.OPTIONS, name, [option.to_dict() for option in one.options]))
        return facts

    def _training_set(self, lesson: TrainingInput) -> tuple[pa.Table, Frame]:
        global _read
        read = _read
        if read is None or read[0] is not lesson.edge:
            rows, _ = _training_set(lesson)
            contract = lesson.contract
            names = dict.fromkeys([*self.measures, *_numeric(contract), contract.order])
            read = _read = (lesson.edge, rows, frame_of(rows, self.cycle.attributes, names))
        return read[1], read[2]

    def _error_pct(self, names: Sequence[str]) -> dict[str, float]:
        return {name: self.thresholds[name].error_pct for name in names}

    def _learning(self, lesson: TrainingInput) -> AttributeTrainer:
        settings = own_settings(lesson.contract)
        return partial(
            train_attributes,
            ways=settings.treatments,
            predictors=settings.predictors,
            cycle_length=self.cycle.length,
            error={name: one.error for name, one in self.thresholds.items() if one.error is not None},
            rate_pct=min(self.category.rate_pct, LOOSEST_PCT),
            clocks=clocks_of(lesson.contract),
        )


def _numeric(contract: StreamContract) -> list[str]:
    return [a.name for a in contract.attributes if a.role in ("measure", "protected") and a.type != "string"]


class DamagedTrainingSets(SpillwayError):
    """Every training set has a line that parity cannot correct; nothing is trained."""


def _training_set(lesson: TrainingInput) -> tuple[pa.Table, dict[str, Any]]:
    """Return the training set: the first tuples of a new stream, the last tuples of one trained before.

    If lines have parity, a tuple that could not be corrected may hide a repetition. Its training set is discarded, and
    the next set is tried (Ahuja 2006, section 3.2.1.1).
    """
    contract, training = lesson.contract, own_settings(lesson.contract).training
    count = training.tuples
    if contract.source.parity == "none":
        return lesson.edge(contract.names, count), {"parity": "none"}
    offered = lesson.edge(contract.names, count * training.candidates)
    sets = [offered.slice(start, count) for start in range(0, offered.num_rows, count)]
    discarded: list[int] = []
    for rows in reversed(sets) if lesson.is_retraining else sets:
        lost = lesson.damaged(rows["seq"][0].as_py(), rows["seq"][-1].as_py())
        if not lost:
            return rows, {"parity": contract.source.parity, "discarded_sets": discarded}
        discarded.append(lost)
    if not discarded:
        return offered, {"parity": contract.source.parity}
    raise DamagedTrainingSets(
        f"{contract.stream}: training must find a set of {count:,} tuples without a line that parity cannot correct, "
        f"got {len(discarded)} sets with {', '.join(map(str, discarded))} such lines; nothing was trained: send more "
        "data, or find the fault of the line"
    )


def second_round(
    lesson: TrainingInput,
    frame: Frame,
    first: Mapping[str, TrainedAttribute],
    error_pct: Mapping[str, float],
    numeric: Sequence[str],
    learn: AttributeTrainer,
) -> dict[str, TrainedAttribute]:
    """Return the models for the scheme that is expected at the current rate, and those of the first round otherwise.

    The options of the first round show which attributes the scheme sheds. These are trained again in the order of their
    recovery. Each may use the attributes that are sent, and those before it as recovered. So they are trained one after
    the other.
    """
    if lesson.load is None or lesson.part is None:
        return dict(first)
    settings = own_settings(lesson.contract)
    options = {name: one.options for name, one in first.items()}
    terms = objective_of(settings, lesson.channel)
    gone = expected_shed(DecisionInputs(settings, options, lesson.load, terms), lesson.part)
    order = recovery_order(first, [name for name in error_pct if name in gone])
    sent = [name for name in numeric if name not in gone]
    again = train_cascade(frame, error_pct, order, sent, learn)
    # attributes that are kept for now come last: if they are shed later, they may use all of these
    rest = {
        name: replace(one, model=replace(one.model, rank=len(order) + place))
        for place, (name, one) in enumerate(first.items())
        if name not in again
    }
    return {name: (again | rest)[name] for name in error_pct}


def clocks_of(contract: StreamContract) -> dict[str, str]:
    """Return the order attribute and the unit of its stored times; empty if it is no time."""
    units = {"timestamp": "us", "date": "d"}
    kind = contract.attribute(contract.order).type
    return {contract.order: units[kind]} if kind in units else {}


def expected_shed(rests_on: DecisionInputs, part: CapacityShare) -> set[str]:
    """Return the attributes that the plan would shed at this load."""
    decision = decide_stages(rests_on, part, list(rests_on.options))
    return {way.attribute for way in decision.ways if way.way == "shed"}


def cycle_of(contract: StreamContract, rows: pa.Table) -> tuple[Cycle, dict[str, Any]]:
    """Return the stream's identifier and its evidence.

    The identifier is stated in the contract, or found, beginning with the declared keys. If there is no key and no
    cycle, all tuples are assumed to belong to one sender.
    """
    arrays = {name: plain_values(rows[name]) for name in contract.names if name != contract.order}
    seq = np.asarray(rows["seq"])
    arrays[contract.order] = plain_values(rows[contract.order])
    by_hand = own_settings(contract).cycle.attributes
    if by_hand is not None:
        return (
            declared_cycle(arrays, seq, by_hand, order=contract.order) if by_hand else single_sender_cycle()
        ), {}
    bits = {attribute.name: attribute.declared_bits for attribute in contract.attributes}
    try:
        found = find_cycle(
            arrays,
            seq,
            bits,
            order=contract.order,
            keys=contract.keys,
        )
    except CycleNotFound as none:
        return single_sender_cycle(), {
            "closest": list(none.attributes),
            "reason": none.reason,
            **_request_for_key(contract),
        }
    return found, {}


def _request_for_key(contract: StreamContract) -> dict[str, Any]:
    """Return a request for the key of a stream if an attribute that is no measure may be the name of the sender."""
    names = [a.name for a in contract.attributes if a.role == "protected" and a.type in ("string", "integer")]
    if not names:
        return {}
    return question_evidence(
        f"whose tuples these are cannot be told (no key is declared and nothing comes round): all are taken for one "
        f"sender's, though {', '.join(names)} may tell several apart",
        f"give what names the sender role: key in schemas/streams/{contract.stream}.yaml, or write "
        "cycle: {attributes: []} under its lever attributes where one sends all; the next training takes it",
    )


def _describe_cycle(cycle: Cycle) -> str:
    names = "+".join(cycle.attributes)
    if cycle.is_ordered:
        return f"cycle {names} of {cycle.length} ({cycle.form})"
    if not cycle.attributes:
        return "no cycle and no key: all of one sender"
    return f"no cycle: {cycle.length:,} values of {names}, identified by keys"


def plain_values(values: pa.ChunkedArray) -> np.ndarray:
    """Return numbers as they are; objects for text, and for integers with nulls."""
    column = Column.from_arrow(values)
    if column.kind == "real":
        return np.where(column.valid, column.values, np.nan)
    if column.kind == "integer" and bool(column.valid.all()):
        return column.values
    return np.array(column.to_list(), dtype=object)


def category_of(contract: StreamContract) -> Category:
    matcher = CategoryMatcher.standard()
    stated = own_settings(contract).criticality
    if stated:
        return Category("stated in the contract", stated, matcher.rate_pct(stated))
    return matcher.classify(list(contract.names))


def category_fact(contract: StreamContract, category: Category) -> Fact:
    """Return the category as a fact; if it was assumed, the evidence asks the owner of the contract to state it."""
    value = {"domain": category.domain, "criticality": category.criticality, "assumed": category.assumed}
    evidence: dict[str, Any] = {
        "rate_pct": category.rate_pct,
        "words": list(category.words),
        "explained": {domain: round(share, 3) for domain, share in category.explained.items()},
    }
    if category.assumed:
        evidence |= question_evidence(
            f"how critical it is cannot be told from its attributes' names ({category.domain}), so errors are held to "
            f"{category.rate_pct:g} %, the strictest class",
            f"write criticality: ({'|'.join(CRITICALITIES)}) under its lever attributes in "
            f"schemas/streams/{contract.stream}.yaml; the next training takes it",
        )
    return Fact(kinds.CATEGORY, "", value, evidence)


def thresholds_of(
    contract: StreamContract, rows: pa.Table, cycle: Cycle, category: Category, measures: list[str]
) -> dict[str, Threshold]:
    """Return E of every measure: stated in the contract, or trained for quantities (Ahuja 2006, section 3.2.4.3).

    An attribute that is no quantity is recovered exactly, unless the contract states a bound for it.
    """
    found = {}
    keys, settings = key_codes(rows, cycle.attributes), own_settings(contract)
    for name in measures:
        attribute = contract.attribute(name)
        own = own_bound(attribute)
        if attribute.type == "string":
            found[name] = Threshold(0.0, "text is given back exactly")
        elif own is not None:
            found[name] = Threshold(own.error_pct, "contract", attribute.error)
        elif not may_be_inexact(attribute):
            found[name] = Threshold(0.0, "codes by contract" if attribute.codes else "no quantity")
        elif are_codes(Column.from_arrow(rows[name])):
            found[name] = Threshold(0.0, "codes: few different values")
        elif settings.error_pct is not None:
            found[name] = Threshold(min(settings.error_pct, LOOSEST_PCT), "contract")
        elif settings.bounds == "stated":
            found[name] = Threshold(0.0, "no bound is stated")
        else:
            found[name] = threshold(fixed_point(curve(ranking_values(rows[name]), keys)), category.rate_pct)
    return found


def _curve_evidence(rows: pa.Table, cycle: Cycle, name: str) -> dict[str, Any]:
    values = ranking_values(rows[name])
    if values.dtype == object:
        return {}
    drawn = curve(values, key_codes(rows, cycle.attributes))
    return {
        "fixed_point_pct": fixed_point(drawn),
        "error_pct": list(drawn.error_pct),
        "stored_share_pct": [round(share, 4) for share in drawn.stored_share_pct],
    }


def first_ranking(
    contract: StreamContract,
    rows: pa.Table,
    measures: list[str],
    cycle: Cycle,
    load: Load | None,
    options: Mapping[str, Sequence[Option]],
) -> dict[str, float]:
    """Return the initial scores by the contract's rule: the mean of the scores of the training set's windows.

    `recoverability` needs no window: it is computed from the options that training measured. For the other rules the
    windows have the length of those that are ranked later. Over the whole set, attributes with a slow drift would score
    highest, and no single window would agree.
    """
    if not measures:
        return {}
    settings = own_settings(contract)
    if not needs_data(settings.rank_by):
        return {name: -kinds.recoverability(options[name]) + 0.0 for name in measures}
    smoothing = smoothing_of(settings)
    least = settings.window.tuples_at_least if load is None else tuples_in_window(settings, load)
    window = window_tuples(cycle.length, least)
    # the last window includes the remaining rows
    starts = range(0, max(1, rows.num_rows - window + 1), window)
    totals = dict.fromkeys(measures, 0.0)
    columns = {name: ranking_values(rows[name]) for name in measures}
    for start, end in pairwise([*starts, rows.num_rows]):
        part = {name: values[start:end] for name, values in columns.items()}
        for one in rank(part, measures, settings.rank_by, smoothing):
            totals[one.attribute] += one.score
    return {name: total / len(starts) for name, total in totals.items()}


def _format_bound(one: Threshold) -> str:
    """Return a bound in words: in per cent, in the attribute's own unit, or both.

    >>> _format_bound(Threshold(4.5, "contract", 0.5)), _format_bound(Threshold(math.inf, "contract", 0.5))
    ('4.5 % and 0.5', '0.5')
    """
    said = [f"{one.error_pct:g} %"] if math.isfinite(one.error_pct) else []
    return " and ".join(said + ([f"{one.error:g}"] if one.error is not None else []))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def detect_drift(
    contract: StreamContract, facts: Facts, edge: Callable[[Sequence[str], int], pa.Table]
) -> list[Drift]:
    """Return the drift of the facts in force, as seen in the last tuples."""
    rows = edge(contract.names, own_settings(contract).training.tuples)
    if not rows.num_rows:
        return []
    cycle = Cycle.from_dict(facts.value(kinds.CYCLE))
    found = list(_drift_of_attributes(contract, cycle, facts))
    if set(cycle.attributes) <= set(contract.names):
        found += [
            *_drift_of_cycle(contract, cycle, rows),
            *_drift_of_thresholds(contract, cycle, facts, rows),
        ]
    return found


def _drift_of_attributes(contract: StreamContract, cycle: Cycle, facts: Facts) -> Iterator[Drift]:
    """Yield the trained attributes that the contract no longer has, or has with another type."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    lost = [(name, f"it makes the cycle {'+'.join(cycle.attributes)}") for name in cycle.attributes]
    lost += [(name, "it was trained") for name in facts.of(kinds.THRESHOLD)]
    for name, why in lost:
        if name not in types:
            yield Drift(
                "the_attributes_are_those_trained",
                f"{name} is gone",
                f"{name}, as trained",
                f"{contract.stream}: {name} is gone from the contract, and {why}; retrain it",
            )
    for name, fact in facts.of(kinds.MODEL).items():
        if name in types and kind_of_type(types[name]) != fact.value["kind"]:
            yield Drift(
                "the_attributes_are_those_trained",
                f"{name} is {types[name]}",
                f"{fact.value['kind']}, as trained",
                f"{contract.stream}: {name} is {types[name]} in the contract and was trained as {fact.value['kind']}: "
                "it is kept as it is until the stream is retrained",
            )


def _drift_of_cycle(contract: StreamContract, cycle: Cycle, rows: pa.Table) -> Iterator[Drift]:
    columns = {name: plain_values(rows[name]) for name in cycle.attributes}
    found = cycle_drift(cycle, columns, np.asarray(rows["seq"]))
    if found.needs_retraining:
        yield Drift(
            "the_cycle_still_holds",
            f"confidence {found.confidence:.3f}",
            f"at least {found.needed_confidence:.2f}, same members",
            f"{contract.stream}: {found}; retrain it",
        )


def _drift_of_thresholds(
    contract: StreamContract, cycle: Cycle, facts: Facts, rows: pa.Table
) -> Iterator[Drift]:
    keys = key_codes(rows, cycle.attributes)
    for name, fact in facts.of(kinds.THRESHOLD).items():
        point = fact.evidence.get("fixed_point_pct")
        if point is None or fact.value["source"] != "fixed_point" or name not in contract.names:
            continue
        if contract.attribute(name).type == "string":
            continue
        seen = threshold_drift(float(point), fixed_point(curve(ranking_values(rows[name]), keys)))
        if seen.retrain:
            yield Drift(
                "the_thresholds_still_hold",
                f"{name}: fixed point {seen.observed_pct:g} %",
                f"{seen.trained_pct:g} %, give or take a quarter",
                f"{contract.stream}: {name} was trained to a fixed point of {seen.trained_pct:g} %, later tuples "
                f"have {seen.observed_pct:g} %; retrain it, or state error_pct in the contract",
            )

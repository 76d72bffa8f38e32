"""Training: cycle, category, thresholds, ranking and the models of every measure, into `models`.

All facts of one training share a version, written in one commit: a batch is pinned to a version, so a retraining
between a kill and the rerun changes nothing. An untrained stream is trained on its first tuples, so that the rest
tests it; a trained one on its last. What cannot be trained is said by name, and the other streams go on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.contracts import Contracts, StreamContract
from spillway.errors import SpillwayError
from spillway.levers.attributes.capacity.channel_shares import channel_parts
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.cycle.find import Cycle, declared_cycle, find_cycle
from spillway.levers.attributes.facts import Trained, load_trained
from spillway.levers.attributes.frames import frame_of, key_codes
from spillway.levers.attributes.planner import rankable
from spillway.levers.attributes.policy import Load, Part, decide_stages, measure_load, smoothing_of
from spillway.levers.attributes.ranking.rank import rank
from spillway.levers.attributes.threshold.categories import Category, Matcher
from spillway.levers.attributes.threshold.curve import Threshold, curve, fixed_point, threshold
from spillway.levers.attributes.training.choose import Trained as TrainedAttribute
from spillway.levers.attributes.training.choose import recovery_order, train_attributes, train_cascade
from spillway.levers.attributes.training.parity import sound_training_set
from spillway.store.batches import RECORDED, RETIRED, Batch, load_batches, utc_now
from spillway.store.files import DataFile
from spillway.store.rows import edge_rows, stream_files
from spillway.store.tables import Lake, where

MEAN_ERROR_PCT = 0.6
"""What recovery aims at on average, where that costs no more bytes than the paper's method at the threshold."""
CYCLE_ROWS = 200_000
"""The cycle is looked for in more rows than the models: members may join late, and keys are cheap to read."""


def train_stream(
    lake: Lake, contracts: Contracts, stream: str, say: Callable[[str], None] = lambda _: None
) -> Trained:
    """Train one stream on what has been taken in; returns the facts it wrote."""
    contract = contracts.stream(stream)
    before = load_trained(lake.settings, stream)
    held = [b for b in load_batches(lake.settings, stream) if b.status not in (RECORDED, RETIRED) and b.rows]
    files = stream_files(lake.settings, "raw", stream, held)
    again = before is not None
    rows, parity = _training_set(contract, files, again)
    if before is not None and not files:
        say(f"{stream}: nothing to train on, all raw tuples were retired; version {before.version} stays")
        return before
    if rows.num_rows < 2:
        raise SpillwayError(
            f"{stream}: training must have at least two tuples, got {rows.num_rows}; deliver more to "
            f"{contract.path} and let spillway_shed take them in"
        )
    cycle = cycle_of(contract, edge_rows(files, list(contract.names), CYCLE_ROWS, last=again))
    category = category_of(contract)
    measures = [name for name in contract.sheddable if name not in cycle.attributes]
    thresholds = thresholds_of(contract, rows, cycle, category, measures)
    numeric = [
        a.name for a in contract.attributes if a.role in ("measure", "protected") and a.type != "string"
    ]
    frame = frame_of(rows, cycle.attributes, dict.fromkeys([*measures, *numeric]))
    errors = {name: thresholds[name].error_pct for name in measures}
    load, part = _today(lake, contracts, contract, held)
    trained = train_models(contract, frame, errors, numeric, cycle, load, part)
    version = before.version + 1 if before else 1
    span = (rows["seq"][0].as_py(), rows["seq"][-1].as_py())
    facts = [_fact("cycle", "", cycle.to_dict(), {"rows": rows.num_rows, **parity})]
    facts.append(
        _fact(
            "category",
            "",
            {"domain": category.domain, "criticality": category.criticality},
            {"rate_pct": _finite(category.rate_pct), "words": list(category.words)},
        )
    )
    scores = first_ranking(contract, rows, measures)
    facts.append(_fact("ranking", "", scores, {"rank_by": contract.rank_by}))
    for name in measures:
        one = trained[name]
        chosen = thresholds[name]
        facts.append(
            _fact(
                "threshold",
                name,
                {"error_pct": chosen.error_pct, "source": chosen.source},
                _curve_evidence(rows, cycle, name),
            )
        )
        facts.append(
            _fact(
                "attribute",
                name,
                one.model.to_dict(),
                {**one.evidence, "options": [asdict(option) for option in one.options]},
            )
        )
    now = utc_now()
    stamped = [
        {
            "stream": stream,
            "version": version,
            "trained_from_seq": span[0],
            "trained_to_seq": span[1],
            "created_at": now,
            **fact,
        }
        for fact in facts
    ]
    lake.replace_rows("models", stamped, where(stream=stream, version=version))
    say(
        f"{stream}: trained version {version} on {rows.num_rows:,} tuples: cycle {'+'.join(cycle.attributes)} of "
        f"{cycle.length} ({cycle.form}), {category.domain}, thresholds "
        + ", ".join(f"{name} {thresholds[name].error_pct:g} %" for name in measures)
    )
    found = load_trained(lake.settings, stream, version)
    assert found is not None, "what was just written is there"
    return found


def _training_set(
    contract: StreamContract, files: Sequence[DataFile], again: bool
) -> tuple[pa.Table, dict[str, Any]]:
    """The first tuples of a stream never trained, the last of one trained before; sound ones where parity tells."""
    count = contract.training.tuples
    if contract.training.parity == "none":
        return edge_rows(files, list(contract.names), count, last=again), {"parity": "none"}
    tries = contract.training.candidates
    offered = edge_rows(files, list(contract.names), count * tries, last=again)
    sets = [offered.slice(start, count) for start in range(0, offered.num_rows, count)]
    return sound_training_set(contract, reversed(sets) if again else sets)


def train_models(
    contract: StreamContract,
    frame: Frame,
    error_pct: Mapping[str, float],
    numeric: Sequence[str],
    cycle: Cycle,
    load: Load | None,
    part: Part | None,
) -> dict[str, TrainedAttribute]:
    """Models in two rounds: first as if every other attribute were sent, then for what the channel makes go.

    The first round's options say which attributes the scheme will shed at today's rate. These are trained again in the
    order of their recovery, each leaning on what is sent and on those before it as recovered.
    """
    learn = partial(
        train_attributes,
        ways=contract.ways,
        predictors=contract.predictors,
        cycle_length=cycle.length,
    )
    first = learn(frame, error_pct, regressors=numeric)
    if load is None or part is None:
        return first
    gone = expected_shed(contract, first, load, part)
    order = recovery_order(first, [name for name in error_pct if name in gone])
    sent = [name for name in numeric if name not in gone]
    again = train_cascade(frame, error_pct, order, sent, learn)
    # whatever is kept for now comes last: should it be shed one day, it may lean on all of these
    rest = {
        name: replace(one, model=replace(one.model, rank=len(order) + place))
        for place, (name, one) in enumerate(first.items())
        if name not in again
    }
    return {name: (again | rest)[name] for name in error_pct}


def _today(
    lake: Lake, contracts: Contracts, contract: StreamContract, held: Sequence[Batch]
) -> tuple[Load | None, Part | None]:
    """The load of the stream's last batch, and its part of the channel beside what the others have taken in."""
    rated = [batch for batch in held if batch.rows and batch.seconds_covered]
    if not rated:
        return None, None
    root = contracts.planned_with(contract.channel)
    waiting = {
        other.stream: [
            b for b in load_batches(lake.settings, other.stream) if b.status not in (RECORDED, RETIRED)
        ]
        for other in contracts.streams_of(root)
    }
    part = channel_parts(lake.settings, contracts, root, waiting)[contract.stream]
    return measure_load(lake.settings, contract, rated[-1]), part


def expected_shed(
    contract: StreamContract, trained: Mapping[str, TrainedAttribute], load: Load, part: Part
) -> set[str]:
    """The attributes that the plan would shed at this load."""
    options = {name: [asdict(option) for option in one.options] for name, one in trained.items()}
    decision = decide_stages(contract, options, load, part, list(trained))
    return {way.attribute for way in decision.ways if way.way == "shed"}


def cycle_of(contract: StreamContract, rows: pa.Table) -> Cycle:
    arrays = {name: plain_values(rows[name]) for name in contract.names if name != contract.order}
    seq = np.asarray(rows["seq"])
    arrays[contract.order] = plain_values(rows[contract.order])
    by_hand = contract.cycle.attributes
    if by_hand:
        return declared_cycle(arrays, seq, by_hand, order=contract.order)
    bits = {attribute.name: attribute.declared_bits for attribute in contract.attributes}
    return find_cycle(arrays, seq, bits, order=contract.order)


def plain_values(values: pa.ChunkedArray) -> np.ndarray:
    """Objects for text and for whatever has nulls that are not floats; numbers as they are."""
    column = Column.from_arrow(values)
    if column.kind == "real":
        return np.where(column.valid, column.values, np.nan)
    if column.kind == "integer" and bool(column.valid.all()):
        return column.values
    return np.array(column.to_list(), dtype=object)


def category_of(contract: StreamContract) -> Category:
    matcher = Matcher.standard()
    if contract.criticality:
        rate = matcher.rates_pct[contract.criticality]
        return Category("stated in the contract", contract.criticality, rate, (), None)
    return matcher.classify(list(contract.names))


def thresholds_of(
    contract: StreamContract, rows: pa.Table, cycle: Cycle, category: Category, measures: list[str]
) -> dict[str, Threshold]:
    """E of every measure: the lower of fixed point and category, unless the contract overrules (3.2.4.3)."""
    found = {}
    keys = key_codes(rows, cycle.attributes)
    for name in measures:
        attribute = contract.attribute(name)
        overrule = attribute.error_pct if attribute.error_pct is not None else contract.error_pct
        if attribute.type == "string":
            found[name] = Threshold(0.0, "text is given back exactly")
            continue
        point = fixed_point(curve(rankable(rows[name]), keys))
        found[name] = threshold(point, category.rate_pct, overrule)
    return found


def _curve_evidence(rows: pa.Table, cycle: Cycle, name: str) -> dict[str, Any]:
    values = rankable(rows[name])
    if values.dtype == object:
        return {}
    drawn = curve(values, key_codes(rows, cycle.attributes))
    return {
        "fixed_point_pct": fixed_point(drawn),
        "error_pct": list(drawn.error_pct),
        "stored_share_pct": [round(share, 4) for share in drawn.stored_share_pct],
    }


def first_ranking(contract: StreamContract, rows: pa.Table, measures: list[str]) -> dict[str, float]:
    """The ranking to begin with: that of the training set as one window."""
    if not measures:
        return {}
    smoothing = smoothing_of(contract)
    by = "relative" if contract.rank_by == "recoverability" else contract.rank_by
    ranked = rank({name: rankable(rows[name]) for name in measures}, measures, by, smoothing)
    return {one.attribute: one.score for one in ranked}


def _fact(fact: str, subject: str, value: Mapping[str, Any], evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "fact": fact,
        "subject": subject,
        "value": json.dumps(value, default=json_value),
        "evidence": json.dumps(evidence, default=json_value),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def json_value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)

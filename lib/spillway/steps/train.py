"""Training: cycle, category, thresholds, ranking and the models of every measure, into `models`.

All facts of one training share a version, written in one commit: a batch is pinned to a version, so a retraining
between a kill and the rerun changes nothing. An untrained stream is trained on its first tuples, so that the rest
tests it; a trained one on its last. What cannot be trained is said by name, and the other streams go on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.attributes.categories import Category, Matcher
from spillway.attributes.choice import Trained as TrainedAttribute
from spillway.attributes.choice import train_attributes
from spillway.attributes.columns import Column, Frame
from spillway.attributes.cycle import Cycle, declared_cycle, find_cycle
from spillway.attributes.frames import frame_of, key_codes
from spillway.attributes.planner import rankable
from spillway.attributes.ranking import rank
from spillway.attributes.thresholds import Threshold, curve, fixed_point, threshold
from spillway.contracts import Contracts, StreamContract
from spillway.errors import SpillwayError
from spillway.lake.batches import RECORDED, RETIRED, Batch, load_batches, utc_now
from spillway.lake.files import DataFile
from spillway.lake.tables import Lake, where
from spillway.steps.parity import sound_training_set
from spillway.steps.parts import channel_parts
from spillway.steps.policy import Load, Part, decide_stages, measure_load, smoothing_of
from spillway.steps.rows import edge_rows, stream_files
from spillway.steps.trained import Trained, load_trained

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
    cycle = _cycle(contract, edge_rows(files, list(contract.names), CYCLE_ROWS, last=again))
    category = _category(contract)
    measures = [name for name in contract.sheddable if name not in cycle.attributes]
    thresholds = _thresholds(contract, rows, cycle, category, measures)
    numeric = [
        a.name for a in contract.attributes if a.role in ("measure", "protected") and a.type != "string"
    ]
    frame = frame_of(rows, cycle.attributes, dict.fromkeys([*measures, *numeric]))
    errors = {name: thresholds[name].error_pct for name in measures}
    trained = _models(lake, contracts, contract, frame, errors, numeric, cycle, held)
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
    scores = _last_ranking(contract, rows, measures)
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


def _models(
    lake: Lake,
    contracts: Contracts,
    contract: StreamContract,
    frame: Frame,
    error_pct: Mapping[str, float],
    numeric: Sequence[str],
    cycle: Cycle,
    held: Sequence[Batch],
) -> dict[str, TrainedAttribute]:
    """Models in two rounds: first as if every other attribute were sent, then without what the channel makes go.

    A model that leans on an attribute which the scheme sheds falls back row by row, within its bound but not as small
    as one trained for it; the second round trains for the scheme that the first one leads to at today's rate.
    """
    train = partial(
        train_attributes,
        frame,
        error_pct,
        ways=contract.ways,
        predictors=contract.predictors,
        cycle_length=cycle.length,
    )
    first = train(regressors=numeric)
    rated = [batch for batch in held if batch.rows and batch.seconds_covered]
    if not rated:
        return first
    part = channel_parts(lake.settings, contracts, contract.channel, {contract.stream: rated})[
        contract.stream
    ]
    load = measure_load(lake.settings, contract, rated[-1])
    sent = [name for name in numeric if name not in _expected_shed(contract, first, load, part)]
    return first if len(sent) == len(numeric) else train(regressors=sent)


def _expected_shed(
    contract: StreamContract, trained: Mapping[str, TrainedAttribute], load: Load, part: Part
) -> set[str]:
    options = {name: [asdict(option) for option in one.options] for name, one in trained.items()}
    decision = decide_stages(contract, options, load, part, list(trained))
    return {way.attribute for way in decision.ways if way.way == "shed"}


def _cycle(contract: StreamContract, rows: pa.Table) -> Cycle:
    arrays = {name: _plain(rows[name]) for name in contract.names if name != contract.order}
    seq = np.asarray(rows["seq"])
    arrays[contract.order] = _plain(rows[contract.order])
    by_hand = contract.cycle.attributes
    if by_hand:
        return declared_cycle(arrays, seq, by_hand, order=contract.order)
    bits = {attribute.name: attribute.declared_bits for attribute in contract.attributes}
    return find_cycle(arrays, seq, bits, order=contract.order)


def _plain(values: pa.ChunkedArray) -> np.ndarray:
    """Objects for text and for whatever has nulls that are not floats; numbers as they are."""
    column = Column.from_arrow(values)
    if column.kind == "real":
        return np.where(column.valid, column.values, np.nan)
    if column.kind == "integer" and bool(column.valid.all()):
        return column.values
    return np.array(column.to_list(), dtype=object)


def _category(contract: StreamContract) -> Category:
    matcher = Matcher.standard()
    if contract.criticality:
        rate = matcher.rates_pct[contract.criticality]
        return Category("stated in the contract", contract.criticality, rate, (), None)
    return matcher.classify(list(contract.names))


def _thresholds(
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


def _last_ranking(contract: StreamContract, rows: pa.Table, measures: list[str]) -> dict[str, float]:
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
        "value": json.dumps(value, default=_json),
        "evidence": json.dumps(evidence, default=_json),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _json(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)

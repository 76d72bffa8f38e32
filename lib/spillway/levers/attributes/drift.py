"""Do the trained facts still hold? Checked on what came later, next to validation; asks for retraining by name.

The cycle: members that came or went, and how well its order still foretells the next tuple. The thresholds: the fixed
point of later tuples against the trained one (3.2.4.3), where the fixed point is what set the threshold. Nothing is
retrained here: `spillway_train` does that every night, and a batch keeps the models it was planned with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.checks import Outcome
from spillway.contracts import StreamContract
from spillway.levers.attributes.cycle.members import drift as cycle_drift
from spillway.levers.attributes.facts import Trained, load_trained
from spillway.levers.attributes.frames import key_codes
from spillway.levers.attributes.planner import rankable
from spillway.levers.attributes.threshold.curve import curve, fixed_point
from spillway.levers.attributes.threshold.curve import drift as threshold_drift
from spillway.pipeline.train import plain_values
from spillway.settings import Settings
from spillway.store.batches import Batch
from spillway.store.files import read_table
from spillway.store.rows import edge_rows, stream_files
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path


def drift_outcomes(settings: Settings, contract: StreamContract, batches: Sequence[Batch]) -> list[Outcome]:
    """What the newest of these batches says of the models in force; reported, never a failure."""
    trained = load_trained(settings, contract.stream)
    if trained is None or not batches:
        return []
    files = stream_files(settings, "raw", contract.stream, [batches[-1]])
    rows = edge_rows(files, list(contract.names), contract.training.tuples, last=True)
    if not rows.num_rows:
        return []
    found = [_of_cycle(contract, trained, rows), *_of_thresholds(settings, contract, trained, rows)]
    return [outcome for outcome in found if outcome is not None]


def _of_cycle(contract: StreamContract, trained: Trained, rows: pa.Table) -> Outcome | None:
    columns = {name: plain_values(rows[name]) for name in trained.cycle.attributes}
    found = cycle_drift(trained.cycle, columns, np.asarray(rows["seq"]))
    if not found.needs_retraining:
        return None
    return _outcome(
        contract,
        "the_cycle_still_holds",
        f"confidence {found.confidence:.3f}",
        f"at least {found.needed_confidence:.2f}, same members",
        f"{contract.stream}: {found}; retrain it",
    )


def _of_thresholds(
    settings: Settings, contract: StreamContract, trained: Trained, rows: pa.Table
) -> list[Outcome]:
    keys = key_codes(rows, trained.cycle.attributes)
    outcomes = []
    for name, (source, point) in _fixed_points(settings, trained).items():
        if source != "fixed_point" or contract.attribute(name).type == "string":
            continue
        seen = threshold_drift(point, fixed_point(curve(rankable(rows[name]), keys)))
        if seen.retrain:
            outcomes.append(
                _outcome(
                    contract,
                    "the_thresholds_still_hold",
                    f"{name}: fixed point {seen.observed_pct:g} %",
                    f"{seen.trained_pct:g} %, give or take a quarter",
                    f"{contract.stream}: {name} was trained to a fixed point of {seen.trained_pct:g} %, later tuples "
                    f"have {seen.observed_pct:g} %; retrain it, or state error_pct in the contract",
                )
            )
    return outcomes


def _fixed_points(settings: Settings, trained: Trained) -> dict[str, tuple[str, float]]:
    """Per attribute what set its threshold, and the trained fixed point."""
    path = table_path(settings, table_contracts(settings.schemas)["models"])
    filters: list[Any] = [
        ("stream", "=", trained.stream),
        ("version", "=", trained.version),
        ("fact", "=", "threshold"),
    ]
    table = read_table(path, ["subject", "value", "evidence"], filters)
    found = {}
    for row in table.to_pylist() if table is not None else []:
        evidence = json.loads(row["evidence"])
        if "fixed_point_pct" in evidence:
            found[row["subject"]] = (json.loads(row["value"])["source"], float(evidence["fixed_point_pct"]))
    return found


def _outcome(contract: StreamContract, rule: str, observed: str, expected: str, sentence: str) -> Outcome:
    return Outcome(
        "models", contract.stream, None, rule, True, observed, expected, contract.stream, sentence, True
    )

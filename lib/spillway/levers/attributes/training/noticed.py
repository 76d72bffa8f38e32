"""Do the trained facts still hold? Checked on what came later, next to validation; asks for retraining by name.

The cycle: members that came or went, and how well its order still foretells the next tuple. The thresholds: the fixed
point of later tuples against the trained one (3.2.4.3), where the fixed point is what set the threshold. Nothing is
retrained here: `spillway_train` does that every night, and a batch keeps the models it was planned with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from spillway.contracts import StreamContract
from spillway.levers.attributes import facts as kinds
from spillway.levers.attributes.cycle.find import Cycle
from spillway.levers.attributes.cycle.members import cycle_drift
from spillway.levers.attributes.frames import key_codes
from spillway.levers.attributes.planner import rankable
from spillway.levers.attributes.policy import own_settings
from spillway.levers.attributes.threshold.curve import curve, fixed_point, threshold_drift
from spillway.levers.attributes.training.lesson import plain_values
from spillway.levers.protocol import Facts, Noticed


def noticed(
    contract: StreamContract, facts: Facts, edge: Callable[[Sequence[str], int], pa.Table]
) -> list[Noticed]:
    """What the last tuples say of the facts in force."""
    rows = edge(contract.names, own_settings(contract).training.tuples)
    if not rows.num_rows:
        return []
    cycle = Cycle.from_dict(facts.value(kinds.CYCLE))
    lost = [name for name in cycle.attributes if name not in contract.names]
    if lost:
        named = ", ".join(lost)
        return [
            Noticed(
                "the_cycle_still_holds",
                f"{named} left the contract",
                "every attribute of the identifier in the contract",
                f"{contract.stream}: tuples are identified by {named}, which the contract no longer has; retrain it",
            )
        ]
    return [*_of_cycle(contract, cycle, rows), *_of_thresholds(contract, cycle, facts, rows)]


def _of_cycle(contract: StreamContract, cycle: Cycle, rows: pa.Table) -> Iterator[Noticed]:
    columns = {name: plain_values(rows[name]) for name in cycle.attributes}
    found = cycle_drift(cycle, columns, np.asarray(rows["seq"]))
    if found.needs_retraining:
        yield Noticed(
            "the_cycle_still_holds",
            f"confidence {found.confidence:.3f}",
            f"at least {found.needed_confidence:.2f}, same members",
            f"{contract.stream}: {found}; retrain it",
        )


def _of_thresholds(contract: StreamContract, cycle: Cycle, facts: Facts, rows: pa.Table) -> Iterator[Noticed]:
    keys = key_codes(rows, cycle.attributes)
    for name, fact in facts.of(kinds.THRESHOLD).items():
        point = fact.evidence.get("fixed_point_pct")
        if point is None or fact.value["source"] != "fixed_point" or name not in contract.names:
            continue
        if contract.attribute(name).type == "string":
            continue
        seen = threshold_drift(float(point), fixed_point(curve(rankable(rows[name]), keys)))
        if seen.retrain:
            yield Noticed(
                "the_thresholds_still_hold",
                f"{name}: fixed point {seen.observed_pct:g} %",
                f"{seen.trained_pct:g} %, give or take a quarter",
                f"{contract.stream}: {name} was trained to a fixed point of {seen.trained_pct:g} %, later tuples "
                f"have {seen.observed_pct:g} %; retrain it, or state error_pct in the contract",
            )

"""What every stage did, from the ledger alone: no stage and no lever has a name here.

>>> from datetime import date
>>> from spillway.ledger import LedgerRow
>>> rows = [LedgerRow("stream", "s", n, date(2026, 1, n), "thin", 1, "rows", offered=9, kept=8, shed=1, lost=1)
...         for n in (1, 2)]
>>> [(one.stage, one.batches, one.handed_on, one.lost) for one in stages_of(row.to_dict() for row in rows)]
[('thin', 2, 16, 2)]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spillway.ledger import TOTAL, Row


@dataclass(frozen=True)
class StageSum:
    """What a stage did to one unit of counting, all batches (or windows) added up.

    `dimension` is empty for the whole stage.
    """

    stage: str
    unit: str
    dimension: str
    batches: int
    offered: int
    handed_on: int
    rounded: int
    shed: int
    recoverable: int
    lost: int


def stages_of(ledger: Iterable[Row], attribute: str | None = None) -> list[StageSum]:
    """The stages' totals, and with `attribute` what they did to it, in the order of the way; what is beside it last.

    Contracts may order levers differently from batch to batch: a stage stands where it stood last.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in ledger:
        of_it = (row["dimension_kind"], row["dimension"]) == ("attribute", attribute)
        if of_it or row["dimension_kind"] == TOTAL:
            found.setdefault((row["stage"], row["unit"], row["dimension"]), []).append(row)
    last: dict[str, Row] = {}
    for (stage, _, _), rows in found.items():
        last[stage] = max([*rows, last.get(stage, rows[0])], key=lambda row: int(row["batch"]))
    place = {stage: (row["ordinal"] < 0, row["ordinal"]) for stage, row in last.items()}
    ordered = sorted(found, key=lambda key: (place[key[0]], *key))
    return [_sum(*key, found[key]) for key in ordered]


def _sum(stage: str, unit: str, dimension: str, rows: Sequence[Row]) -> StageSum:
    names = ("offered", "kept", "rounded", "shed", "recoverable", "lost")
    batches = len({row["batch"] for row in rows})
    return StageSum(stage, unit, dimension, batches, *(sum(int(row[name]) for row in rows) for name in names))

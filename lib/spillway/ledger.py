"""Define the ledger: what every stage did to a batch or a window, in counts and bytes, and the equations it satisfies.

A *stage* is a lever, or a step of the pipeline (intake, sending). Its `ordinal` is its position in the path of
this batch or window. The ordinal is stored with the batch, because contracts may order levers differently. A
negative ordinal means that the stage is outside the path. For every unit of counting (rows, values,
comparisons, batches of queries) a stage has one *total* row, and any number of rows that split the same counts
by a dimension. Each row satisfies

    offered = kept + shed + deduplicated + rejected,   shed = recoverable + lost

and the total rows of a batch or window satisfy, for each unit, along the ordinals:

    the next stage's offered = the previous one's kept                                   (the hand-over)

Rows by reason, attribute or region add up to their total. Rows by predicate or query need not, because two
queries may want the same row. Notes need not either: they count irregularities of rows that are kept. Kept
counts are taken from the written rows. If a ledger does not balance, the run fails before the ledger is
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from itertools import pairwise
from typing import Any

from spillway.errors import InvalidValue, SpillwayError

TOTAL = "total"
ADDS_UP = ("reason", "attribute", "region")
"""Kinds of dimension whose rows partition what the stage was offered."""
DIMENSIONS = (TOTAL, *ADDS_UP, "predicate", "query", "note")
SCOPES = ("stream", "join", "query", "channel")
UNITS = ("rows", "values", "comparisons", "batches")
COUNTS = (
    "offered",
    "kept",
    "rounded",
    "shed",
    "deduplicated",
    "rejected",
    "recoverable",
    "lost",
    "shortfall",
)
BESIDE = -1
"""Ordinal of stages outside the path from source to destination, such as retiring raw."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class LedgerRow:
    """One row of the ledger; its balance is checked when it is created.

    >>> LedgerRow("stream", "s", 1, date(2026, 1, 1), "intake", 0, "rows", offered=3, kept=2)
    Traceback (most recent call last):
        ...
    spillway.errors.SpillwayError: the ledger of s, batch 1, stage intake (rows, total) must balance: offered 3 is not \
kept 2 + shed 0 + deduplicated 0 + rejected 0; this is a fault of the stage, report it
    """

    scope: str
    subject: str
    batch: int
    batch_date: date
    stage: str
    ordinal: int
    unit: str
    dimension_kind: str = TOTAL
    dimension: str = ""
    reason: str = ""
    offered: int = 0
    kept: int = 0
    rounded: int = 0
    shed: int = 0
    deduplicated: int = 0
    rejected: int = 0
    recoverable: int = 0
    lost: int = 0
    shortfall: int = 0
    bytes_offered: int = 0
    bytes_kept: int = 0
    bytes_source: int = 0
    bytes_requested: int = 0
    bytes_fixed: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, known in (("scope", SCOPES), ("unit", UNITS), ("dimension_kind", DIMENSIONS)):
            if getattr(self, name) not in known:
                raise InvalidValue(
                    name, f"be one of {', '.join(known)}", getattr(self, name), "see spillway.ledger"
                )
        problem = next(imbalances(asdict(self)), None)
        if problem is not None:
            what = f"{self.dimension_kind} {self.dimension or self.reason}".strip()
            raise SpillwayError(
                f"the ledger of {self.subject}, batch {self.batch}, stage {self.stage} ({self.unit}, {what}) must "
                f"balance: {problem[1]}; this is a fault of the stage, report it"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the row of the table `ledger`."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def imbalances(row: Row) -> Iterator[tuple[int, str]]:
    """Yield each equation that a row does not satisfy: the difference, and a sentence.

    >>> row = LedgerRow("stream", "s", 1, date(2026, 1, 1), "thin", 1, "rows", offered=9, kept=9).to_dict()
    >>> list(imbalances(row)), list(imbalances({**row, "kept": 8}))
    ([], [(1, 'offered 9 is not kept 8 + shed 0 + deduplicated 0 + rejected 0')])
    """
    accounted = row["kept"] + row["shed"] + row["deduplicated"] + row["rejected"]
    if row["offered"] != accounted:
        yield (
            abs(row["offered"] - accounted),
            f"offered {row['offered']} is not kept {row['kept']} + shed {row['shed']} + "
            f"deduplicated {row['deduplicated']} + rejected {row['rejected']}",
        )
    if row["shed"] != row["recoverable"] + row["lost"]:
        yield (
            abs(row["shed"] - row["recoverable"] - row["lost"]),
            f"shed {row['shed']} is not recoverable {row['recoverable']} + lost {row['lost']}",
        )


def total_imbalance(rows: Iterable[Row]) -> int:
    """Return the total difference by which a ledger fails to balance: within rows, against totals, and between stages.

    >>> first = LedgerRow("stream", "s", 1, date(2026, 1, 1), "intake", 0, "rows", offered=9, kept=9).to_dict()
    >>> then = LedgerRow("stream", "s", 1, date(2026, 1, 1), "thin", 1, "rows", offered=8, kept=8).to_dict()
    >>> total_imbalance([first]), total_imbalance([first, then])
    (0, 1)
    """
    rows = list(rows)
    off = sum(by for row in rows for by, _ in imbalances(row))
    totals = {_place(row): row for row in rows if row["dimension_kind"] == TOTAL}
    parts: dict[tuple[Any, ...], dict[str, int]] = {}
    for row in rows:
        if row["dimension_kind"] in ADDS_UP:
            into = parts.setdefault((*_place(row), row["dimension_kind"]), dict.fromkeys(COUNTS[:8], 0))
            for name in into:
                into[name] += row[name]
    for place, sums in parts.items():
        total = totals.get(place[:-1])
        off += sum(abs(value - (total[name] if total is not None else 0)) for name, value in sums.items())
    return off + sum(
        abs(then["offered"] - before["kept"]) for before, then in consecutive_totals(totals.values())
    )


def consecutive_totals(totals: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield every two consecutive total rows; the second stage must be offered what the first kept."""
    ways: dict[tuple[Any, ...], list[Row]] = {}
    for row in totals:
        if row["dimension_kind"] == TOTAL and row["ordinal"] >= 0:
            ways.setdefault((row["scope"], row["subject"], row["batch"], row["unit"]), []).append(row)
    for way in ways.values():
        ordered = sorted(way, key=lambda row: row["ordinal"])
        yield from pairwise(ordered)


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("scope", "subject", "batch", "stage", "ordinal", "unit"))

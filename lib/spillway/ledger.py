"""The ledger: what every stage did to a unit of work, in counts and bytes, and it balances.

A *stage* is a lever, or what the pipeline does itself (taking in, sending); its `ordinal` is its place on the way of
this batch or window, pinned with it, for contracts may order levers differently (below 0: beside the way). For every
unit of counting (rows, values, comparisons, batches of queries) a stage has one *total* row, and any number of rows
that say the same by dimension. For each row

    offered = kept + shed + deduplicated + rejected,   shed = recoverable + lost

and for the total rows of a batch or window, unit by unit, along the ordinals:

    the next stage's offered = the previous one's kept                                   (the hand-over)

Rows by reason, attribute or region add up to their total; rows by predicate or query need not, for what one query
wants another may want too, nor notes, which count what is odd about rows that are kept. What is kept is counted from
what was written. A ledger that does not balance fails the run before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from itertools import pairwise
from typing import Any

from spillway.errors import Refused, SpillwayError

TOTAL = "total"
ADDS_UP = ("reason", "attribute", "region")
"""Kinds of dimension whose rows are a partition of what the stage was offered."""
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
"""Ordinal of what happens beside the way from source to destination, as retiring raw does."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class LedgerRow:
    """One line of the ledger, balanced from birth.

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
    bytes_asked_back: int = 0
    bytes_fixed: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, known in (("scope", SCOPES), ("unit", UNITS), ("dimension_kind", DIMENSIONS)):
            if getattr(self, name) not in known:
                raise Refused(
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
        """The row of the table `ledger`."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def imbalances(row: Row) -> Iterator[tuple[int, str]]:
    """By how much a row fails to balance, and in words; nothing where it does.

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


def difference(rows: Iterable[Row]) -> int:
    """By how much a ledger fails to balance in all: row by row, rows against their totals, stage against stage.

    >>> first = LedgerRow("stream", "s", 1, date(2026, 1, 1), "intake", 0, "rows", offered=9, kept=9).to_dict()
    >>> then = LedgerRow("stream", "s", 1, date(2026, 1, 1), "thin", 1, "rows", offered=8, kept=8).to_dict()
    >>> difference([first]), difference([first, then])
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
    return off + sum(abs(then["offered"] - before["kept"]) for before, then in hand_overs(totals.values()))


def hand_overs(totals: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """Every two total rows of which the second was offered what the first kept."""
    ways: dict[tuple[Any, ...], list[Row]] = {}
    for row in totals:
        if row["dimension_kind"] == TOTAL and row["ordinal"] >= 0:
            ways.setdefault((row["scope"], row["subject"], row["batch"], row["unit"]), []).append(row)
    for way in ways.values():
        ordered = sorted(way, key=lambda row: row["ordinal"])
        yield from pairwise(ordered)


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("scope", "subject", "batch", "stage", "ordinal", "unit"))

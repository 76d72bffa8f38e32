"""How much of a stream the destination has, and how much is absent there.

A value is absent at the destination when its column is kept at the source (a synopsis that is not sent), when its row
is kept at the source, or when its row was dropped for good. Every other value is present: as it was, or within its
bound. Certificates measure what *can* be recovered where the source is at hand; this module says what is *there*.

>>> two = Presence(100, held=50) + Presence(100, lost=10)
>>> two.present_pct, two.absent_pct, two.words("values")
(70.0, 30.0, '70 % of 200 values are present at the destination, 30 % are absent there (50 kept at the source, 10 \
dropped for good)')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.errors import so_much
from spillway.ledger import TOTAL, Row
from spillway.registry import lever
from spillway.store.tables import Tables

WHOLE_ROWS = ""
"""Stands for the rows where an attribute is named."""


@dataclass(frozen=True)
class Presence:
    """Counts of values (or rows) by what became of them at the destination."""

    offered: int
    """Taken in."""
    held: int = 0
    """Kept at the source until somebody asks for them."""
    lost: int = 0
    """Dropped for good."""

    @property
    def absent_pct(self) -> float:
        """The share in % that the destination does not have."""
        return 100.0 * (self.held + self.lost) / self.offered if self.offered else 0.0

    @property
    def present_pct(self) -> float:
        """The share in % that the destination has, as it was or within its bound."""
        return 100.0 - self.absent_pct

    def words(self, unit: str) -> str:
        """The shares in one clause."""
        if not self.held + self.lost:
            return f"all {self.offered:,} {unit} are present at the destination"
        held = f"{self.held:,} kept at the source" if self.held else ""
        lost = f"{self.lost:,} dropped for good" if self.lost else ""
        return (
            f"{_pct(self.present_pct)} % of {self.offered:,} {unit} are present at the destination, "
            f"{_pct(self.absent_pct)} % are absent there ({', '.join(filter(None, (held, lost)))})"
        )

    def __add__(self, other: Presence) -> Presence:
        return Presence(self.offered + other.offered, self.held + other.held, self.lost + other.lost)


def _pct(share: float) -> str:
    """A share that is not all is never shown as all.

    >>> _pct(99.9996), _pct(100.0), _pct(33.333)
    ('99.9996', '100', '33.3')
    """
    return so_much(share, 7 if 99 < share < 100 else 3)


def whole(parts: Iterable[Presence]) -> Presence:
    """The sum of parts."""
    return sum(parts, Presence(0))


def absent_values(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch]
) -> dict[tuple[int, str], int]:
    """By batch and attribute, how many values the destination lacks until it asks, all levers added up."""
    found: dict[tuple[int, str], int] = {}
    for name in sorted({name for batch in batches for name in batch.levers}):
        mine = [batch for batch in batches if name in batch.levers]
        for place, count in lever(name).absent(contract, mine, tables).items():
            found[place] = found.get(place, 0) + count
    return found


def presence(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch], ledger: Iterable[Row]
) -> dict[tuple[int, str], Presence]:
    """By batch and attribute (or `WHOLE_ROWS`) what the destination has; `ledger`: lines of the batches.

    If a value is kept at the source and its row is dropped behind that, the value counts once.
    """
    rows: dict[int, Presence] = {batch.batch: Presence(batch.rows or 0) for batch in batches}
    for line in ledger:
        on_the_way = line["dimension_kind"] == TOTAL and line["unit"] == "rows" and line["ordinal"] > 0
        if on_the_way and line["batch"] in rows:
            rows[line["batch"]] += Presence(0, int(line["recoverable"]), int(line["lost"]))
    absent = absent_values(tables, contract, batches)
    found = {}
    for number, one in rows.items():
        found[number, WHOLE_ROWS] = one
        for name in contract.names:
            held = min(one.held + absent.get((number, name), 0), one.offered - one.lost)
            found[number, name] = Presence(one.offered, held, one.lost)
    return found


def certified_presence(certificates: Iterable[Row]) -> Presence | None:
    """What certificates say of the values of attributes, or, where they speak of none, of whole rows.

    None: there is none, or one was written before certificates said it (`spillway migrate` fills it in).
    """
    by_place: dict[tuple[int, str], Presence] = {}
    for row in certificates:
        if row.get("offered_values") is None:
            return None
        by_place[row["batch"], row["attribute"]] = presence_of_row(row)
    values = [one for (_, attribute), one in by_place.items() if attribute != WHOLE_ROWS]
    return whole(values or by_place.values()) if by_place else None


def presence_of_row(row: Row) -> Presence:
    """What one certificate says."""
    return Presence(int(row["offered_values"]), int(row["held_values"]), int(row["lost_values"]))

"""Count which values of a stream are present at the destination, and which are absent.

A value is absent at the destination if its column is kept at the source (its synopsis is not sent), if its row is kept
at the source, or if its row was dropped for good. Every other value is present, exact or within its bound. Certificates
measure which values *can* be recovered with the help of the source. This module counts the values that *are* at the
destination.

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
from spillway.errors import format_number
from spillway.ledger import TOTAL, Row
from spillway.registry import lever
from spillway.store.tables import Tables

WHOLE_ROWS = ""
"""The attribute name of figures that count whole rows."""


@dataclass(frozen=True)
class Presence:
    """Counts of values (or rows) that are present or absent at the destination."""

    offered: int
    """Values (or rows) that were taken in."""
    held: int = 0
    """Kept at the source, available on request."""
    lost: int = 0
    """Dropped for good."""

    @property
    def absent_pct(self) -> float:
        """The share in % that is absent at the destination."""
        return 100.0 * (self.held + self.lost) / self.offered if self.offered else 0.0

    @property
    def present_pct(self) -> float:
        """The share in % that is present at the destination, exact or within its bound."""
        return 100.0 - self.absent_pct

    def words(self, unit: str) -> str:
        """Return both shares in words."""
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
    """Return a share in words; a share below 100 % is never shown as 100.

    >>> _pct(99.9996), _pct(100.0), _pct(33.333)
    ('99.9996', '100', '33.3')
    """
    return format_number(share, 7 if 99 < share < 100 else 3)


def total_presence(parts: Iterable[Presence]) -> Presence:
    """Return the sum of some counts of presence."""
    return sum(parts, Presence(0))


def absent_values(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch]
) -> dict[tuple[int, str], int]:
    """Return, by batch and attribute, how many values all levers keep at the source."""
    found: dict[tuple[int, str], int] = {}
    for name in sorted({name for batch in batches for name in batch.levers}):
        mine = [batch for batch in batches if name in batch.levers]
        for place, count in lever(name).count_absent_values(contract, mine, tables).items():
            found[place] = found.get(place, 0) + count
    return found


def presence(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch], ledger: Iterable[Row]
) -> dict[tuple[int, str], Presence]:
    """Return what is present at the destination, by batch and attribute (or `WHOLE_ROWS`).

    `ledger`: lines of the batches. If a value is kept at the source and a later lever drops its row, the value counts
    once.
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
    """Return the presence of all values that certificates state; of whole rows, if they state no values.

    None: there is no certificate, or an older one without these counts (`spillway migrate` fills them in).
    """
    by_place: dict[tuple[int, str], Presence] = {}
    for row in certificates:
        if row.get("offered_values") is None:
            return None
        by_place[row["batch"], row["attribute"]] = presence_of_row(row)
    values = [one for (_, attribute), one in by_place.items() if attribute != WHOLE_ROWS]
    return total_presence(values or by_place.values()) if by_place else None


def presence_of_row(row: Row) -> Presence:
    """Return the counts of one certificate."""
    return Presence(int(row["offered_values"]), int(row["source_values"]), int(row["lost_values"]))

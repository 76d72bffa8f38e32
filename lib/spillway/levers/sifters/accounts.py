"""The sifters' lines of the ledger: rows and values that went, why, and query by query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from spillway.ledger import LedgerRow
from spillway.levers.protocol import Drafted
from spillway.levers.sifters.apply import ASIDE
from spillway.levers.sifters.chosen import ChosenFilter

_Place = tuple[str, str, int, date, str, int]


def counts_of(drafted: Drafted, name: str, size: int) -> np.ndarray:
    """By region, and at the end for what must be kept, what tasks counted."""
    return np.array([drafted.counts.get(f"{name}.{region}", 0) for region in range(size)], np.int64)


@dataclass(frozen=True)
class Accounts:
    """What is accounted for of a batch, beside its draft."""

    drops: bool
    aside: bool
    """Whether rows that go are laid aside, and can be given back."""
    excess: float
    """Of what crosses, the share above the channel's part."""
    most_rows: int | None
    """How many rows the server takes in."""
    titles: Sequence[str]
    """Of the queries that are counted."""

    def lines(self, drafted: Drafted, one: ChosenFilter) -> Iterable[LedgerRow]:
        """Rows and values that go, why, and query by query; what is too much is on record."""
        batch = drafted.batch
        place = ("stream", batch.stream, batch.batch, batch.batch_date, "sifters", drafted.ordinal)
        size = 0 if one.filter is None else one.filter.count + 1
        offered, kept = counts_of(drafted, "offered", size), counts_of(drafted, "kept", size)
        gone = offered - kept if self.drops else np.zeros(size, np.int64)
        rows, shed = drafted.offered["rows"], int(gone.sum())
        values = drafted.counts.get("values", 0) if self.drops else 0
        if self.aside and shed:
            shed = drafted.aside_rows[ASIDE]  # what was written, not what was to be
        for unit, all_, away in (("rows", rows, shed), ("values", drafted.offered["values"], values)):
            yield LedgerRow(
                *place,
                unit,
                reason=one.reason,
                offered=all_,
                kept=all_ - away,
                shed=away,
                recoverable=away if self.aside else 0,
                lost=0 if self.aside else away,
                shortfall=self._too_many(rows - shed) if unit == "rows" else 0,
                bytes_source=drafted.aside_bytes.get(ASIDE, 0) if unit == "rows" else 0,
                seconds=drafted.seconds if unit == "rows" else 0.0,
            )
        if one.filter is not None and one.regions is not None:
            yield from self._by_reason(place, one, offered, gone)
            yield from self._by_query(place, drafted)

    def _by_reason(
        self, place: _Place, one: ChosenFilter, offered: np.ndarray, gone: np.ndarray
    ) -> Iterable[LedgerRow]:
        assert one.regions is not None
        touched = one.regions.worth().touched
        groups = {
            "no query asks for them": np.append(~touched, False),
            "worth least to queries": np.append(touched, False),
            "must be kept": np.append(np.zeros(len(touched), bool), True),
        }
        for reason, of in groups.items():
            all_, away = int(offered[of].sum()), int(gone[of].sum())
            if all_:
                yield LedgerRow(
                    *place, "rows", "reason", reason, reason, offered=all_, kept=all_ - away, shed=away,
                    recoverable=away if self.aside else 0, lost=0 if self.aside else away,
                )  # fmt: skip

    def _by_query(self, place: _Place, drafted: Drafted) -> Iterable[LedgerRow]:
        for at, title in enumerate(self.titles):
            wanted, got = (drafted.counts.get(f"{name}.{at}", 0) for name in ("wanted", "got"))
            away = wanted - got if self.drops else 0
            yield LedgerRow(
                *place, "rows", "query", title, offered=wanted, kept=wanted - away, shed=away,
                recoverable=away if self.aside else 0, lost=0 if self.aside else away,
            )  # fmt: skip

    def _too_many(self, kept: int) -> int:
        beyond = 0 if self.most_rows is None or not self.drops else max(0, kept - self.most_rows)
        return max(beyond, min(kept, math.ceil(kept * self.excess)))

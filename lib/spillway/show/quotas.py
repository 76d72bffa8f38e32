"""Quotas as `spillway status` tells them: spent so far, of how much, and when it will end at this pace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date

from spillway.contracts import Contracts
from spillway.contracts.capacity import DAY_SECONDS
from spillway.show.words import bytes_said
from spillway.store.tables import Tables
from spillway.streams.capacity import last_spent, spenders, spending_of


@dataclass(frozen=True)
class QuotaStatus:
    """A channel's quota in the period of its newest batch; the period's time is what its batches cover.

    >>> print(QuotaStatus("uplink", "day", date(2026, 1, 5), date(2026, 1, 5), 1.2e9, 2e9, 43_200, 86_400).sentence)
    uplink: 1.2 GB of 2 GB spent on 2026-01-05, in 12 of 24 hours; at this pace it ends after 20 hours
    >>> print(QuotaStatus("uplink", "day", date(2026, 1, 5), date(2026, 1, 5), 0.8e9, 2e9, 43_200, 86_400).sentence)
    uplink: 800 MB of 2 GB spent on 2026-01-05, in 12 of 24 hours; at this pace it lasts
    """

    channel: str
    per: str
    first: date
    last: date
    spent_bytes: float
    quota_bytes: float
    """What moved on from the period before included."""
    elapsed_seconds: float
    period_seconds: float
    ends_after_seconds: float | None = field(init=False)
    """When it will end at this pace; None where it lasts."""

    def __post_init__(self) -> None:
        ends: float | None = None
        if self.spent_bytes >= self.quota_bytes:
            ends = self.elapsed_seconds
        elif self.spent_bytes * self.period_seconds > self.quota_bytes * self.elapsed_seconds:
            ends = self.elapsed_seconds * self.quota_bytes / self.spent_bytes
        object.__setattr__(self, "ends_after_seconds", ends)

    @property
    def sentence(self) -> str:
        ends, unit = self.ends_after_seconds, "hours" if self.per == "day" else "days"
        of = 3600 if self.per == "day" else DAY_SECONDS
        when = f"on {self.first}" if self.first == self.last else f"from {self.first} to {self.last}"
        so_far = (
            f"{self.channel}: {bytes_said(self.spent_bytes)} of {bytes_said(self.quota_bytes)} spent {when}, "
            f"in {self.elapsed_seconds / of:.3g} of {self.period_seconds / of:.3g} {unit}"
        )
        if self.spent_bytes >= self.quota_bytes:
            return f"{so_far}; nothing is left"
        return f"{so_far}; at this pace it " + (
            "lasts" if ends is None else f"ends after {ends / of:.3g} {unit}"
        )


def quotas_of(tables: Tables, contracts: Contracts) -> Iterator[QuotaStatus]:
    """Every channel with a quota that anything was planned for, by name."""
    for name, channel in sorted(contracts.channels.items()):
        quota = channel.capacity.quota
        streams = spenders(contracts, name) if quota is not None else ()
        spent_on = [last for one in streams if (last := last_spent(tables, one)) is not None]
        day = max(spent_on, default=None)
        if quota is None or day is None:
            continue
        period, found = quota.period_of(day), spending_of(tables, contracts, name, [day])
        spent = found.spent(period)
        whole = int(quota.size_bytes) + found.carried(quota, period)
        # a batch may cover days before its date: the period has not passed the end of that day
        elapsed = min(found.elapsed(period, day), ((day - period.first).days + 1) * DAY_SECONDS)
        yield QuotaStatus(name, quota.per, period.first, period.last, spent, whole, elapsed, period.seconds)

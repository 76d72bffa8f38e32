"""Quotas: so many bytes a day or a month, spent over the period instead of being turned into a constant rate.

Unspent bytes of a quota are used before anything is shed. A batch may send the larger of `even` and `needed`:

    even    = left x T / max(P - elapsed, T)                the unspent bytes, spread evenly over the rest of the period
    needed  = o                                             if o + E <= left
              min(o, max(left x o / (o + E), accrued))      if not
    accrued = (left + spent) x (elapsed + T) / P - spent    the even share of the period up to now minus spent bytes

    left = Q + carried - spent

Q bytes a period of P seconds; T the seconds of the batch; `elapsed` those that the period's batches before it covered;
o the bytes that the batch offers; E the bytes that the rest of the period is expected to offer (`pipeline.spending`).
`burst` caps the rate. `carry_over_pct` of the unspent part of a period's own quota moves on to the next period, and no
further.

Guarantees: allowance x T never exceeds the unspent bytes. So no period spends more than its quota and the bytes carried
over, in whole bytes, in any order of periods. If the batch and the expected rest of the period fit, the batch is sent
whole. With constant traffic that offers no more than the even share, the allowance is the constant rate Q / P.

An hour is no period here: a batch's own span counts as now, and `GB/hour` is a plain rate.

>>> quota = Quota(2e9, "day")
>>> day = quota.period_of(date(2026, 1, 5)).seconds
>>> round(quota.allowance(day, spent_bytes=0, elapsed_seconds=0, batch_seconds=900), 3), round(quota.kbps, 3)
(185.185, 185.185)
>>> round(quota.allowance(day, spent_bytes=100_000_000, elapsed_seconds=43_200, batch_seconds=900), 3)
351.852
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction

DAY_SECONDS = 86_400
MEAN_SECONDS = {"day": DAY_SECONDS, "month": 2_629_746}
"""Periods, and how long each is on average (a month: the twelfth of 365.2425 days)."""


@dataclass(frozen=True, order=True)
class Period:
    """The days over which a quota is spent.

    >>> Period(date(2026, 1, 1), 31).seconds, date(2026, 1, 31) in Period(date(2026, 1, 1), 31)
    (2678400, True)
    """

    first: date
    days: int

    @property
    def seconds(self) -> int:
        return self.days * DAY_SECONDS

    @property
    def last(self) -> date:
        return self.first + timedelta(days=self.days - 1)

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last


@dataclass(frozen=True)
class Quota:
    """So many bytes a period; what is left of one moves on in part, and no batch sends faster than `burst_kbps`."""

    size_bytes: float
    per: str
    carry_over_pct: float = 0.0
    burst_kbps: float | None = None

    @property
    def kbps(self) -> float:
        """The mean rate: all of it, over a period of mean length."""
        return self.size_bytes * 8.0 / 1000.0 / MEAN_SECONDS[self.per]

    def period_of(self, day: date) -> Period:
        """The period that a batch date lies in.

        >>> Quota(1e9, "month").period_of(date(2026, 2, 17))
        Period(first=datetime.date(2026, 2, 1), days=28)
        """
        if self.per == "day":
            return Period(day, 1)
        first = day.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
        return Period(first, (following - first).days)

    def before(self, period: Period) -> Period:
        return self.period_of(period.first - timedelta(days=1))

    def after(self, period: Period) -> Period:
        return self.period_of(period.last + timedelta(days=1))

    def carried(self, spent_before: int) -> int:
        """What moves on from a period that spent so much of its own quota.

        >>> Quota(100.0, "day", carry_over_pct=50.0).carried(60), Quota(100.0, "day", carry_over_pct=50.0).carried(130)
        (20, 0)
        """
        unspent = max(0, math.floor(self.size_bytes) - spent_before)
        return math.floor(Fraction(self.carry_over_pct) / 100 * unspent)

    def left(self, spent_bytes: int, carried_bytes: int = 0, spent_after: int = 0) -> int:
        """What the period may still send; of what the next one spent out of it (a late batch) nothing again.

        >>> quota = Quota(100.0, "day", carry_over_pct=50.0)
        >>> quota.left(60, carried_bytes=30), quota.left(60, spent_after=110), quota.left(120)
        (70, 20, 0)
        """
        own = math.floor(self.size_bytes)
        left = own + carried_bytes - spent_bytes
        moved_on = max(0, spent_after - own)
        if moved_on and self.carry_over_pct:
            left = min(left, own - spent_bytes - math.ceil(moved_on * 100 / Fraction(self.carry_over_pct)))
        return max(0, left)

    def allowance(
        self,
        period_seconds: float,
        spent_bytes: int,
        elapsed_seconds: float,
        batch_seconds: float,
        carried_bytes: int = 0,
        spent_after: int = 0,
        offered_bytes: float = 0.0,
        expected_bytes: float = 0.0,
    ) -> float:
        """Return the kbps that a batch may send: as much as it needs if the quota has it, and at least its even share.

        `offered_bytes`: what the batch would send if nothing were shed. `expected_bytes`: what the rest of the period
        is expected to offer after it.

        >>> day = Quota(96_000.0, "day")
        >>> found = [day.allowance(86_400, 0, 0, 900, offered_bytes=4_700, expected_bytes=e) for e in (0, 9e5)]
        >>> [round(kbps * 900 * 125) for kbps in found]
        [4700, 1000]
        """
        left = self.left(spent_bytes, carried_bytes, spent_after)
        seconds = Fraction(batch_seconds)
        over = max(Fraction(period_seconds) - Fraction(elapsed_seconds), seconds)
        if not left or over <= 0:
            # nothing is left, or a batch of no time whose rate nobody can tell
            return 0.0
        exact = Fraction(left) * 8 / (1000 * over)
        if seconds > 0 and offered_bytes > 0:
            offered, rest = Fraction(offered_bytes), Fraction(expected_bytes)
            needed = offered
            if offered + rest > left:
                passed = min(Fraction(1), (Fraction(elapsed_seconds) + seconds) / Fraction(period_seconds))
                accrued = (left + spent_bytes) * passed - spent_bytes
                needed = min(offered, max(left * offered / (offered + rest), accrued))
            exact = max(exact, min(needed, Fraction(left)) * 8 / (1000 * seconds))
        if self.burst_kbps is not None:
            exact = min(exact, Fraction(self.burst_kbps))
        kbps = float(exact)
        # a float above the fraction would let one byte too much through
        return kbps if Fraction(kbps) <= exact else math.nextafter(kbps, 0.0)

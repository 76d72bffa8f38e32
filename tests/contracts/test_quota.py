"""Quotas are spent over their period: never more than there is, evenly by even traffic, more after a quiet stretch."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.contracts.capacity import Period, Quota

FIRST = date(2026, 1, 30)
quotas = st.builds(
    Quota,
    st.floats(1, 1e12),
    st.sampled_from(["day", "month"]),
    st.sampled_from([0.0, 100.0]) | st.floats(0, 100),
    st.none() | st.floats(1, 1e7),
)
pieces_of_traffic = st.lists(
    st.tuples(st.integers(0, 70), st.floats(0.001, 2e6), st.floats(0, 1) | st.just(1.0)), max_size=40
)


@settings(deadline=None)
@given(quotas, pieces_of_traffic)
def test_no_period_ever_spends_more_than_its_quota_and_what_moved_on_to_it(
    quota: Quota, traffic: list[tuple[int, float, float]]
) -> None:
    spent: dict[Period, int] = {}
    elapsed: dict[Period, float] = {}
    # periods in any order: late batches, and histories that are taken in afterwards
    for day, seconds, asked in traffic:
        period = quota.period_of(FIRST + timedelta(days=day))
        kbps = quota.allowance(
            period.seconds,
            spent.get(period, 0),
            elapsed.get(period, 0.0),
            seconds,
            quota.carried(spent.get(quota.before(period), 0)),
            spent.get(quota.after(period), 0),
        )
        assert kbps >= 0
        if quota.burst_kbps is not None:
            assert kbps <= quota.burst_kbps
        allowed = Fraction(kbps) * Fraction(seconds) * 125
        spent[period] = spent.get(period, 0) + int(allowed * Fraction(asked))
        elapsed[period] = elapsed.get(period, 0.0) + seconds
    for period, sent in spent.items():
        unspent = max(Fraction(0), Fraction(quota.size_bytes) - spent.get(quota.before(period), 0))
        assert sent <= Fraction(quota.size_bytes) + unspent * Fraction(quota.carry_over_pct) / 100


@settings(deadline=None)
@given(
    st.floats(1e6, 1e12),
    st.sampled_from(["day", "month"]),
    st.integers(1, 200),
    st.dates(date(2000, 1, 1), date(2100, 1, 1)),
)
def test_constant_traffic_that_wants_all_has_the_constant_rate(
    size: float, per: str, count: int, day: date
) -> None:
    quota = Quota(size, per)
    period = quota.period_of(day)
    seconds = period.seconds / count
    spent = 0
    for i in range(count):
        kbps = quota.allowance(period.seconds, spent, i * seconds, seconds)
        # what remains is counted in whole bytes: a byte or so of the quota for every batch before
        assert kbps == pytest.approx(size * 8 / 1000 / period.seconds, rel=(i + 2) * count / size + 1e-9)
        spent += int(kbps * 125 * seconds)
    assert size - 2 * count - 1 <= spent <= size


@given(quotas, st.integers(0, 10**12), st.integers(0, 10**12), st.floats(0, 9e4), st.floats(0.001, 9e4))
def test_what_was_not_spent_raises_what_later_batches_may_send(
    quota: Quota, one: int, more: int, elapsed: float, seconds: float
) -> None:
    quiet, busy = (quota.allowance(86_400, spent, elapsed, seconds) for spent in sorted((one, one + more)))
    assert quiet >= busy


def test_after_a_quiet_night_the_day_has_the_nights_room_too() -> None:
    quota = Quota(86_400_000.0, "day")
    assert quota.allowance(86_400, 0, 0, 900) == 8.0
    assert quota.allowance(86_400, 0, 43_200, 900) == 16.0
    # the last batch may send all that is left, and one that the day has no time for as well
    assert quota.allowance(86_400, 86_000_000, 85_500, 900) == pytest.approx(400_000 * 8 / 1000 / 900)
    assert quota.allowance(86_400, 86_000_000, 90_000, 900) == pytest.approx(400_000 * 8 / 1000 / 900)
    assert quota.allowance(86_400, 86_400_000, 43_200, 900) == 0.0
    # a history of ten days that arrives on one has that day's quota
    assert quota.allowance(86_400, 0, 0, 864_000) == pytest.approx(0.8)


def test_a_burst_caps_what_a_quiet_night_left() -> None:
    assert Quota(86_400_000.0, "day", burst_kbps=12.0).allowance(86_400, 0, 43_200, 900) == 12.0


def test_what_moves_on_is_of_the_periods_own_quota_and_is_not_spent_twice() -> None:
    quota = Quota(1000.0, "day", carry_over_pct=50.0)
    assert quota.carried(400) == 300
    assert quota.left(0, quota.carried(400)) == 1300
    # 200 of those 300 are gone: of the 600 left yesterday a late batch may send what keeps 400 unspent
    assert quota.left(400, spent_after=1200) == 200
    assert quota.carried(400 + 200) == 200
    # without it yesterday's 600 are yesterday's, whatever today spent
    assert Quota(1000.0, "day").left(400, spent_after=1200) == 600


def test_a_month_is_as_long_as_it_is() -> None:
    quota = Quota(1e9, "month")
    assert [quota.period_of(date(2024, month, 15)).days for month in (1, 2, 4)] == [31, 29, 30]
    february = quota.period_of(date(2026, 2, 28))
    assert (february.first, february.last) == (date(2026, 2, 1), date(2026, 2, 28))
    assert quota.after(february) == quota.period_of(date(2026, 3, 31))
    assert quota.before(quota.period_of(date(2026, 1, 1))) == quota.period_of(date(2025, 12, 3))
    day = Quota(1e9, "day").period_of(date(2026, 2, 28))
    assert (day.seconds, Quota(1e9, "day").after(day).first) == (86_400, date(2026, 3, 1))


@given(st.dates(date(1, 2, 1), date(9999, 11, 1)), st.sampled_from(["day", "month"]))
def test_periods_follow_one_another_without_gap_or_overlap(day: date, per: str) -> None:
    quota = Quota(1.0, per)
    period = quota.period_of(day)
    assert day in period
    assert quota.after(period).first == period.last + timedelta(days=1)
    assert quota.before(quota.after(period)) == period

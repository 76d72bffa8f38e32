"""Quotas meet batches: what each may send of what is left, counted from what was sent before or promised to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.test_room import ingested, rooms, stream

from spillway.batch import DONE, INGESTED, PLANNED, Batch
from spillway.contracts import BrokenContract, Contracts, StreamContract, read_channel
from spillway.contracts.capacity import Quota
from spillway.engine import ProcessEngine
from spillway.ledger import LedgerRow
from spillway.levers.protocol import CapacityGroup
from spillway.report.status import quotas_of
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import Tables
from spillway.streams.batching import group_batches
from spillway.streams.capacity import (
    LEAST_KBPS,
    SPARE,
    BatchShares,
    QuotaSpending,
    batch_shares,
    capacity_shares,
    measure_load,
    quota_spending,
)
from spillway.streams.shed import shed_channel

DAY, NOW = date(2026, 1, 30), datetime(2026, 2, 2, tzinfo=UTC)
HOUR = 3600.0
MB = 1_000_000
"""A quota of 86.4 MB a day is 8 kbps."""


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    tables = Tables(Settings.in_memory(f"spending-{request.node.name}"))
    yield tables
    tables.forget()


def declared(name: str, **more: Any) -> StreamContract:
    """A stream whose widths and rate are declared, so that its batches need no rows."""
    return stream(name, width="declared", **more)


def batch(name: str, number: int, day: date = DAY, seconds: float = HOUR, **more: Any) -> Batch:
    status = more.pop("status", INGESTED)
    rows = more.pop("rows", 1000)
    if status in (DONE, PLANNED):
        more = {"capacity_kbps": 8.0, "frame_origin": 0, **more}
    return Batch(
        name, number, day, status, (), 1000 * number, 1000 * number + 999, "run", NOW, NOW, rows, 0, 0,
        seconds_covered=seconds, **more,
    )  # fmt: skip


def sent(tables: Tables, *batches: tuple[Batch, int]) -> None:
    """Done batches, and the ledger's word for the bytes that they sent."""
    for one, size in batches:
        save_batches(tables, [one])
        place = ("stream", one.stream, one.batch, one.batch_date)
        lines = [
            LedgerRow(*place, "intake", 0, "rows", offered=9, kept=9, bytes_kept=7 * size),
            LedgerRow(*place, "thin", 1, "rows", offered=9, kept=9, bytes_kept=3 * size),
            LedgerRow(*place, "sent", 2, "rows", offered=9, kept=9, bytes_kept=size),
            LedgerRow(*place, "sent", 2, "values", offered=27, kept=27, bytes_kept=0),
        ]
        tables.at("ledger").append([line.to_dict() for line in lines])


def allotted(tables: Tables, contracts: Contracts, *waiting: Batch, channel: str = "up") -> BatchShares:
    by_stream: dict[str, list[Batch]] = {}
    for one in waiting:
        by_stream.setdefault(one.stream, []).append(one)
    now = tables.now()
    return batch_shares(now, CapacityGroup(channel, contracts, now), by_stream)


def test_a_rate_is_the_same_for_every_batch_whatever_was_sent(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="8 kbps")
    sent(tables, (batch("net", 1, status=DONE), 50 * MB))
    waiting = [batch("net", 2), batch("net", 3, DAY + timedelta(days=1))]
    now = tables.now()
    found = allotted(tables, contracts, *waiting)
    assert found == {
        "net": dict.fromkeys(
            (2, 3), capacity_shares(now, CapacityGroup("up", contracts, now), {"net": waiting})["net"]
        )
    }


def test_so_much_an_hour_is_a_plain_rate(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="3.6 MB/hour")
    sent(tables, (batch("net", 1, status=DONE), 50 * MB))
    assert allotted(tables, contracts, batch("net", 2))["net"][2].own_kbps == pytest.approx(8.0)


def test_what_was_counted_as_sent_is_gone_and_what_was_not_raises_what_comes(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="86.4 MB/day")
    first = allotted(tables, contracts, batch("net", 1))
    assert first["net"][1].own_kbps == pytest.approx(8.0)
    # in twelve hours the constant rate would have sent 43.2 MB
    sent(tables, (batch("net", 1, seconds=12 * HOUR, status=DONE), int(21.6 * MB)))
    assert allotted(tables, contracts, batch("net", 2))["net"][2].own_kbps == pytest.approx(12.0)
    sent(tables, (batch("net", 2, seconds=0.5, status=DONE), int(60 * MB)))
    assert allotted(tables, contracts, batch("net", 3))["net"][3].own_kbps == pytest.approx(
        4.8 * MB * 8 / 1000 / (12 * HOUR), rel=1e-4
    )
    sent(tables, (batch("net", 3, status=DONE), int(60 * MB)))
    assert allotted(tables, contracts, batch("net", 4))["net"][4].own_kbps == LEAST_KBPS
    # the next day has a quota of its own
    tomorrow = batch("net", 5, DAY + timedelta(days=1))
    assert allotted(tables, contracts, tomorrow)["net"][5].own_kbps == pytest.approx(8.0)


def test_what_was_asked_back_of_a_batch_crossed_too(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="86.4 MB/day")
    done = batch("net", 1, seconds=12 * HOUR, status=DONE)
    sent(tables, (done, int(20 * MB)))
    asked = LedgerRow(
        "stream", "net", 1, DAY, "asked back", -1, "rows", offered=9, kept=9, bytes_requested=int(1.6 * MB)
    )
    tables.at("ledger").append([asked.to_dict()])
    assert allotted(tables, contracts, batch("net", 2))["net"][2].own_kbps == pytest.approx(12.0)


def test_what_a_batch_that_died_was_promised_is_promised_to_nobody_else(tables: Tables) -> None:
    contracts = rooms(declared("net"), declared("other"), capacity="86.4 MB/day")
    save_batches(tables, [batch("other", 1, seconds=12 * HOUR, status=PLANNED, capacity_kbps=12.0)])
    died = 12.0 * 125 * 12 * HOUR
    found = allotted(tables, contracts, batch("net", 1))
    assert found["net"][1].own_kbps == pytest.approx((86.4 * MB - died) * 8 / 1000 / (12 * HOUR))


def test_a_batch_that_is_pinned_already_is_given_nothing_new(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="86.4 MB/day")
    pinned = batch("net", 1, status=PLANNED)
    save_batches(tables, [pinned])
    assert allotted(tables, contracts, pinned, batch("net", 2))["net"].keys() == {2}


def test_several_days_at_once_have_a_quota_each_and_what_moves_on(tables: Tables) -> None:
    waiting = [batch("net", number, DAY + timedelta(days=number), 24 * HOUR) for number in (1, 2, 3)]
    alone = allotted(tables, rooms(declared("net"), capacity="86.4 MB/day"), *waiting)
    assert [part.own_kbps for part in alone["net"].values()] == pytest.approx([8.0] * 3)
    moving = {"quota": "86.4 MB", "per": "day", "carry_over_pct": 50}
    sent(tables, (batch("net", 0, DAY, 24 * HOUR, status=DONE), int(46.4 * MB)))
    found = allotted(tables, rooms(declared("net"), capacity=moving), *waiting)
    # 20 of the 40 MB that were left move on; all of the first day is promised, so nothing of it to the second
    assert [part.own_kbps for part in found["net"].values()] == pytest.approx([8.0 * 106.4 / 86.4, 8.0, 8.0])


def test_a_channel_that_was_not_used_yet_has_nothing_to_move_on(tables: Tables) -> None:
    moving = {"quota": "86.4 MB", "per": "day", "carry_over_pct": 100}
    contracts = rooms(declared("net"), capacity=moving)
    assert allotted(tables, contracts, batch("net", 1))["net"][1].own_kbps == pytest.approx(8.0)
    sent(tables, (batch("net", 0, DAY - timedelta(days=3), status=DONE), 5))
    # a day without any delivery was left whole
    assert allotted(tables, contracts, batch("net", 1))["net"][1].own_kbps == pytest.approx(16.0)


def test_days_of_a_month_without_a_delivery_are_over_all_the_same(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="86.4 MB/month")
    day = date(2026, 2, 15)
    found = allotted(tables, contracts, batch("net", 1, day))
    assert found["net"][1].own_kbps == pytest.approx(8.0 / 14)
    # what was covered on the day itself is over too
    sent(tables, (batch("net", 1, day, 12 * HOUR, status=DONE), 0))
    assert allotted(tables, contracts, batch("net", 2, day))["net"][2].own_kbps == pytest.approx(8.0 / 13.5)


def test_streams_share_what_is_left_and_cover_the_time_together(tables: Tables) -> None:
    contracts = rooms(declared("net"), declared("other"), capacity="86.4 MB/day")
    sent(
        tables,
        *((batch(name, 1, seconds=12 * HOUR, status=DONE), int(10.8 * MB)) for name in ("net", "other")),
    )
    found = allotted(tables, contracts, batch("net", 2), batch("other", 2))
    assert [found[name][2].own_kbps for name in ("net", "other")] == pytest.approx([6.0, 6.0])


def test_what_a_stream_has_spent_is_spent_though_its_contract_cannot_be_used_today(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="86.4 MB/day")
    contracts = replace(contracts, broken=(BrokenContract("streams", "lost", (), "up"),))
    sent(tables, (batch("lost", 1, seconds=12 * HOUR, status=DONE), int(21.6 * MB)))
    (told,) = quotas_of(tables.now(), contracts)
    assert told.spent_bytes == 21.6 * MB
    assert allotted(tables, contracts, batch("net", 1))["net"][1].own_kbps == pytest.approx(12.0)


def test_a_trunk_with_a_quota_is_spent_by_all_that_goes_into_it(tables: Tables) -> None:
    east, west = declared("east", channel="one"), declared("west", channel="two")
    contracts = rooms(east, west, capacity="30 kbps", into_up=("one", "two"))
    trunk = read_channel("up", {"capacity": "86.4 MB/day"})
    contracts = replace(contracts, channels={**contracts.channels, "up": trunk})
    sent(tables, (batch("east", 1, seconds=12 * HOUR, status=DONE), int(21.6 * MB)))
    found = allotted(tables, contracts, batch("east", 2), batch("west", 2))
    assert sum(found[name][2].trunk_kbps or 0.0 for name in ("east", "west")) == pytest.approx(12.0)
    assert [found[name][2].own_kbps for name in ("east", "west")] == [30.0, 30.0]


def test_what_a_trunk_promises_to_one_day_moves_on_to_no_other(tables: Tables) -> None:
    contracts = rooms(declared("east", channel="one"), capacity="30 kbps", into_up=("one",))
    moving = read_channel("up", {"capacity": {"quota": "86.4 MB", "per": "day", "carry_over_pct": 50}})
    contracts = replace(contracts, channels={**contracts.channels, "up": moving})
    sent(tables, (batch("east", 0, DAY, 24 * HOUR, status=DONE), int(46.4 * MB)))
    waiting = [batch("east", number, DAY + timedelta(days=number), 24 * HOUR) for number in (1, 2, 3)]
    found = allotted(tables, contracts, *waiting)["east"]
    assert [part.trunk_kbps for part in found.values()] == pytest.approx([8.0 * 106.4 / 86.4, 8.0, 8.0])


def test_what_a_day_left_and_the_next_one_spent_is_not_there_for_a_batch_that_comes_late(
    tables: Tables,
) -> None:
    moving = {"quota": "86.4 MB", "per": "day", "carry_over_pct": 50}
    contracts = rooms(declared("net"), capacity=moving)
    sent(tables, (batch("net", 1, DAY, 12 * HOUR, status=DONE), int(26.4 * MB)))
    sent(tables, (batch("net", 2, DAY + timedelta(days=1), status=DONE), int(96.4 * MB)))
    # of 60 MB that the first day left, the second spent 10 beyond its own: half of 20
    late = allotted(tables, contracts, batch("net", 3, DAY, 12 * HOUR))
    assert late["net"][3].own_kbps == pytest.approx(40 * MB * 8 / 1000 / (12 * HOUR))


def test_a_day_and_a_month_of_one_room_are_each_spent_by_their_own_calendar(tables: Tables) -> None:
    contracts = rooms(declared("east", channel="one"), capacity="86.4 MB/day", into_up=("one",))
    month = read_channel("up", {"capacity": "864 MB/month"})
    contracts = replace(contracts, channels={**contracts.channels, "up": month})
    days = [date(2026, 2, day) for day in (27, 28)]
    waiting = [batch("east", number, day, 24 * HOUR) for number, day in enumerate(days, 1)]
    found = allotted(tables, contracts, *waiting)["east"]
    # each day has its own quota, whatever it is given of the month
    assert [part.own_kbps for part in found.values()] == pytest.approx([8.0, 8.0])
    # the month has two days left: half of it for the first, and for the second all that the first may not send
    assert [part.trunk_kbps for part in found.values()] == pytest.approx([8.0 * 5, 8.0 * 9])


QUARTER = 900.0
EVEN = [1.0] * 96
MORNING = [4.0] * 24 + [0.0] * 72
EVENING = [0.0] * 72 + [4.0] * 24
UNEVEN = [1.0 + 0.6 * math.sin(place / 5.0) for place in range(96)]


def spent_day(
    quota: Quota, offers: Sequence[float], before: QuotaSpending | None = None, day: date = DAY
) -> tuple[list[float], QuotaSpending]:
    """Send a batch every quarter of an hour; return the share of each batch that was not sent, and the spending.

    Each batch sends what it offers or what it may, whichever is less.
    """
    spending = before or QuotaSpending((), {}, {})
    lost = []
    for offer in offers:
        offered = round(offer)
        expected = spending.expected(quota, day, QUARTER, offered)
        kbps = spending.allowance(quota, day, QUARTER, offered * SPARE, expected)
        crossed = min(offered, int(Fraction(kbps) * 125 * Fraction(QUARTER)))
        number = len(spending.batches)
        done = batch("net", number, day, QUARTER, status=DONE)
        spending = QuotaSpending(
            (*spending.batches, done),
            {**spending.crossed_bytes, ("net", number): crossed},
            {**spending.offered_bytes, ("net", number): offered},
        )
        lost.append(1.0 - crossed / offered if offered else 0.0)
    assert spending.spent(quota.period_of(day)) <= quota.size_bytes
    return lost, spending


def scaled(shape: Sequence[float], total: float) -> list[float]:
    return [total * one / sum(shape) for one in shape]


@pytest.mark.parametrize(
    ("shape", "share"),
    [(EVEN, 0.99), (EVENING, 0.99), (UNEVEN, 0.5), (UNEVEN, 0.99), (MORNING, 0.5), (MORNING, 0.9)],
)
def test_a_first_day_whose_offer_fits_into_its_quota_is_sent_whole(shape: list[float], share: float) -> None:
    lost, _ = spent_day(Quota(1.0 * MB, "day"), scaled(shape, share * MB))
    assert max(lost) == 0


@pytest.mark.parametrize("shape", [EVEN, MORNING, EVENING, UNEVEN])
def test_a_day_like_the_one_before_whose_offer_fits_is_sent_whole(shape: list[float]) -> None:
    quota = Quota(1.0 * MB, "day")
    _, before = spent_day(quota, scaled(shape, 0.95 * MB))
    lost, _ = spent_day(quota, scaled(shape, 0.95 * MB), before, DAY + timedelta(days=1))
    assert max(lost) == 0


def test_a_small_batch_is_sent_whole_while_the_quota_has_unspent_bytes() -> None:
    quota = Quota(120_000.0, "day")
    spending = QuotaSpending((), {}, {})
    even = quota.allowance(86_400, 0, 0, QUARTER) * 125 * QUARTER
    assert even < 4_700
    expected = spending.expected(quota, DAY, QUARTER, 4_700)
    assert spending.allowance(quota, DAY, QUARTER, 4_700, expected) * 125 * QUARTER == pytest.approx(4_700)


def test_day_with_twice_the_usual_offer_is_shed_over_the_whole_day() -> None:
    quota = Quota(1.0 * MB, "day")
    _, before = spent_day(quota, scaled(EVEN, 0.8 * MB))
    lost, _ = spent_day(quota, scaled(EVEN, 1.6 * MB), before, DAY + timedelta(days=1))
    # 37.5 % of the day is too much: no batch loses more than twice that, and the first ones lose nothing
    assert lost[0] == 0
    assert sum(lost) / 96 == pytest.approx(0.375, abs=0.01)
    assert max(lost) < 2 * 0.375


def test_a_month_spreads_what_does_not_fit_over_its_days() -> None:
    quota = Quota(10.0 * MB, "month")
    spending, whole, lost = QuotaSpending((), {}, {}), 24 * HOUR, []
    for number in range(31):
        day = date(2026, 1, 1) + timedelta(days=number)
        offered = 0.5 * MB
        expected = spending.expected(quota, day, whole, offered)
        crossed = min(offered, int(spending.allowance(quota, day, whole, offered, expected) * 125 * whole))
        done = batch("net", number, day, whole, status=DONE)
        spending = QuotaSpending(
            (*spending.batches, done),
            {**spending.crossed_bytes, ("net", number): int(crossed)},
            {**spending.offered_bytes, ("net", number): int(offered)},
        )
        lost.append(1.0 - crossed / offered)
    assert spending.spent(quota.period_of(DAY)) <= quota.size_bytes
    assert max(lost) - min(lost) < 0.01


def test_waiting_batches_are_sent_whole_if_the_quota_of_the_day_covers_all(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="1 MB/day")
    waiting = [batch("net", place, seconds=QUARTER, rows=200 + 250 * (place % 7)) for place in range(1, 25)]
    loads = {one.batch: measure_load(tables, contracts.streams["net"], one) for one in waiting}
    offered = sum(loads[one.batch].rate_kbps * 125 * QUARTER for one in waiting)
    assert 0.3 * MB < offered < 0.9 * MB
    found = allotted(tables, contracts, *waiting)["net"]
    for one in waiting:
        assert found[one.batch].own_kbps >= loads[one.batch].rate_kbps
    assert sum(part.own_kbps * 125 * QUARTER for part in found.values()) <= MB


lakes = itertools.count()
quotas = st.tuples(st.sampled_from(["day", "month"]), st.integers(1, 300), st.sampled_from([0, 30, 100]))
arrivals = st.lists(
    st.tuples(st.sampled_from(["net", "other"]), st.integers(0, 3), st.floats(1.0, 1e5), st.floats(0, 1)),
    max_size=6,
)


@pytest.mark.long
@settings(deadline=None, max_examples=40)
@given(quotas, st.lists(arrivals, max_size=3), st.booleans(), st.booleans())
def test_whatever_arrives_in_whatever_runs_no_period_sends_more_than_it_has(
    of: tuple[str, int, int], runs: list[list[tuple[str, int, float, float]]], dies: bool, together: bool
) -> None:
    tables = Tables(Settings.in_memory(f"spending-{next(lakes)}"))
    per, size, carry_over_pct = of
    capacity = {"quota": f"{size} MB", "per": per, "carry_over_pct": carry_over_pct}
    batching = {"batching": {"until_bytes": "1 GB", "until_seconds": 3600}} if together else {}
    contracts = rooms(declared("net", **batching), declared("other"), capacity=capacity)
    quota = contracts.channels["up"].capacity.quota
    assert quota is not None
    number, spent = 0, dict[Any, int]()
    for run in runs:
        waiting, asked = [], {}
        for name, day, seconds, share in run:
            number += 1
            waiting.append(batch(name, number, DAY + timedelta(days=day), seconds, rows=10_000_000))
            asked[number] = share
        found = allotted(tables, contracts, *waiting)
        if together:
            grouped = group_batches(
                tables, contracts.streams["net"], [one for one in waiting if one.stream == "net"]
            )
            assert all(len({found["net"][one.batch] for one in group}) == 1 for group in grouped)
        for one in waiting:
            part = found[one.stream][one.batch]
            most = int(Fraction(part.own_kbps) * Fraction(one.seconds_covered or 0) * 125)
            used = int(most * asked[one.batch])
            period = quota.period_of(one.batch_date)
            if dies and one.batch % 2:
                spent[period] = spent.get(period, 0) + most
                save_batches(
                    tables, [replace(one, status=PLANNED, frame_origin=0, capacity_kbps=part.own_kbps)]
                )
            else:
                spent[period] = spent.get(period, 0) + used
                sent(tables, (replace(one, status=DONE, frame_origin=0, capacity_kbps=part.own_kbps), used))
    tables.forget()
    for period, used in spent.items():
        before = quota.before(period)
        begun = min(spent) <= before
        unspent = max(0, size * MB - spent.get(before, 0)) if begun else 0
        # a channel with nothing left is planned for next to nothing: the grain of a float's division
        assert used <= size * MB + unspent * carry_over_pct / 100 + LEAST_KBPS * 125 * 1e5 * 20


def test_a_batch_is_pinned_to_what_was_left_and_a_rerun_does_what_the_first_run_did(tables: Tables) -> None:
    contract = stream("net")
    contracts = rooms(contract, capacity="1 MB/day")
    quota = Quota(1e6, "day")
    ingested(tables, contract, rows=100, seconds=12 * HOUR)
    (first,) = shed_channel(tables, ProcessEngine(), contracts, "up")
    assert first.capacity_kbps == pytest.approx(quota.allowance(86_400, 0, 0, 12 * HOUR))
    now = tables.now()
    spending = quota_spending(now, contracts, "up", [first.batch_date])
    crossed = spending.spent(quota.period_of(first.batch_date))
    (line,) = now.at("ledger").rows(stage="sent", unit="rows").to_pylist()
    assert crossed == line["bytes_kept"] > 0
    later = replace(
        first, batch=2, status=INGESTED, frame_origin=None, rows=0, seconds_covered=HOUR, revision=0
    )
    save_batches(tables, [later])
    (second,) = shed_channel(tables, ProcessEngine(), contracts, "up")
    assert second.capacity_kbps == pytest.approx(quota.allowance(86_400, crossed, 12 * HOUR, HOUR))
    again = shed_channel(tables, ProcessEngine(), contracts, "up", dates=(first.batch_date, first.batch_date))
    assert [one.capacity_kbps for one in sorted(again, key=lambda one: one.batch)] == [
        first.capacity_kbps,
        second.capacity_kbps,
    ]
    assert {one.status for one in load_batches(tables.now(), "net")} == {DONE}


def test_status_says_what_is_spent_of_how_much_and_when_it_ends(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity={"quota": "80 MB", "per": "day", "carry_over_pct": 50})
    rated = replace(
        contracts, channels={**contracts.channels, "line": read_channel("line", {"capacity": "1 kbps"})}
    )
    assert list(quotas_of(tables.now(), rated)) == []
    sent(tables, (batch("net", 1, seconds=6 * HOUR, status=DONE), 30 * MB))
    (told,) = quotas_of(tables.now(), rated)
    assert told.sentence == (
        "up: 30 MB of 80 MB spent on 2026-01-30, in 6 of 24 hours; at this pace it ends after 16 hours"
    )
    sent(tables, (batch("net", 2, DAY + timedelta(days=1), 6 * HOUR, status=DONE), 10 * MB))
    (told,) = quotas_of(tables.now(), rated)
    assert told.sentence == (
        "up: 10 MB of 105 MB spent on 2026-01-31, in 6 of 24 hours; at this pace it lasts"
    )
    assert told.ends_after_seconds is None
    sent(tables, (batch("net", 3, DAY + timedelta(days=1), 6 * HOUR, status=DONE), 95 * MB))
    (told,) = quotas_of(tables.now(), rated)
    assert told.sentence.endswith("105 MB of 105 MB spent on 2026-01-31, in 12 of 24 hours; nothing is left")
    save_batches(tables, [batch("net", 4, DAY + timedelta(days=2), status=PLANNED)])
    (told,) = quotas_of(tables.now(), rated)
    assert told.sentence.startswith("up: 3.6 MB of 80 MB spent on 2026-02-01"), (
        "promised to one that is not done"
    )


def test_a_month_is_told_in_days(tables: Tables) -> None:
    contracts = rooms(declared("net"), capacity="90 MB/month")
    sent(tables, (batch("net", 1, date(2026, 2, 11), 86_400.0, status=DONE), 45 * MB))
    (told,) = quotas_of(tables.now(), contracts)
    assert told.sentence == (
        "up: 45 MB of 90 MB spent from 2026-02-01 to 2026-02-28, in 11 of 28 days; at this pace it ends after 22 days"
    )

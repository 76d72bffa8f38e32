"""The time that a batch covers: no single clock changes it, who has none takes the last known, all of it said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.intake.landing_world import CONTRACT, START, LandingWorld, contract

from spillway.batch import RECORDED
from spillway.intake.rate import seconds_spanned
from spillway.store.batches import save_batches

EVENT = {"rate": {"from": "event_time"}}
QUARTER = np.repeat(np.arange(0, 900, 9), 10)
"""A thousand tuples in a quarter of an hour, ten at a moment."""


def timed(tmp_path: Path, kind: str = "timestamp", **more: Any) -> LandingWorld:
    attributes = [{**one, "type": kind} if one["name"] == "at" else one for one in CONTRACT["attributes"]]
    return LandingWorld(tmp_path, contract(attributes=attributes, **{**EVENT, **more}))


def at(moments: Iterable[datetime]) -> bytes:
    rows = [{"router": "r", "at": one.isoformat(), "delay_ms": 1.0} for one in moments]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def every(seconds: float, count: int, start: datetime) -> list[datetime]:
    return [start + timedelta(seconds=seconds * i) for i in range(count)]


@pytest.mark.parametrize(
    "odd",
    [
        [-1_767_244_172],
        [-604_800],
        [+604_800],
        [2**40],
        [-1_767_244_172, 2**40],
        [-604_800] * 5,
        [900 + 600] * 9,
        [900 + 400] * 9,
    ],
    ids=[
        "1970",
        "last week",
        "next week",
        "far ahead",
        "both sides",
        "five late ones",
        "nine late",
        "nine a bit late",
    ],
)
def test_few_odd_clocks_change_nothing(odd: list[int]) -> None:
    found = seconds_spanned(np.append(QUARTER, odd))
    assert found is not None
    assert found == pytest.approx(900, rel=0.26)


@pytest.mark.parametrize("days_ago", [1, 3, 7])
@pytest.mark.parametrize("late", [3, 29, 100])
def test_a_late_delivery_beside_a_days_does_not_make_it_cover_the_days_between(
    days_ago: int, late: int
) -> None:
    day = np.repeat(np.arange(0, 86_400, 300), 8)
    rows = np.linspace(0, 43_200, late).astype(np.int64) - 86_400 * (days_ago + 1) + 43_200
    found = seconds_spanned(np.append(day, rows))
    assert found is not None
    assert found == pytest.approx(86_400 * (1 + late / len(day)), rel=0.3)


def test_late_deliveries_of_several_days_do_not_either() -> None:
    day = np.repeat(np.arange(0, 86_400, 300), 8)
    late = [np.linspace(0, 3_600, 40).astype(np.int64) - 86_400 * days for days in (3, 40)]
    assert seconds_spanned(np.concatenate([day, *late])) == pytest.approx(86_400, rel=0.05)


@pytest.mark.parametrize(
    ("first", "rest", "second"), [(28_800, 57_600, 28_800), (28_800, 7_200, 5_400)], ids=["a night", "a lull"]
)
def test_a_stream_that_rests_covers_its_rest(first: int, rest: int, second: int) -> None:
    begun, again = np.arange(0, first, 60), np.arange(0, second, 60) + first + rest
    assert seconds_spanned(np.append(begun, again)) == pytest.approx(first + rest + second, rel=0.01)


def test_a_few_tuples_that_come_unevenly_cover_all_of_their_time() -> None:
    assert seconds_spanned(np.array([0, 10, 20, 30, 40, 50, 60, 90])) == pytest.approx(90 * 8 / 7)


def test_a_rest_that_was_waited_for_counts_and_a_late_delivery_does_not(tmp_path: Path) -> None:
    """Eight hours, a rest of eight, and a quarter as many in two more, of a batch that took a day to arrive.

    The batches before them have other events: these ones cover what their own tuples span.
    """
    world = timed(tmp_path)
    world.deliver("2026-03-01/a.json", at(every(60, 10, world.now + timedelta(days=30))))
    world.take_in()
    world.later(86_400)
    start = world.now - timedelta(hours=20)
    rested = [*every(60, 480, start), *every(60, 120, start + timedelta(hours=16))]
    world.deliver("2026-03-02/b.json", at(rested))
    (batch,) = world.take_in()
    assert batch.seconds_covered == pytest.approx(18 * 3600, rel=0.01)
    world.later(86_400)
    start = world.now - timedelta(hours=20)
    late = [*every(60, 480, start), *every(60, 120, start - timedelta(hours=40))]
    world.deliver("2026-03-03/c.json", at(late))
    (batch,) = world.take_in()
    assert batch.seconds_covered == pytest.approx(8 * 3600 * 600 / 480, rel=0.01)


def test_one_odd_clock_among_few_tuples_does_not_stretch_them_over_years() -> None:
    assert seconds_spanned(np.array([0, 10, 20, 30, 40, 50, 60, -1_767_244_172])) == pytest.approx(
        80, rel=0.3
    )


def test_a_moment_with_odd_tuples_around_it_tells_no_rate() -> None:
    assert seconds_spanned(np.append(np.zeros(1000, np.int64), [-604_800])) is None
    assert seconds_spanned(np.array([0, 0, 0, 3600])) == 7200


@given(st.integers(2, 400), st.integers(1, 10_000), st.integers(1, 5), st.randoms(use_true_random=False))
def test_regular_tuples_cover_exactly_their_steps_in_whatever_order(
    moments: int, step: int, a_moment: int, chance: Any
) -> None:
    order = [i * step for i in range(moments) for _ in range(a_moment)]
    chance.shuffle(order)
    assert seconds_spanned(np.array(order)) == pytest.approx(moments * step)


def test_one_tuple_that_says_1970_changes_no_rate_of_a_batch(tmp_path: Path) -> None:
    world = timed(tmp_path)
    start = world.now
    world.deliver("a.json", at([*every(1, 900, start), datetime(1970, 1, 1, tzinfo=UTC)]))
    (batch,) = world.take_in()
    assert batch.seconds_covered == pytest.approx(901, rel=0.01)


@pytest.mark.parametrize("moments", [1, 5])
def test_a_batch_without_a_rate_takes_the_last_known_one_and_says_so(tmp_path: Path, moments: int) -> None:
    world = timed(tmp_path)
    start = world.now
    for name, seconds in (("a", 4), ("b", 2)):
        world.deliver(f"{name}.json", at(every(seconds, 100, start)))
        world.take_in()
    world.deliver("c.json", at([start + timedelta(seconds=300)] * moments))
    (batch,) = world.take_in()
    assert batch.seconds_covered == 2.0 * moments
    assert batch.rate_note == "it has no rate of its own: the last known one, of batch 2"
    assert world.said[-1] == f"delays: batch 3: {batch.rate_note}"


def test_the_first_batch_of_a_stream_without_a_rate_waits_by_name_until_another_tells(tmp_path: Path) -> None:
    world = timed(tmp_path)
    start = world.now
    world.deliver("a.json", at([start]))
    (batch,) = world.take_in()
    assert batch.seconds_covered is None
    assert "it waits until another batch tells it, or `rate: {from: declared" in (batch.rate_note or "")
    assert world.is_quiet()
    world.deliver("b.json", at(every(2, 100, start)))
    world.take_in()
    first, second = world.batches()
    assert (first.seconds_covered, second.seconds_covered) == (2.0, 200.0)
    assert first.rate_note == "it has no rate of its own: the last known one, of batch 2"


def test_a_rate_that_is_declared_afterwards_is_given_to_what_waits(tmp_path: Path) -> None:
    world = timed(tmp_path)
    world.deliver("a.json", at([world.now]))
    world.take_in()
    world.contract = timed(tmp_path, rate={"from": "declared", "tuples_per_second": 4}).contract
    world.take_in()
    assert [batch.seconds_covered for batch in world.batches()] == [0.25]


def test_a_first_batch_of_one_moment_covers_the_time_its_files_took_to_arrive(tmp_path: Path) -> None:
    world = timed(tmp_path)
    world.deliver("a.json", at([world.now]))
    world.deliver("b.json", at([world.now - timedelta(seconds=61)]))
    (batch,) = world.take_in()
    assert batch.seconds_covered == 61.0
    assert batch.rate_note == "it has no rate of its own: the time since the files before it arrived"


def test_copies_that_keep_the_time_of_their_originals_arrived_in_no_negative_time(tmp_path: Path) -> None:
    world = timed(tmp_path, rate={"from": "arrival"})
    start = world.now
    world.deliver("a.json", at(every(1, 100, start)))
    world.take_in()
    for name, ago in (("b.json", 3600), ("c.json", 3000)):
        copied = (start - timedelta(seconds=ago)).timestamp()
        os.utime(world.deliver(name, at(every(ago, 10, start))), (copied, copied))
    (batch,) = world.take_in()
    assert batch.seconds_covered == 600.0


def test_of_two_days_that_arrive_together_the_second_begins_where_the_first_ended(tmp_path: Path) -> None:
    world = timed(tmp_path, rate={"from": "arrival"})
    start = world.now
    for day in ("2026-03-01", "2026-03-02"):
        for name in ("a", "b"):
            world.deliver(f"{day}/{name}.json", at(every(1, 10, start)))
            start -= timedelta(hours=1)
    assert [batch.seconds_covered for batch in world.take_in()] == [61.0, 122.0]


def test_event_time_and_arrival_that_disagree_by_ten_times_are_told_by_name(tmp_path: Path) -> None:
    world = timed(tmp_path)
    start = world.now
    world.deliver("a.json", at(every(1, 100, start)))
    world.take_in()
    world.deliver("b.json", at(every(60, 100, start - timedelta(hours=5))))
    (batch,) = world.take_in()
    assert batch.seconds_covered == 6000.0
    assert "event time says that it covers 6,000 s, its files arrived within 61 s" in (batch.rate_note or "")
    assert "write `rate: {from: arrival}`" in world.said[-1]
    assert "history" not in (batch.rate_note or "")
    world.later(2000)
    world.deliver("c.json", at(every(0.5, 198, start)))
    (batch,) = world.take_in()
    assert "event time says that it covers 99 s, its files arrived within 2,061 s" in (batch.rate_note or "")


def test_delivery_every_15_minutes_covers_15_minutes(
    tmp_path: Path,
) -> None:
    """Forty devices report once in a quarter, within its first 636 s: the time between two deliveries is 900 s."""
    world = timed(tmp_path)
    start = world.now
    for quarter in range(4):
        moments = every(636 / 39, 40, start + quarter * timedelta(minutes=15))
        world.deliver(f"{quarter}.json", at(moments))
        world.take_in()
        world.later(900 - 61)
    first, *others = (batch.seconds_covered for batch in world.batches())
    assert first == pytest.approx(636 * 40 / 39), "the first batch has only its own span and one step"
    assert others == [900.0] * 3
    assert [batch.rate_note for batch in world.batches()] == [None] * 4


def test_batch_with_one_moment_covers_the_time_since_the_batch_before(tmp_path: Path) -> None:
    world = timed(tmp_path)
    start = world.now
    for minutes in (0, 5, 10):
        world.deliver(f"{minutes}.json", at([start + timedelta(minutes=minutes)] * 8))
        world.take_in()
    assert [batch.seconds_covered for batch in world.batches()] == [300.0] * 3
    assert world.batches()[0].rate_note == "it has no rate of its own: the last known one, of batch 2"


@pytest.mark.parametrize(
    ("begin", "seconds"),
    [(-3600, 900.0), (-899, 900.0), (-450, 900.0), (0, 900.0), (1, 901.0), (600, 1500.0)],
    ids=["late", "about the same time", "half of it new", "in turn", "a second later", "after a rest"],
)
def test_a_batch_covers_its_own_span_or_the_longer_time_since_the_one_before(
    tmp_path: Path, begin: int, seconds: float
) -> None:
    """`begin`: seconds from the end of the first batch to the start of the second."""
    world = timed(tmp_path)
    world.deliver("a.json", at(every(9, 100, world.now)))
    world.deliver("b.json", b"")
    world.take_in()
    world.deliver("c.json", at(every(9, 100, START + timedelta(seconds=900 + begin))))
    (batch,) = world.take_in()
    assert batch.seconds_covered == seconds


def test_batch_after_a_late_batch_covers_the_time_since_the_newest_end(tmp_path: Path) -> None:
    world = timed(tmp_path)
    for name, begin in (("a", 0), ("late", -86_400), ("b", 1200)):
        world.deliver(f"{name}.json", at(every(9, 100, START + timedelta(seconds=begin))))
        world.take_in()
    assert [batch.seconds_covered for batch in world.batches()] == [900.0, 900.0, 1200.0]


def test_silence_of_days_counts_for_one_day(tmp_path: Path) -> None:
    """A link that was silent for a week cannot send a week's bytes at once."""
    world = timed(tmp_path)
    for day in (0, 7):
        world.deliver(f"{day}.json", at(every(9, 100, START + timedelta(days=day))))
        world.take_in()
        world.later(7 * 86_400)
    assert [batch.seconds_covered for batch in world.batches()] == [900.0, 900.0 + 86_400.0]
    assert [batch.rate_note for batch in world.batches()] == [None, None]


def test_one_fast_clock_does_not_shorten_later_batches(tmp_path: Path) -> None:
    world = timed(tmp_path)
    ahead = START + timedelta(days=900)
    for quarter in range(3):
        moments = [*every(9, 100, START + quarter * timedelta(minutes=15)), *([ahead] if not quarter else [])]
        world.deliver(f"{quarter}.json", at(moments))
        world.take_in()
    assert [batch.seconds_covered for batch in world.batches()][1:] == [900.0, 900.0]


def test_files_of_one_run_and_dates_of_one_run_cover_their_time_once(tmp_path: Path) -> None:
    """Two files of a date are one batch; the batch of the next date covers the time from the end of the first."""
    world = timed(tmp_path)
    for name, hour in (("2026-03-02/a", 0), ("2026-03-02/b", 1), ("2026-03-03/c", 24)):
        world.deliver(f"{name}.json", at(every(36, 100, START + timedelta(hours=hour))))
    first, second = world.take_in()
    assert (first.seconds_covered, second.seconds_covered) == (7200.0, 23 * 3600.0)


def test_a_batch_that_is_written_again_covers_the_same_time(tmp_path: Path) -> None:
    """A run died and left the batch recorded. A later batch that was taken in since does not change its time."""
    world = timed(tmp_path)
    for quarter in range(3):
        world.deliver(f"{quarter}.json", at(every(9, 60, START + quarter * timedelta(minutes=15))))
        world.take_in()
    before = world.batches()
    recorded = replace(
        before[1], status=RECORDED, rows=None, rate_note=None, event_end=None, seconds_covered=61.0
    )
    save_batches(world.tables, [recorded])
    world.take_in()
    assert [b.seconds_covered for b in world.batches()] == [b.seconds_covered for b in before]
    assert [b.event_end for b in world.batches()] == [b.event_end for b in before]


def test_refused_rows_and_other_streams_do_not_change_the_end_of_a_batch(tmp_path: Path) -> None:
    world = timed(tmp_path)
    world.deliver("a.json", at(every(9, 100, START)))
    refused = json.dumps({"router": None, "at": (START + timedelta(days=1)).isoformat(), "delay_ms": 1.0})
    world.deliver("b.json", at(every(9, 100, START + timedelta(minutes=15))) + refused.encode() + b"\n")
    world.take_in()
    other = timed(tmp_path, stream="others", source={"kind": "files", "path": "delays", "format": "json"})
    other.take_in()
    world.deliver("c.json", at(every(9, 100, START + timedelta(minutes=30))))
    (batch,) = world.take_in()
    assert batch.seconds_covered == 900.0


def test_batch_after_one_without_a_stored_end_covers_its_own_span(tmp_path: Path) -> None:
    world = timed(tmp_path)
    world.deliver("a.json", at(every(9, 60, START)))
    (batch,) = world.take_in()
    save_batches(world.tables, [replace(batch, event_end=None)])
    world.deliver("b.json", at(every(9, 60, START + timedelta(minutes=15))))
    (batch,) = world.take_in()
    assert batch.seconds_covered == 540.0


def test_history_that_is_delivered_at_once_is_told_as_that(tmp_path: Path) -> None:
    world = timed(tmp_path)
    old = world.now - timedelta(days=400)
    world.deliver("a.json", at(every(3600, 100, old)))
    world.deliver("b.json", at(every(3600, 100, old + timedelta(seconds=360_000))))
    (batch,) = world.take_in()
    assert batch.seconds_covered == 720_000.0
    assert "history that was delivered at once?" in (batch.rate_note or "")


def ordered(tmp_path: Path, name: str, unit: str | None = None) -> LandingWorld:
    """A stream whose order attribute is a whole number of the given name and stated unit."""
    order = {"name": name, "type": "integer", "role": "order", **({"unit": unit} if unit else {})}
    attributes = [order if one["name"] == "at" else one for one in CONTRACT["attributes"]]
    return LandingWorld(tmp_path, contract(attributes=attributes, **EVENT))


def numbered(name: str, values: Iterable[int]) -> bytes:
    rows = [{"router": "r", name: value, "delay_ms": 1.0} for value in values]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


EPOCH = 1_770_000_000
MONTH, YEAR = 2_629_746.0, 31_556_952.0


@pytest.mark.parametrize(
    ("name", "unit", "values", "seconds"),
    [
        ("event_time", None, range(EPOCH, EPOCH + 100), 100.0),
        ("event_time", None, range(EPOCH * 10**3, EPOCH * 10**3 + 100_000, 1_000), 100.0),
        ("event_time", None, range(EPOCH * 10**6, EPOCH * 10**6 + 100 * 10**6, 10**6), 100.0),
        ("event_time", None, range(EPOCH * 10**9, EPOCH * 10**9 + 100 * 10**9, 10**9), 100.0),
        ("uptime_ms", None, range(0, 100_000, 1_000), 100.0),
        ("year", None, range(1990, 2010), 20 * YEAR),
        ("month", None, [200_011, 200_012, 200_101, 200_102], 4 * MONTH),
        ("date", None, [20_001_231, 20_010_101, 20_010_102], 3 * 86_400.0),
        ("number", "s", range(100), 100.0),
        ("number", "minutes", range(100), 6_000.0),
        ("year", "s", range(2000, 2100), 100.0),
    ],
)
def test_rate_of_a_whole_number_order_uses_its_unit(
    tmp_path: Path, name: str, unit: str | None, values: Iterable[int], seconds: float
) -> None:
    world = ordered(tmp_path, name, unit)
    world.deliver("a.json", numbered(name, values))
    (batch,) = world.take_in()
    assert batch.seconds_covered == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "unit", "values"),
    [
        ("number", None, range(EPOCH, EPOCH + 100)),
        ("number", "counts", range(100)),
        ("month", None, range(1, 13)),
        ("time_ms", None, range(EPOCH, EPOCH + 100)),
        ("reading", None, range(100)),
        ("reading", None, range(EPOCH * 10**3, EPOCH * 10**3 + 100)),  # or article numbers
        ("reading", None, range(EPOCH * 10**9, EPOCH * 10**9 + 100)),  # or identifiers that hold a time
        ("event_time", None, range(2_026_010_100, 2_026_010_120)),  # year to hour
        ("created_at", None, range(202_601_011_200, 202_601_011_250)),  # year to minute
        ("timestamp", None, range(134_000_000 * 10**9, 134_000_000 * 10**9 + 10**9, 10**7)),  # Windows
        ("time", None, [EPOCH + i if i % 2 else 1_000 * (EPOCH + i) for i in range(100)]),  # two units in one
        ("time", None, range(2**63 - 101, 2**63 - 1)),
        ("time", None, range(-(2**63), -(2**63) + 100)),
        ("bytes_sent", None, range(EPOCH, EPOCH + 100)),
        ("date", None, range(260_101, 260_112)),  # two digits for the year
    ],
)
def test_an_order_of_unknown_unit_gives_no_rate_and_names_the_remedy(
    tmp_path: Path, name: str, unit: str | None, values: Iterable[int]
) -> None:
    world = ordered(tmp_path, name, unit)
    world.deliver("a.json", numbered(name, values))
    (batch,) = world.take_in()
    assert batch.seconds_covered is None
    assert f"state `unit:` of {name}" in (batch.rate_note or "")
    world.later(600)
    world.deliver("b.json", numbered(name, list(values)[::-1]))
    world.take_in()
    first, second = world.batches()
    assert second.seconds_covered == 661.0, "the time between the arrivals"
    assert first.seconds_covered == pytest.approx(661.0), "borrowed from the second"


def test_a_delivery_at_once_under_an_unknown_unit_takes_the_last_known_rate(tmp_path: Path) -> None:
    """The old rate may come from event time, by a version that took every whole number for seconds."""
    known = ordered(tmp_path, "number", "s")
    known.deliver("a.json", numbered("number", range(0, 100_000, 1_000)))
    known.take_in()
    world = ordered(tmp_path, "number")
    world.later(100)
    world.deliver("b.json", numbered("number", range(100_000, 200_000, 1_000)))
    world.take_in()
    world.later(50_000)
    world.deliver("c.json", numbered("number", range(200_000, 250_000, 1_000)))
    world.take_in()
    _, second, third = world.batches()
    assert second.seconds_covered == pytest.approx(100_000.0), "ten times the known rate is no rate"
    assert "the last known one, of batch 1" in (second.rate_note or "")
    assert "state `unit:` of number" in (second.rate_note or "")
    assert third.seconds_covered == pytest.approx(50_000.0, rel=0.01), "arrivals that agree count"

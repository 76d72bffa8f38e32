"""What determines what, against counting by hand; what looks like a sender's name and what does not."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.levers.attributes.cycle.codes import (
    change_share,
    comes_evenly,
    determines,
    looks_like_a_key,
    smallest_determining,
    undetermined_share,
)

PAIRS = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 3)), min_size=1, max_size=40)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    by, of = zip(*pairs, strict=True)
    return np.array(by, dtype=np.int64), np.array(of, dtype=np.int64)


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_the_undetermined_share_is_what_remains_beside_each_values_favourite(
    pairs: list[tuple[int, int]],
) -> None:
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    for by, of in pairs:
        if by >= 0 and of >= 0:
            seen[by][of] += 1
    total = sum(counts.total() for counts in seen.values())
    expected = 1 - sum(max(counts.values()) for counts in seen.values()) / total if total else 1.0
    assert undetermined_share(*columns(pairs)) == pytest.approx(expected)


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_the_change_share_is_counted_from_each_tuple_to_the_next_of_the_same_value(
    pairs: list[tuple[int, int]],
) -> None:
    last: dict[int, int] = {}
    changes = []
    for within, of in pairs:
        if within >= 0 and of >= 0:
            if within in last:
                changes.append(last[within] != of)
            last[within] = of
    within, of = columns(pairs)
    assert change_share(of, within) == pytest.approx(np.mean(changes) if changes else 0.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=2, max_size=30))
def test_the_smallest_determining_sets_are_those_of_trying_all(rows: list[tuple[int, ...]]) -> None:
    codes = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]

    def enough(chosen: tuple[int, ...]) -> bool:
        seen: dict[tuple[int, ...], tuple[int, ...]] = {}
        return all(seen.setdefault(tuple(row[k] for k in chosen), row) == row for row in rows)

    for size in range(1, 5):
        expected = [chosen for chosen in combinations(range(4), size) if enough(chosen)]
        if expected:
            break
    # fewer than a hundred rows leave no room for exceptions
    assert smallest_determining(codes) == expected


def test_more_than_ten_attributes_are_left_out_one_by_one() -> None:
    key = np.random.default_rng(0).integers(0, 50, 2000)
    codes = [key % (k + 2) for k in range(10)] + [key, key // 2]
    (found,) = smallest_determining(codes)
    assert found == (10,)


def test_what_holds_but_for_one_tuple_in_a_hundred_is_determined_and_two_are_too_many() -> None:
    by = np.tile(np.arange(10), 1000)
    of = by % 3
    for exceptions, expected in ((90, True), (250, False)):
        odd = of.copy()
        odd[:exceptions] = 5
        assert determines(by, odd) is expected, exceptions


def test_a_sample_never_rules_out_what_the_whole_allows() -> None:
    rng = np.random.default_rng(3)
    by = rng.integers(0, 40, 200_000)
    of = np.where(rng.random(200_000) < 0.009, 99, by // 2)
    assert undetermined_share(by, of) < 0.01
    assert determines(by, of)


def test_names_come_back_and_quantities_come_unevenly() -> None:
    rng = np.random.default_rng(5)
    name = rng.integers(0, 30, 3000)
    assert looks_like_a_key(name, quantity=True)
    temperature = np.round(rng.normal(50, 5, 3000)).astype(np.int64)
    assert not looks_like_a_key(temperature - temperature.min(), quantity=True)
    assert not looks_like_a_key(np.arange(3000), quantity=False), "every value comes once"
    assert not looks_like_a_key(np.arange(3000) // 100, quantity=False), "a day does not come back"
    assert not looks_like_a_key(np.zeros(3000, dtype=np.int64), quantity=False), "a constant names nobody"


def test_the_members_of_two_feeds_come_evenly_within_each() -> None:
    i = np.arange(8000)
    feed = i % 2
    # 2 members on one feed and 40 on the other: twenty times as often
    key = np.where(feed == 0, i // 2 % 2, 2 + i // 2 % 40)
    assert not comes_evenly(key)
    assert comes_evenly(key, feed)

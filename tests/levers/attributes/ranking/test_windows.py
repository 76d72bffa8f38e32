"""Windows follow the wrap: clean streams, gaps, repeats, swaps, silent members, cycles whose values repeat."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.levers.attributes.demo_streams import bits_of, stocks

from evidence.streams import perturb
from spillway.errors import InvalidValue
from spillway.levers.attributes.cycle.identifier import declared_cycle, find_cycle
from spillway.levers.attributes.ranking.windows import (
    TimeWindow,
    window_count,
    window_edges,
    window_tuples,
    wraps,
)


def cut(positions: np.ndarray, length: int, at_least: int = 64, ring: int | None = None) -> list[int]:
    """The edges of a stretch of densely numbered rows, the empty windows' left out."""
    window = window_tuples(length, at_least)
    edges = window_edges(
        np.arange(len(positions)),
        positions,
        ring or length,
        low=0,
        high=len(positions) - 1,
        window=window,
        tuples_at_least=at_least,
    )
    return sorted(set(edges.tolist()))


def windows_by_hand(
    seq: Sequence[int], turns: Sequence[int], low: int, high: int, window: int, at_least: int
) -> list[tuple[int, int]]:
    """The rule of the module, word by word: (first seq, first seq after it) of every window that is one."""
    starts = [low]
    for index in range(1, window_count(low, high, window)):
        nominal = low + index * window
        inside = [turn for turn in turns if nominal <= turn < nominal + window]
        if not inside and nominal + window > high:
            continue
        edge = min(inside) if inside else nominal
        before = [one for one in seq if starts[-1] <= one < edge]
        after = [one for one in seq if one >= edge]
        if len(before) >= at_least and len(after) >= at_least:
            starts.append(edge)
    return list(zip(starts, [*starts[1:], high + 1], strict=True))


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Numbers, places and ring of a stream with gaps, refused lines, silent members, swaps and strangers."""
    ring = draw(st.integers(1, 12))
    rows = draw(st.integers(0, 300))
    places = np.arange(rows) % ring
    silent = draw(st.lists(st.integers(0, ring - 1), max_size=ring))
    since, until = sorted(draw(st.tuples(st.integers(0, 300), st.integers(0, 300))))
    here = ~(np.isin(places, silent) & (np.arange(rows) >= since) & (np.arange(rows) < until))
    here &= ~np.isin(np.arange(rows), draw(st.lists(st.integers(0, 299), max_size=60)))
    dense = draw(st.booleans())
    places = places[here]
    for at in draw(st.lists(st.integers(0, 298), max_size=5)):
        if at + 1 < len(places):
            places[[at, at + 1]] = places[[at + 1, at]]
    for at in draw(st.lists(st.integers(0, 299), max_size=5)):
        places[at : at + 1] = -1
    seq = np.arange(len(places)) if dense else np.flatnonzero(here)
    return seq + draw(st.sampled_from([0, 10**12])), places, ring


@settings(max_examples=300, deadline=None)
@given(streams(), st.integers(1, 40), st.integers(0, 20), st.integers(0, 20))
def test_windows_are_those_that_the_rule_gives_by_hand(
    stream: tuple[np.ndarray, np.ndarray, int], at_least: int, more_before: int, more_after: int
) -> None:
    seq, places, ring = stream
    low = int(seq[0]) - more_before if len(seq) else 0
    high = int(seq[-1]) + more_after if len(seq) else more_after
    window = window_tuples(ring, at_least)
    edges = window_edges(
        seq, places, ring, low=low, high=high, window=window, tuples_at_least=at_least
    ).tolist()
    found = [(start, end) for start, end in pairwise(edges) if start < end]
    turns = seq[wraps(places, ring)].tolist()
    assert found == windows_by_hand(seq.tolist(), turns, low, high, window, at_least)
    assert len(edges) == window_count(low, high, window) + 1
    held = [int(((seq >= start) & (seq < end)).sum()) for start, end in found]
    assert sum(held) == len(seq)
    assert min(held) >= min(at_least, len(seq))


def test_with_half_of_the_members_silent_no_window_is_cut_below_what_it_must_hold() -> None:
    # a switch goes down: 40 of 75 members are left from row 300 on, the rows numbered without gaps
    rows = np.arange(4000)
    places = rows[~((rows >= 300) & (rows % 75 >= 40))] % 75
    edges = cut(places, 75)
    assert np.diff(edges).min() >= 64
    assert (places[edges[1:-1]] == 0).all()
    assert len(edges) > len(places) // 100


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_lines_that_were_refused_leave_no_window_too_small_and_merge_no_more_than_two(share: float) -> None:
    kept = np.flatnonzero(np.random.default_rng(1).random(20_000) > share)
    edges = window_edges(kept, kept % 75, 75, low=0, high=19_999, window=75, tuples_at_least=64)
    held = np.array([int(((kept >= a) & (kept < b)).sum()) for a, b in pairwise(edges)])
    assert held[held > 0].min() >= 64
    assert held.max() <= 2 * 75 + 64


@pytest.mark.parametrize("pattern", ["abac", "abacadaeafagahai", "aabbccddeeffgghhi"])
def test_windows_of_a_cycle_whose_values_repeat_start_where_the_cycle_does(pattern: str) -> None:
    columns = {"k": np.array(list(pattern) * 60, dtype=object)}
    cycle = find_cycle(columns, np.arange(60 * len(pattern)), {"k": 8})
    assert (cycle.unique, cycle.ring, cycle.length) == (False, 2, len(pattern))
    places = cycle.positions(columns)
    assert int(wraps(places, cycle.ring).sum()) in (59, 60)
    edges = cut(places, cycle.length, ring=cycle.ring)
    assert (places[edges[1:-1]] == 0).all()
    assert set(np.diff(edges)[1:-1].tolist()) == {window_tuples(len(pattern))}


def test_a_gap_shifts_no_later_window_of_a_cycle_whose_values_repeat() -> None:
    pattern = "abacadaeafagahai"
    whole = np.array(list(pattern) * 60, dtype=object)
    cycle = find_cycle({"k": whole}, np.arange(len(whole)), {"k": 8})
    gone = np.delete(np.arange(len(whole)), 100)  # numbered with the gap, as after a refused line
    places = cycle.positions({"k": whole[gone]})
    window = window_tuples(cycle.length)
    edges = window_edges(
        gone, places, cycle.ring, low=0, high=len(whole) - 1, window=window, tuples_at_least=64
    )
    start = int(np.flatnonzero(cycle.positions({"k": whole}) == 0)[0]) % len(pattern)
    assert {edge % len(pattern) for edge in edges.tolist() if 0 < edge < len(whole)} == {start}


def test_a_cycle_of_one_member_is_cut_by_counting() -> None:
    columns = {"k": np.array(["only"] * 500, dtype=object)}
    cycle = declared_cycle(columns, np.arange(500), ["k"])
    assert (cycle.ring, cycle.length) == (1, 1)
    assert cut(cycle.positions(columns), 1) == [0, 64, 128, 192, 256, 320, 384, 500]


def test_where_the_cycle_no_longer_turns_windows_are_cut_by_counting() -> None:
    places = np.concatenate([np.arange(300) % 3, np.full(700, 1)])  # one sensor is left
    edges = cut(places, 3)
    assert edges[:6] == [0, 66, 132, 198, 264, 330]
    assert np.diff(edges).max() <= 2 * 66


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(1, 2000), st.integers(1, 200))
@example(75, 1000, 64)
def test_a_clean_stream_is_cut_by_counting(length: int, rows: int, at_least: int) -> None:
    window = window_tuples(length, at_least)
    assert window % length == 0
    assert at_least <= window < at_least + length
    edges = cut(np.arange(rows) % length, length, at_least)
    assert edges[:-1] == [*range(0, rows, window)][: len(edges) - 1]
    assert rows - edges[-2] < 2 * window


@pytest.mark.parametrize("length", [3, 8, 48, 200])
def test_one_gap_or_repeat_moves_no_later_window_off_the_wrap(length: int) -> None:
    rows = 40 * length
    for positions in (
        np.delete(np.arange(rows) % length, 5 * length + 1),
        np.insert(np.arange(rows) % length, 5 * length + 1, 0),
    ):
        edges = cut(positions, length)
        assert (positions[edges[:-1]] == 0).all()
        assert len(edges) >= rows // window_tuples(length) - 1


@pytest.mark.parametrize("length", [3, 5, 8, 48])
def test_swapped_neighbours_open_exactly_one_cycle_each_round(length: int) -> None:
    for at in range(3 * length, 4 * length):
        positions = np.arange(10 * length) % length
        positions[[at, at + 1]] = positions[[at + 1, at]]
        assert int(wraps(positions, length).sum()) == 9, at


@pytest.mark.parametrize("length", [48, 75, 200])
def test_wraps_count_the_cycles_of_a_perturbed_stream(length: int) -> None:
    rows = perturb(100 * length, np.random.default_rng(3))
    # a first or last member that was removed may hide at most the first and the last wrap
    assert abs(int(wraps(rows % length, length).sum()) - 99) <= 1


def test_strangers_open_no_window_and_part_no_neighbours() -> None:
    positions = np.arange(600) % 3
    with_strangers = np.insert(positions, [100, 101, 300], -1)
    assert int(wraps(with_strangers, 3).sum()) == int(wraps(positions, 3).sum())
    assert wraps(np.full(5, -1), 3).tolist() == [False] * 5


def test_windows_of_a_growing_cycle_start_where_a_day_starts() -> None:
    stream = stocks()
    seq = np.arange(len(stream["date"]))
    cycle = find_cycle(stream, seq, bits_of(stream), order="date")
    assert (cycle.length_at(0), cycle.length_at(5000), cycle.length_at(12_000)) == (3, 4, 5)
    places = cycle.positions(stream)
    assert (stream["ticker"][cut(places, cycle.length, ring=cycle.ring)[:-1]] == "AAPL").all()
    early = cut(places[:1000], cycle.length_at(0), ring=cycle.ring)
    assert set(np.diff(early)[:-1].tolist()) == {66}


def test_an_empty_or_tiny_stretch_is_one_window() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert window_edges(nothing, nothing, 3, low=5, high=9, window=66, tuples_at_least=64).tolist() == [5, 10]
    assert cut(np.array([0]), 3) == [0, 1]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(InvalidValue, match="`tuples_per_second` must be positive and finite"):
        TimeWindow(3.0, rate)


def test_window_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidValue, match="`cycle_length` must be positive, got 0"):
        window_tuples(0)
    with pytest.raises(InvalidValue, match="`tuples_at_least` must be positive, got 0"):
        window_tuples(3, 0)
    with pytest.raises(InvalidValue, match="`duration_seconds` must be positive"):
        TimeWindow(0.0, 1.0)

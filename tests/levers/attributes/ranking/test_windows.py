"""Windows follow the wrap: clean streams, gaps, repeats, swaps, and edges found from a slice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.attributes.demo_streams import bits_of, stocks

from evidence.streams import perturb
from spillway.errors import SpillwayError
from spillway.levers.attributes.cycle.find import find_cycle
from spillway.levers.attributes.ranking.windows import (
    CONTEXT_ROWS,
    TimeWindow,
    edge_near,
    window_edges,
    window_tuples,
    wraps,
)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 90), st.integers(1, 2000), st.integers(1, 200))
def test_a_clean_stream_is_cut_by_counting(length: int, rows: int, at_least: int) -> None:
    positions = np.arange(rows) % length
    window = window_tuples(length, at_least)
    assert window % length == 0
    assert at_least <= window < at_least + length
    assert window_edges(positions, length, at_least).tolist() == [*range(0, rows, window), rows]


@pytest.mark.parametrize("length", [3, 8, 48, 200])
def test_one_gap_or_repeat_moves_no_later_window_off_the_wrap(length: int) -> None:
    rows = 40 * length
    for positions in (
        np.delete(np.arange(rows) % length, 5 * length + 1),
        np.insert(np.arange(rows) % length, 5 * length + 1, 0),
    ):
        edges = window_edges(positions, length)
        assert (positions[edges[:-1]] == 0).all()
        assert len(edges) > rows // window_tuples(length) - 1


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


@pytest.mark.parametrize("length", [2, 3, 5, 48, 75])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_edge_found_in_a_slice_is_the_edge_of_the_whole(length: int, seed: int) -> None:
    positions = perturb(6000, np.random.default_rng(seed)) % length
    window = window_tuples(length)
    whole = window_edges(positions, length)
    found = set()
    for edge in range(len(positions) // window + 1):
        start = max(0, (edge - 1) * window - CONTEXT_ROWS)
        stop = edge * window + 4 * length + CONTEXT_ROWS
        found.add(edge_near(positions[start:stop], start, edge, length))
    assert sorted(found - {None}) == whole[:-1].tolist()
    assert (np.diff(whole)[:-1] >= 64).all()


def test_strangers_open_no_window_and_part_no_neighbours() -> None:
    positions = np.arange(600) % 3
    with_strangers = np.insert(positions, [100, 101, 300], -1)
    assert int(wraps(with_strangers, 3).sum()) == int(wraps(positions, 3).sum())
    assert wraps(np.full(5, -1), 3).tolist() == [False] * 5


def test_windows_of_a_growing_cycle_start_where_a_day_starts() -> None:
    stream = stocks()
    seq = np.arange(len(stream["date"]))
    cycle = find_cycle(stream, seq, bits_of(stream), order="date")
    edges = window_edges(cycle.positions(stream), cycle)
    assert (stream["ticker"][edges[:-1]] == "AAPL").all()
    assert (cycle.length_at(0), cycle.length_at(5000), cycle.length_at(12_000)) == (3, 4, 5)
    early = window_edges(cycle.positions(stream)[:1000], cycle, at_seq=0)
    assert set(np.diff(early)[:-1].tolist()) == {66}


def test_windows_of_a_cycle_whose_values_repeat_start_at_the_value_that_does_not() -> None:
    pattern = "abacadaeafagahaiaj"
    columns = {"k": np.array(list(pattern) * 20, dtype=object)}
    cycle = find_cycle(columns, np.arange(360), {})
    assert (cycle.length, cycle.unique) == (18, False)
    edges = window_edges(cycle.positions(columns), cycle)
    assert set(np.diff(edges)[1:-1].tolist()) == {72}
    assert len(set(columns["k"][edges[1:-1]])) == 1


def test_empty_and_tiny_frames_have_edges() -> None:
    assert window_edges(np.zeros(0, dtype=np.int64), 3).tolist() == [0]
    assert window_edges(np.array([0]), 3).tolist() == [0, 1]
    assert edge_near(np.array([0, 1, 2]), 0, 1, 3) is None


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2000), st.floats(0.01, 1e6), st.floats(0.01, 1e6))
def test_a_time_window_keeps_its_cycle_when_the_line_rate_changes(
    tuples: int, before: float, after: float
) -> None:
    window = TimeWindow.of_tuples(tuples, before).at_rate(after)
    assert window.tuples == tuples
    assert window.duration_seconds == pytest.approx(tuples / after)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(SpillwayError, match="`tuples_per_second` must be positive and finite"):
        TimeWindow.of_tuples(75, rate)


def test_window_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SpillwayError, match="`cycle_length` must be positive, got 0"):
        window_tuples(0)
    with pytest.raises(SpillwayError, match="`tuples_at_least` must be positive, got 0"):
        window_tuples(3, 0)
    with pytest.raises(SpillwayError, match="`duration_seconds` must be positive"):
        TimeWindow(0.0, 1.0)

"""The kernels against the join done the slow obvious way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.joins.streams import SECOND, Row, full_join, operand

from spillway.levers.joins.matching import (
    PREDICATES,
    SELECTED,
    Drawn,
    FoundPairs,
    Looking,
    Probing,
    basic_windows,
    drawn_comparisons,
    inverted,
    made_by,
    nothing_drawn,
    probe,
    reach_of,
    slot_starts,
    slots_of,
    taken_whole,
    volumes,
)

ITEMS = 7
rows = st.lists(
    st.builds(
        Row,
        # equal times, and times on the edges of basic windows
        at=st.one_of(st.integers(0, 8).map(float), st.floats(0, 8).map(lambda x: round(x, 2))),
        items=st.dictionaries(st.integers(0, ITEMS - 1), st.sampled_from([-1.0, 0.5, 1.0, 2.0]), max_size=4),
        kind=st.integers(0, 1),
    ),
    max_size=14,
)
predicates = st.sampled_from(list(PREDICATES))
lasts = st.sampled_from([1.0, 2.5, 3.0, 20.0])


def probing(
    mine: list[Row], other: list[Row], seconds: float, is_left: bool, basic: float = 1.0
) -> tuple[Probing, int]:
    """Everything is compared; the number of basic windows."""
    p, o = operand(mine), operand(other)
    n, micros = basic_windows(seconds, basic), round(basic * SECOND)
    low, high = reach_of(p, o, round(seconds * SECOND), is_left)
    first = int(o.at.min() // micros) if o.rows else 0
    last = int(o.at.max() // micros) if o.rows else 0
    starts = slot_starts(o.at, micros, first, last - first + 1)
    order = np.arange(n, dtype=np.int64)
    return Probing(low, high, slots_of(p.at, micros), high - low, order, starts, first), n


def joined(
    left: list[Row], right: list[Row], w: tuple[float, float], predicate: str, threshold: float, indexed: bool
) -> set[tuple[int, int]]:
    found = set()
    for is_left in (True, False):
        mine, other = (left, right) if is_left else (right, left)
        how, _ = probing(mine, other, w[1] if is_left else w[0], is_left)
        one = run(mine, other, how, predicate, threshold, indexed, is_left)
        p, o = operand(mine), operand(other)
        for k, row in zip(one.probe, one.row, strict=True):
            pair = (int(p.seq[k]), int(o.seq[row]))
            pair = pair if is_left else pair[::-1]
            assert pair not in found
            found.add(pair)
    return found


def run(
    mine: list[Row],
    other: list[Row],
    how: Probing,
    predicate: str,
    threshold: float,
    indexed: bool,
    is_left: bool,
    drawn: Drawn | None = None,
) -> FoundPairs:
    p, o = operand(mine), operand(other)
    index = inverted(o.sets, ITEMS) if indexed else None
    return probe(p, o, how, PREDICATES[predicate], threshold, index, is_left, False, drawn)


@settings(max_examples=80, deadline=None)
@given(rows, rows, st.tuples(lasts, lasts), predicates, st.sampled_from([0.5, 1.0, 2.0]))
def test_comparing_everything_finds_the_pairs_of_the_full_join_with_an_index_and_without(
    left: list[Row], right: list[Row], w: tuple[float, float], predicate: str, threshold: float
) -> None:
    truth = full_join(left, right, *w, predicate, threshold)
    assert joined(left, right, w, predicate, threshold, indexed=False) == truth
    assert joined(left, right, w, predicate, threshold, indexed=True) == truth


@settings(max_examples=60, deadline=None)
@given(
    rows,
    rows,
    lasts,
    predicates,
    st.randoms(use_true_random=False),
    st.booleans(),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_selecting_finds_no_pair_that_is_none_and_the_index_changes_nothing(
    mine: list[Row], other: list[Row], w: float, predicate: str, chance: object, is_left: bool, basic: float
) -> None:
    how, n = probing(mine, other, w, is_left, basic)
    shuffle = np.random.default_rng(chance.randint(0, 2**31))  # type: ignore[attr-defined]
    order = shuffle.permutation(n).astype(np.int64)
    take = np.floor(shuffle.random(len(how.take)) * (how.take + 1)).astype(np.int64)
    some = replace(how, order=order, take=take)
    drawn = drawn_comparisons(how.low, how.high, np.arange(len(take)), 0.3, shuffle.integers(0, 99))
    plain = run(mine, other, some, predicate, 1.0, False, is_left, drawn)
    indexed = run(mine, other, some, predicate, 1.0, True, is_left, drawn)
    selected = run(mine, other, some, predicate, 1.0, True, is_left, nothing_drawn(len(take)))
    whole = run(mine, other, how, predicate, 1.0, False, is_left)

    def pairs(found: FoundPairs) -> set[tuple[int, int]]:
        return set(zip(found.probe.tolist(), found.row.tolist(), strict=True))

    assert pairs(plain) <= pairs(whole)
    assert pairs(plain) == pairs(indexed)
    # as many rows are selected as may be; of what was drawn, what selecting did not find is marked as beyond it
    assert (selected.compared == np.minimum(take, how.high - how.low)).all()
    assert (plain.compared == indexed.compared).all()
    assert plain.steps == plain.compared.sum(), "what is selected and drawn is one comparison"
    every = run(mine, other, how, predicate, 1.0, False, is_left, drawn)
    assert (every.compared == how.high - how.low).all(), "what is selected and drawn is one comparison"
    assert (every.behind == SELECTED).all()
    assert every.drawn == 0
    assert (plain.compared <= selected.compared + np.diff(drawn.first)).all()
    by_chance = {
        (k, int(row)) for k in range(len(take)) for row in drawn.rows[drawn.first[k] : drawn.first[k + 1]]
    }
    assert pairs(plain) == pairs(selected) | (pairs(whole) & by_chance)
    inside = plain.behind == SELECTED
    kept = set(zip(plain.probe[inside].tolist(), plain.row[inside].tolist(), strict=True))
    assert kept == pairs(selected)
    assert plain.drawn == indexed.drawn == len(pairs(plain) - pairs(selected))
    assert (plain.inside == indexed.inside).all()
    assert (plain.inside == selected.everything).all()
    # each pair counts once for the basic window it lies in, however it was found
    slots = slots_of(operand(other).at, round(basic * SECOND))
    lags = how.slots[plain.probe] - slots[plain.row]
    assert plain.by_lag.tolist() == np.bincount(lags, minlength=n).tolist()
    assert plain.behind[~inside].tolist() == lags[~inside].tolist()


@settings(max_examples=60, deadline=None)
@given(
    rows,
    rows,
    lasts,
    predicates,
    st.integers(0, 2**31),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_what_is_looked_at_is_all_of_a_basic_window_and_compared_once(
    mine: list[Row],
    other: list[Row],
    w: float,
    predicate: str,
    seed: int,
    is_left: bool,
    together: bool,
    basic: float,
) -> None:
    how, n = probing(mine, other, w, is_left, basic)
    shuffle = np.random.default_rng(seed)
    take = np.floor(shuffle.random(len(how.take)) * (how.take + 1)).astype(np.int64)
    chances = shuffle.choice([0.0, 0.5, 1.0], n) if not together else np.full(n, 0.5)
    who = shuffle.random(len(take)) < 0.7
    looking = Looking(chances, who, together, seed)
    some = replace(how, order=shuffle.permutation(n).astype(np.int64), take=take, looking=looking)
    drawn = drawn_comparisons(how.low, how.high, np.arange(len(take)), 0.2, seed)
    selected = run(mine, other, replace(some, looking=Looking()), predicate, 1.0, True, is_left)
    plain = run(mine, other, some, predicate, 1.0, False, is_left)
    slots = slots_of(operand(other).at, round(basic * SECOND))

    def found(one: FoundPairs) -> set[tuple[int, int]]:
        return set(zip(one.probe.tolist(), one.row.tolist(), strict=True))

    lacks = found(run(mine, other, how, predicate, 1.0, False, is_left)) - found(selected)
    beyond = found(plain) - found(selected)
    assert found(selected) <= found(plain)
    cells = {(k, int(how.slots[k] - slots[row])) for k, row in beyond}
    for k, row in lacks:  # a cell is looked at with all of its pairs, or with none
        cell = (k, int(how.slots[k] - slots[row]))
        assert ((k, row) in beyond) == (cell in cells)
        assert who[k] or (k, row) not in beyond
        assert cell not in cells or chances[cell[1]] > 0
        assert (k, row) in beyond or not who[k] or chances[cell[1]] < 1
        assert not together or ((k, row) in beyond) == any(at == k for at, _ in beyond)
    for indexed in (False, True):
        both = run(mine, other, some, predicate, 1.0, indexed, is_left, drawn)
        assert (both.compared <= how.high - how.low).all()
        alone = run(mine, other, some, predicate, 1.0, indexed, is_left)
        assert found(alone) == found(plain)
        assert both.drawn == len(found(both) - found(alone))
        p = operand(mine)
        _, made, by_row = made_by(p.seq, p.kinds, 2, some.selection, Looking(chances, who, together, seed))
        assert (alone.compared == by_row).all()
        assert made.sum() == by_row.sum()


def test_basic_windows_are_used_in_the_order_of_their_ranks_and_the_last_one_partly() -> None:
    # rows of the window at 0.5, 1.5, ..., 4.5; a row at 5.5 sees them in basic windows 5, 4, 3, 2, 1
    window = [Row(0.5 + second, {1: 1.0}) for second in range(5) for _ in range(2)]
    how, n = probing([Row(5.5, {1: 1.0})], window, 5.0, True)
    order = np.array([3, 1, *(j for j in range(n) if j not in (3, 1))], np.int64)
    found = run(
        [Row(5.5, {1: 1.0})],
        window,
        replace(how, order=order, take=np.array([3])),
        "equality",
        0.0,
        True,
        True,
    )
    # basic window 3 whole (rows at 2.5), and of basic window 1 the newer row at 4.5
    assert found.row.tolist() == [4, 5, 9]


def test_volumes_are_the_comparisons_there_are_by_basic_window_and_type() -> None:
    window = [Row(0.5, {1: 1.0}), Row(1.5, {1: 1.0}), Row(1.6, {1: 1.0})]
    mine = [Row(2.5, {1: 1.0}, kind=1), Row(1.5, {1: 1.0})]
    how, n = probing(mine, window, 2.0, True)
    p = operand(mine)
    found = volumes(how.low, how.high, how.slots, p.kinds, how.starts, how.first_slot, n, 2)
    assert n == 3
    # the right row at 1.5 is not before the left row at 1.5, which comes first where times are equal
    assert found.tolist() == [[0, 0], [1, 2], [0, 1]]


def test_an_index_takes_a_step_for_every_list_that_is_looked_up_and_every_entry_that_is_read() -> None:
    window = [Row(0.5, {1: 1.0}), Row(1.5, {1: 1.0, 2: 1.0}), Row(2.5, {3: 1.0})]
    mine = [Row(3.5, {1: 1.0, 2: 1.0})]
    how, _ = probing(mine, window, 5.0, True)
    assert run(mine, window, how, "overlap", 1.0, True, True).steps == 2 + 3
    # two stretches that do not touch are looked up apart
    apart = replace(how, order=np.array([3, 1, 0, 2, 4, 5]), take=np.array([2]))
    assert run(mine, window, apart, "overlap", 1.0, True, True).steps == 2 * 2 + 1


@pytest.mark.parametrize(("seconds", "basic", "n"), [(20, 1, 21), (1, 1, 2), (2.5, 1, 4), (0.3, 0.1, 4)])
def test_there_is_one_basic_window_more_than_a_window_holds(seconds: float, basic: float, n: int) -> None:
    assert basic_windows(seconds, basic) == n


@settings(max_examples=60, deadline=None)
@given(rows, rows, lasts, st.integers(0, 2**31), st.sampled_from([0.5, 1.0, 3.0]), st.floats(0, 1))
def test_basic_windows_that_are_taken_whole_or_not_are_as_many_rows_on_average_as_are_wanted(
    mine: list[Row], other: list[Row], w: float, seed: int, basic: float, share: float
) -> None:
    how, n = probing(mine, other, w, True, basic)
    order = np.random.default_rng(seed).permutation(n).astype(np.int64)
    wanted = share * (how.high - how.low)
    slots = slots_of(operand(other).at, round(basic * SECOND))
    selection = replace(how, order=order).selection
    draws = (np.arange(200) + 0.5) / 200
    found = np.array([taken_whole(wanted, np.full(len(wanted), one), selection) for one in draws])
    for k, want in enumerate(wanted):
        sizes = np.bincount(how.slots[k] - slots[how.low[k] : how.high[k]], minlength=n)[order]
        assert set(found[:, k]) <= set(np.concatenate([[0], np.cumsum(sizes)]).tolist())
        assert abs(found[:, k].mean() - want) <= sizes.max(initial=0) / 200 + 1e-9

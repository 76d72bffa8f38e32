"""Chains find what any index finds, row by row, and count the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.joins.streams import Row, operand
from tests.levers.joins.test_probe import lasts, probing

from spillway.levers.joins.estimates import chains_of, find_chained_pairs
from spillway.levers.joins.matching import EQUALITY, Looking, index_for, probe

values = st.lists(
    st.builds(
        Row,
        at=st.integers(0, 16).map(lambda half: half / 2),
        items=st.sampled_from([{}, {1: 1.0}, {2: 1.0}, {5: 1.0}]),
    ),
    max_size=16,
)


@settings(max_examples=100, deadline=None)
@given(
    values,
    values,
    lasts,
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_whole_rows_have_the_pairs_that_an_index_finds(
    mine: list[Row], other: list[Row], w: float, is_left: bool, with_itself: bool, seed: int, basic: float
) -> None:
    other = mine if with_itself else other
    how, n = probing(mine, other, w, is_left, basic)
    chance, (p, o) = np.random.default_rng(seed), (operand(mine), operand(other))
    # some rows were selected whole, and of the others chance picks some
    take = np.where(chance.random(len(how.take)) < 0.4, how.take, 0)
    who = chance.random(len(take)) < 0.8
    how = replace(how, take=take, looking=Looking(np.full(n, 0.5), who, True, seed))
    listed = probe(p, o, how, EQUALITY, 0.0, index_for(p.sets, o.sets), is_left, with_itself)
    found = find_chained_pairs(
        p, o, how, chains_of(p.sets, o.sets, (how.low, how.high)), listed.compared, with_itself
    )
    assert found.steps == listed.steps
    assert found.drawn == 0
    for name in ("compared", "inside", "everything", "by_lag"):
        assert getattr(found, name).tolist() == getattr(listed, name).tolist(), name
    each = [
        sorted(zip(one.probe.tolist(), one.row.tolist(), one.behind.tolist(), strict=True))
        for one in (found, listed)
    ]
    assert each[0] == each[1]
    assert list(zip(found.probe.tolist(), found.row.tolist(), strict=True)) == [pair[:2] for pair in each[0]]


@settings(max_examples=60, deadline=None)
@given(values, values, lasts, st.integers(0, 16), st.sampled_from([0.5, 3.0]))
def test_a_task_that_has_a_stretch_of_the_window_finds_what_it_would_with_all_of_it(
    mine: list[Row], other: list[Row], w: float, cut: int, basic: float
) -> None:
    how, _ = probing(mine, other, w, True, basic)
    p, o = operand(mine), operand(other)
    chains = chains_of(p.sets, o.sets, (how.low, how.high))
    whole = find_chained_pairs(p, o, how, chains, how.take)
    found = []
    for low, high in ((0, min(cut, len(mine))), (min(cut, len(mine)), len(mine))):
        if low == high:
            continue
        span = slice(low, high)
        begin, end = int(how.low[span].min()), int(how.high[span].max())
        part = replace(
            how, low=how.low[span] - begin, high=how.high[span] - begin, slots=how.slots[span], take=how.take[span],
            starts=np.clip(how.starts - begin, 0, end - begin),
        )  # fmt: skip
        one = find_chained_pairs(
            p.cut(low, high), o.cut(begin, end), part, chains.cut(span, begin, end), part.take
        )
        found += list(zip(one.probe + low, one.row + begin, one.behind, strict=True))
    assert found == list(zip(whole.probe, whole.row, whole.behind, strict=True))


def test_a_stretch_that_begins_later_has_its_chains_from_there() -> None:
    mine, other = ([Row(at / 2 + half, {at % 2: 1.0}) for at in range(16)] for half in (0.25, 0.0))
    how, _ = probing(mine, other, 2.5, True)
    p, o = operand(mine), operand(other)
    chains = chains_of(p.sets, o.sets, (how.low, how.high))
    span, begin, end = slice(10, 16), int(how.low[10]), int(how.high[15])
    cut = chains.cut(span, begin, end)
    assert begin > 4
    assert cut.newest.tolist() == [row - begin for row in chains.newest[10:]]
    # two rows back each, and none of the first two within the stretch
    assert cut.previous.tolist() == [row - 2 for row in range(end - begin)]
    assert cut.equals.tolist() == chains.equals[10:].tolist()

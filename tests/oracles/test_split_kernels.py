"""The kernels of small functions return what the kernels of one function returned, bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import AWKWARD, INT_EXTREMES, PLAIN, columns
from tests.levers.joins.streams import Row, operand
from tests.levers.joins.test_probe import lasts, predicates, probing
from tests.oracles import unsplit_code_entries, unsplit_probe
from tests.oracles.unsplit_walk import walk_unsplit

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing import entry_coder
from spillway.levers.attributes.packing.entry_coder import MIXERS, Coder, EntryArrays, contexts_needed
from spillway.levers.attributes.synopsis.model import Predictor, Term
from spillway.levers.attributes.synopsis.predictors import KINDS, column_as_floats, predictor_arrays
from spillway.levers.attributes.synopsis.walking import (
    Corrections,
    Precisions,
    Rows,
    TargetColumn,
    step_tables,
    walk,
)
from spillway.levers.joins.matching import (
    PREDICATES,
    Looking,
    drawn_comparisons,
    inverted,
    made_by,
    probe,
    taken_whole,
)

pytestmark = pytest.mark.long

SHARES = st.sampled_from([0.0, 0.5, 1.0, -0.7, 1.9])
COMMON = st.sampled_from([0.0, 0.0, 0.8])
TERMS = st.sampled_from([(Term(1.0, ("x",)),), (Term(2.0, ("x",), ("x@1",)), Term(-1.0))])
PREDICTORS = {
    "previous": st.builds(Predictor, st.just("previous"), common=COMMON),
    "trend": st.builds(Predictor, st.just("trend"), slope=SHARES, common=COMMON),
    "season": st.builds(
        Predictor, st.just("season"), persistence=SHARES, season=st.integers(1, 5), common=COMMON
    ),
    "level": st.builds(
        Predictor,
        st.just("level"),
        persistence=SHARES,
        smoothing=st.sampled_from([0.05, 0.3, 1.0]),
        common=COMMON,
    ),
    "any": st.builds(Predictor, st.just("any"), persistence=SHARES, common=COMMON),
    "regression": st.builds(Predictor, st.just("regression"), TERMS, SHARES, common=COMMON),
}


def test_every_predictor_is_compared() -> None:
    assert PREDICTORS.keys() == KINDS.keys()


def same(ours: tuple, theirs: tuple) -> bool:
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(ours, theirs, strict=True))


def copied(arrays: tuple) -> list:
    return [one.copy() if isinstance(one, np.ndarray) else one for one in arrays]


@st.composite
def precision_arrays(draw: st.DrawFn) -> Precisions:
    count = draw(st.integers(1, 3))
    steps = [
        (draw(st.sampled_from([0.0, 0.5, 9.4, 100.0])), draw(st.sampled_from([0.0, 0.0, 0.01, 10.0])))
        for _ in range(count)
    ]
    tables, starts = step_tables(tuple(steps))
    aims_pct = np.array([draw(st.sampled_from([0.0, 1e-9, 4.7, 100.0, math.inf])) for _ in steps])
    aims = np.array([draw(st.sampled_from([0.0, 0.5, math.inf, math.inf])) for _ in steps])
    units, is_ladder = np.array([unit for _, unit in steps]), np.array([min(one) > 0 for one in steps])
    return Precisions(aims_pct, aims, units, is_ladder, tables, starts)


@st.composite
def walks(draw: st.DrawFn) -> tuple:
    """Return the arguments of `walk` for any frame, with the true values of all rows."""
    kind = draw(st.sampled_from(["real", "integer"]))
    n = draw(st.sampled_from([0, 1]) | st.integers(2, 40))
    key = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), np.int64)
    smooth = np.cumsum(np.array(draw(st.lists(st.integers(-3, 9), min_size=n, max_size=n)), float)) + 20.0
    mine = draw(
        columns(kind, n)
        | st.just(Column(kind, smooth.astype(float if kind == "real" else int), np.ones(n, bool)))
    )
    frame = Frame(
        np.arange(n), key, {"a": mine, "x": draw(columns("real", n) | st.just(Column.real(smooth * 2)))}
    )
    precisions = draw(precision_arrays())
    shed = np.array(draw(st.lists(st.booleans() | st.just(True), min_size=n, max_size=n)), bool)
    at = np.array(draw(st.lists(st.integers(0, len(precisions.aims) - 1), min_size=n, max_size=n)), np.int64)
    scale = 1.0 if kind == "integer" else draw(st.sampled_from([0.0, 100.0]))
    target = TargetColumn(*column_as_floats(mine), mine.valid.copy(), kind == "integer", scale)
    predictors = tuple(draw(st.lists(st.one_of(*PREDICTORS.values()), min_size=1, max_size=4)))
    return Rows(key, shed, at), target, predictors, frame, draw(st.booleans()), precisions


def both_walk(decode: bool, rows: Rows, target: TargetColumn, corrections: Corrections, rest: tuple) -> tuple:
    """Return what is lost, the column and the corrections of the present kernel; assert that the old one agrees."""
    predictors, frame, blend, precisions = rest
    arrays = predictor_arrays(predictors, frame)
    ours, entries = TargetColumn(*copied(target)), Corrections(*copied(corrections))
    lost = walk(decode, rows, ours, entries, arrays, blend, precisions)
    theirs, their_entries = TargetColumn(*copied(target)), Corrections(*copied(corrections))
    assert lost == walk_unsplit(
        decode, rows, theirs, their_entries, predictors, arrays.regressions, blend, precisions
    )
    assert same(ours, theirs)
    assert same(entries, their_entries)
    return lost, ours, entries


@settings(max_examples=150, deadline=None)
@given(walks(), st.data())
def test_walk_encodes_and_decodes_as_the_unsplit_kernel(case: tuple, data: st.DataObject) -> None:
    rows, target, *rest = case
    n = len(rows.key)
    none = Corrections(np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, np.int64))
    lost, known, corrections = both_walk(False, rows, target, none, rest)
    assert lost == -1
    hidden = rows.is_shed & ~(corrections.is_entry & ~corrections.is_step)
    sent = TargetColumn(
        np.where(hidden, 0.0, known.values),
        np.where(hidden, 0, known.wholes),
        known.valid & ~hidden,
        *known[3:],
    )
    lost, received, _ = both_walk(True, rows, sent, corrections, rest)
    assert lost == -1
    assert same(received, known)
    flipped = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    both_walk(True, rows, sent, corrections._replace(is_entry=corrections.is_entry ^ flipped), rest)
    both_walk(True, rows, sent, corrections._replace(steps=corrections.steps * 3 + flipped), rest)


@st.composite
def entry_arrays(draw: st.DrawFn) -> tuple:
    """Return keys, entries, and the number of bits of an index."""
    span = draw(st.sampled_from([0, 1]) | st.integers(2, 120))
    key = np.array(draw(st.lists(st.integers(0, 4) | st.just(700), min_size=span, max_size=span)), np.int64)
    key = entry_coder.in_order_of_appearance(key) if draw(st.booleans()) else key
    offsets = np.flatnonzero(draw(st.lists(st.booleans(), min_size=span, max_size=span))).astype(np.int64)
    n, index_bits = len(offsets), draw(st.sampled_from([0, 0, 1, 4]))
    wholes = (
        st.integers(0, 2**index_bits - 1)
        if index_bits
        else st.sampled_from(INT_EXTREMES) | st.integers(-9, 99)
    )
    steps = st.integers(-3, 3) | st.integers(-(2**62), 2**62)
    is_step = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)

    def numbers(of: st.SearchStrategy[int]) -> np.ndarray:
        return np.array(draw(st.lists(of, min_size=n, max_size=n)), np.int64)

    marks = np.where(is_step, entry_coder.LITERAL, numbers(st.sampled_from([0, 0, 0, 1, 2, 3, 4])))
    return key, EntryArrays(offsets, is_step, numbers(steps), marks, numbers(wholes)), index_bits


def both_code(decode: bool, key: np.ndarray, entries: EntryArrays, bits: int, coder: Coder) -> tuple:
    """Return the count, the entries and the coder of the present kernel; assert that the old one agrees."""
    ours, our_coder = EntryArrays(*copied(entries)), Coder(*copied(coder))
    theirs, their_coder = copied(entries), copied(coder)
    count = entry_coder.code_entries(decode, key, ours, bits, our_coder)
    assert count == unsplit_code_entries.code_entries(decode, key, *theirs, bits, *their_coder)
    if count >= 0:
        assert same(ours, theirs)
    assert same(our_coder, their_coder)
    return count, ours, our_coder


@settings(max_examples=100, deadline=None)
@given(entry_arrays(), st.data())
def test_code_entries_codes_as_the_unsplit_kernel(case: tuple, data: st.DataObject) -> None:
    key, entries, bits = case
    n = len(entries.offsets)
    written, _, coder = both_code(
        False, key, entries, bits, Coder.writing(MIXERS, contexts_needed(bits), 1 << 14)
    )
    assert written == n
    block = entry_coder.finish(coder.state, coder.buffer)
    blank = EntryArrays(*(np.zeros_like(one) for one in entries))
    reading = Coder.reading(block, MIXERS, contexts_needed(bits))
    got, back, _ = both_code(True, key, blank, bits, reading)
    assert got == n
    assert (back.offsets == entries.offsets).all()
    assert (back.steps == np.where(entries.is_step, entries.steps, 0)).all()
    both_code(True, key[: data.draw(st.integers(0, len(key)))], blank, bits, reading)
    junk = Coder.reading(data.draw(st.binary(max_size=60)), MIXERS, contexts_needed(bits))
    both_code(True, key, blank, bits, junk)
    both_code(False, key, entries, bits, Coder.writing(MIXERS, contexts_needed(bits), 70))


items = st.dictionaries(
    st.integers(0, 6), st.sampled_from([-1.0, 0.5, 1.0, 2.0, math.nan, math.inf, -math.inf]), max_size=4
)
side = st.lists(
    st.builds(Row, at=st.integers(0, 8).map(float) | st.floats(0, 8), items=items, kind=st.integers(0, 1)),
    max_size=30,
)
thresholds = st.sampled_from([0.0, 0.5, 1.0, 2.5, math.inf, -math.inf, math.nan])


@settings(max_examples=100, deadline=None)
@given(side, side, lasts, predicates, thresholds, st.booleans(), st.booleans(), st.integers(0, 2**40))
def test_probe_finds_the_pairs_of_the_unsplit_kernel(
    mine: list[Row],
    other: list[Row],
    w: float,
    predicate: str,
    threshold: float,
    is_left: bool,
    indexed: bool,
    seed: int,
) -> None:
    chance = np.random.default_rng(seed)
    how, n = probing(mine, other, w, is_left, chance.choice([0.5, 1.0, 3.0]))
    threshold = threshold if predicate == "inner_product" else float(chance.choice([0.0, 1.0, 2.5]))
    rows, p, o = len(how.low), operand(mine), operand(other)
    looking = Looking(
        chance.choice([0.0, 0.4, 1.0], n), chance.random(rows) < 0.7, bool(chance.integers(2)), seed
    )
    how = replace(
        how,
        order=chance.permutation(n).astype(np.int64),
        take=np.floor(chance.random(rows) * (how.take + 1)).astype(np.int64),
        looking=looking if chance.integers(2) else Looking(),
    )
    drawn = drawn_comparisons(how.low, how.high, np.arange(rows), 0.3, seed)
    args = (
        p, o, how, PREDICATES[predicate], threshold, inverted(o.sets, 7) if indexed else None, is_left,
        bool(chance.integers(2)), drawn if chance.integers(2) else None,
    )  # fmt: skip
    ours, theirs = probe(*args), unsplit_probe.probe(*args)
    assert same(tuple(vars(ours).values()), tuple(vars(theirs).values()))
    wanted, draws = chance.random(rows) * (how.high - how.low), chance.random(rows)
    old = (how.low, how.high, how.slots, how.order, how.starts, how.first_slot)
    assert same(
        (taken_whole(wanted, draws, how.selection),), (unsplit_probe.taken_whole(wanted, draws, *old),)
    )
    made = unsplit_probe.made_by(
        how.low, how.high, how.slots, p.seq.astype(np.uint64), how.take, p.kinds, how.order, how.starts,
        how.first_slot, 2, looking.chances, looking.who, looking.together, np.uint64(seed),
    )  # fmt: skip
    assert same(made_by(p.seq, p.kinds, 2, how.selection, looking), made)


@pytest.mark.parametrize("values", [AWKWARD, PLAIN])
@pytest.mark.parametrize("blend", [False, True])
def test_all_predictors_together_walk_as_the_unsplit_kernel(values: list[float], blend: bool) -> None:
    chance = np.random.default_rng(7)
    n = 2000
    column, key = Column.real(chance.choice(values, n)), chance.integers(0, 9, n)
    frame = Frame(np.arange(n), key, {"a": column, "x": Column.real(chance.choice([*values, 2.0], n))})
    tables, starts = step_tables(((0.0, 0.0), (2.0, 0.0), (0.0, 0.01), (9.4, 0.01)))
    precisions = Precisions(
        np.array([0.0, 4.7, 4.7, 4.7]), np.full(4, math.inf), np.array([0.0, 0.0, 0.01, 0.01]),
        np.array([False, False, False, True]), tables, starts,
    )  # fmt: skip
    predictors = (
        Predictor("regression", (Term(1.0, ("x",)),), 0.5, common=0.3),
        Predictor("season", persistence=0.5, season=4),
        Predictor("level", persistence=0.5, smoothing=0.1),
        Predictor("trend", slope=0.7),
        Predictor("any", persistence=0.5),
        Predictor("previous"),
    )
    target = TargetColumn(*column_as_floats(column), column.valid.copy(), False, 0.0)
    none = Corrections(np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, np.int64))
    rows = Rows(key, chance.random(n) < 0.9, chance.integers(0, 4, n))
    lost, _, corrections = both_walk(False, rows, target, none, (predictors, frame, blend, precisions))
    assert lost == -1
    assert 0 < corrections.is_entry.sum() < n

"""What the planner decides, window by window, on tables in memory and against a planner that is slow and obvious."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spillway.levers.attributes.cycle.identifier import Cycle, Member
from spillway.levers.attributes.ranking.rank import rank
from spillway.levers.attributes.ranking.reevaluation import Reevaluation, ReevaluationState
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import window_count, window_edges, window_tuples
from spillway.levers.attributes.scheme import AttributeTreatment, Run
from spillway.levers.attributes.window_planner import (
    STRETCH,
    Policy,
    SchemeDecision,
    WindowRanking,
    plan_batch,
    split_at_frames,
)

MEASURES = ("a", "b", "c")


@dataclass
class Memory:
    """A table of tuples as the planner reads it; `asked` tells which columns of which ranges it read."""

    table: pa.Table
    asked: list[tuple[tuple[str, ...], int, int]] = field(default_factory=list)

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        self.asked.append((tuple(columns), from_seq, to_seq))
        seq = self.table["seq"].to_numpy()
        rows = slice(*np.searchsorted(seq, [from_seq, to_seq + 1]))
        return self.table.select(["seq", *columns]).slice(rows.start, rows.stop - rows.start)


def ring_of(*members: str) -> Cycle:
    """A cycle with these members, trained from the first tuple on."""
    made = tuple(Member((name,), 0) for name in members)
    return Cycle(("who",), len(made), len(made), {"who": len(made)}, "robust", 1.0, made)


def shed_the_first(count: int) -> Callable[[Sequence[str]], SchemeDecision]:
    """Sheds so many attributes from the front of a ranking."""

    def decide(ranking: Sequence[str]) -> SchemeDecision:
        gone = tuple(ranking[:count])
        ways = tuple(AttributeTreatment(name, "shed" if name in gone else "keep") for name in MEASURES)
        return SchemeDecision(ways, 1.0, 0.0, f"shed {', '.join(gone)}")

    return decide


def policy(**changes: Any) -> Policy:
    """Three measures, of which the least informative goes; every window is looked at."""
    plain = Policy(
        cycle=ring_of("x", "y"),
        attributes=MEASURES,
        rank_by="stddev",
        smoothing=Smoothing(kind="none"),
        tuples_at_least=4,
        reevaluation=Reevaluation(cap_windows=1),
        recoverability={},
        trained_ranking=(("c", 0.0), ("b", 1.0), ("a", 2.0)),
        widths_bits=dict.fromkeys(MEASURES, 64.0),
        rate_kbps=3.0,
        capacity_kbps=2.0,
        decide=shed_the_first(1),
    )
    return replace(plain, **changes)


def tuples(values: Mapping[str, Sequence[float | None]], seq: Sequence[int] | None = None) -> Memory:
    rows = len(next(iter(values.values())))
    numbers = list(range(rows)) if seq is None else list(seq)
    columns = {name: pa.array(column, pa.float64()) for name, column in values.items()}
    return Memory(pa.table({"seq": numbers, "who": ["xy"[n % 2] for n in range(rows)], **columns}))


def lively(name: str, windows: int, rows: int = 4) -> dict[str, list[float]]:
    """So many windows in which `name` alone tells nothing."""
    moves = {
        measure: [float(i % 2) * (10 + ord(measure)) for i in range(windows * rows)] for measure in MEASURES
    }
    moves[name] = [5.0] * (windows * rows)
    return moves


def joined(*parts: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {name: [value for part in parts for value in part[name]] for name in MEASURES}


def shed_at(runs: Sequence[Run]) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(run.from_seq, run.to_seq, run.attributes_with("shed")) for run in runs]


def test_a_ranking_made_on_a_window_applies_from_the_next_one_on() -> None:
    rows = tuples(joined(lively("a", 1), lively("b", 2), lively("c", 1)))
    runs, _ = plan_batch(rows, 0, 15, 0, None, policy(), None)
    # trained to shed c; the window that shows a is still sent under c
    assert shed_at(runs) == [(0, 3, ("c",)), (4, 7, ("a",)), (8, 15, ("b",))]
    assert [run.evaluations for run in runs] == [1, 1, 2]
    assert [run.windows for run in runs] == [1, 1, 2]


def test_what_the_last_window_led_to_is_in_force_from_the_next_batch_on() -> None:
    rows = tuples(joined(lively("b", 1), lively("b", 1)))
    first, state = plan_batch(rows, 0, 3, 0, None, policy(), None)
    second, _ = plan_batch(rows, 4, 7, 0, None, policy(), state)
    assert shed_at(first) == [(0, 3, ("c",))]
    assert shed_at(second) == [(4, 7, ("b",))]


def every(windows: int) -> Reevaluation:
    """Looks at even intervals and adopts what it sees."""
    return Reevaluation(windows, 1.0)


def test_a_hit_is_a_window_on_which_the_scheme_was_in_force_that_its_own_data_ask_for() -> None:
    rows = tuples(joined(lively("a", 1), lively("a", 1), lively("b", 1), lively("a", 1), lively("b", 1)))
    runs, _ = plan_batch(rows, 0, 19, 0, None, policy(reevaluation=every(4)), None)
    # evaluated: windows 0 and 4, of which neither was sent under what it asks for; nor was the third
    assert shed_at(runs) == [(0, 3, ("c",)), (4, 19, ("a",))]
    assert [(run.windows, run.evaluations, run.hits) for run in runs] == [(1, 1, 0), (4, 1, 2)]


def test_a_rule_that_does_not_change_its_mind_hits_no_more_than_the_stream_agrees_with_it() -> None:
    parts = [lively("abc"[i * 7 % 3], 1) for i in range(30)]
    stubborn = policy(reevaluation=Reevaluation(10**6, 1.0))
    runs, _ = plan_batch(tuples(joined(*parts)), 0, 119, 0, None, stubborn, None)
    # ten windows ask for each; a is shed from the first window on, which is sent under what training said, c
    assert sum(run.hits for run in runs) == 9


def test_to_round_what_a_window_would_shed_is_no_hit_and_is_mended() -> None:
    def decide(ranking: Sequence[str]) -> SchemeDecision:
        ways = tuple(AttributeTreatment(name, "shed" if name == ranking[0] else "round") for name in MEASURES)
        return SchemeDecision(ways, 1.0, 0.0, "all touched")

    rows = tuples(joined(lively("a", 2), lively("b", 2)))
    runs, _ = plan_batch(rows, 0, 15, 0, None, policy(decide=decide), None)
    assert shed_at(runs) == [(0, 3, ("c",)), (4, 11, ("a",)), (12, 15, ("b",))]
    assert [run.hits for run in runs] == [0, 1, 1]


def test_who_watches_is_told_of_every_window_and_changes_nothing() -> None:
    rows = joined(lively("a", 2), lively("b", 2))
    seen: list[WindowRanking] = []
    watched = policy(reevaluation=every(2), watch=seen.append)
    runs, state = plan_batch(tuples(rows), 0, 15, 0, None, watched, None)
    assert (runs, state) == plan_batch(tuples(rows), 0, 15, 0, None, replace(watched, watch=None), None)
    assert [(look.window, look.evaluated, look.in_force, look.fresh) for look in seen] == [
        (0, True, {"c": "shed/0"}, {"a": "shed/0"}),
        (1, False, {"a": "shed/0"}, {"a": "shed/0"}),
        (2, True, {"a": "shed/0"}, {"b": "shed/0"}),
        (3, False, {"b": "shed/0"}, {"b": "shed/0"}),
    ]
    assert sum(run.hits for run in runs) == sum(look.hit for look in seen) == 2


def test_measures_are_read_only_of_the_windows_that_are_evaluated() -> None:
    rows = tuples(lively("a", 30))
    seldom = policy(reevaluation=every(10), measure_hits=False)
    runs, state = plan_batch(rows, 0, 119, 0, 20, seldom, None)
    # of a frame with a window that is due: the identifier, then the measures of that window
    assert [(names, low, high) for names, low, high in rows.asked] == [
        (("who",), 0, 19),
        (MEASURES, 0, 3),
        (("who",), 40, 59),
        (MEASURES, 40, 43),
        (("who",), 80, 99),
        (MEASURES, 80, 83),
    ]
    assert [run.hits for run in runs] == [-1, -1]
    assert sum(run.windows for run in runs) == state["window"] == 30
    assert sum(run.evaluations for run in runs) == 3


def test_identifier_is_not_read_where_no_cycle_tells_where_windows_begin() -> None:
    rows = tuples(lively("a", 30))
    by_keys = Cycle(("who",), 2, 2, {}, "by keys", 1.0, ())
    seldom = policy(cycle=by_keys, reevaluation=every(10), measure_hits=False)
    plan_batch(rows, 0, 119, 0, 20, seldom, None)
    assert [names for names, _, _ in rows.asked] == [(), MEASURES] * 3


@pytest.mark.parametrize(
    "before", [None, {"window": 7, "reevaluation": ReevaluationState(ranking=("a", "b", "c")).to_dict()}]
)
def test_ranking_that_needs_no_data_reads_nothing(before: Mapping[str, Any] | None) -> None:
    rows = tuples(lively("a", 30))
    measured = {"a": 1.0, "b": 3.0, "c": 2.0}
    trained = (("b", -3.0), ("c", -2.0), ("a", -1.0))
    by = policy(
        rank_by="recoverability", recoverability=measured, trained_ranking=trained, measure_hits=False
    )
    runs, state = plan_batch(rows, 0, 119, 0, 20, by, before)
    assert rows.asked == []
    # the ranking of the newest training is in force, whatever an older one said
    assert shed_at(runs) == [(0, 119, ("b",))]
    assert sum(run.evaluations for run in runs) == 0
    assert state["window"] == 30 + (before or {"window": 0})["window"]


def test_a_window_in_which_nothing_arrived_is_looked_at_again_with_the_next() -> None:
    values = joined(lively("a", 1), lively("b", 1))
    rows = tuples(values, [*range(4), *range(12, 16)])  # two windows of seq without a tuple
    runs, state = plan_batch(rows, 0, 15, 0, 4, policy(), None)
    assert shed_at(runs) == [(0, 3, ("c",)), (4, 15, ("a",))]
    assert [(run.windows, run.evaluations, run.hits) for run in runs] == [(1, 1, 0), (1, 1, 0)]
    assert ReevaluationState.from_dict(state["reevaluation"]).ranking[0] == "b"
    assert state["window"] == 4


def test_a_batch_without_a_tuple_keeps_its_scheme_and_its_state() -> None:
    rows = tuples({name: [] for name in MEASURES})
    runs, state = plan_batch(rows, 0, 15, 0, None, policy(), None)
    assert shed_at(runs) == [(0, 15, ("c",))]
    assert (runs[0].windows, runs[0].evaluations, runs[0].hits) == (0, 0, -1)
    assert ReevaluationState.from_dict(state["reevaluation"]).evaluations == 0


def test_a_stream_with_nothing_to_shed_is_one_run_and_reads_nothing() -> None:
    rows = tuples(lively("a", 3))
    nothing = policy(
        attributes=(),
        trained_ranking=(),
        decide=lambda ranking: SchemeDecision((), 3.0, 1.0, "nothing may be shed"),
    )
    runs, state = plan_batch(
        rows, 0, 11, 0, 4, nothing, {"window": 7, "reevaluation": ReevaluationState().to_dict()}
    )
    assert [(run.from_seq, run.to_seq, run.ways, run.reason) for run in runs] == [
        (0, 11, (), "nothing may be shed")
    ]
    assert runs[0].shortfall_kbps == 1.0
    assert state["window"] == 7
    assert rows.asked == []


def test_attributes_that_training_did_not_know_are_ranked_last_and_those_that_are_gone_forgotten() -> None:
    before = {
        "window": 3,
        "reevaluation": ReevaluationState(
            {"z": "shed"},
            ("z", "b"),
            {"z": 0.0, "b": 1.0},
            scores={"z": 0.0, "b": 1.0},
            evaluations=3,
            interval_windows=1,
            evaluated_window=2,
            next_window=99,
        ).to_dict(),
    }
    runs, _ = plan_batch(tuples(lively("a", 2)), 0, 7, 0, None, policy(), before)
    assert [name for name, _, _ in runs[0].ranking] == ["b", "a", "c"]
    assert shed_at(runs) == [(0, 7, ("b",))]


def test_a_run_says_what_the_decision_said_and_what_it_was_made_of() -> None:
    runs, _ = plan_batch(tuples(lively("b", 1)), 0, 3, 0, None, policy(), None)
    assert runs[0].ranking == (("c", 0.0, 64.0), ("b", 1.0, 64.0), ("a", 2.0, 64.0))
    assert (runs[0].rate_kbps, runs[0].planned_kbps, runs[0].capacity_kbps) == (3.0, 1.0, 2.0)
    assert runs[0].reason == "shed c"


def test_stretches_follow_the_frames_and_no_endless_one_is_read_at_once() -> None:
    assert list(split_at_frames(150, 250, 100, 64)) == [(150, 163), (164, 227), (228, 250)]
    assert list(split_at_frames(7, 2 * STRETCH + 20, 7, None)) == [
        (7, STRETCH + 6),
        (STRETCH + 7, 2 * STRETCH + 6),
        (2 * STRETCH + 7, 2 * STRETCH + 20),
    ]


# --- against a planner that is slow and obvious ---


@dataclass(frozen=True)
class Case:
    rows: pa.Table
    first: int
    last: int
    frame_tuples: int | None
    policy: Policy

    def plan(
        self, first: int, last: int, before: Mapping[str, Any] | None
    ) -> tuple[list[Run], dict[str, Any]]:
        return plan_batch(Memory(self.rows), first, last, 0, self.frame_tuples, self.policy, before)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    members = draw(st.integers(1, 5))
    last = draw(st.integers(0, 150))
    kept = np.flatnonzero(~np.isin(np.arange(last + 1), draw(st.lists(st.integers(0, 150), max_size=40))))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    # which measure is quiet changes now and then, so that schemes do
    quiet = np.repeat(rng.integers(0, 3, 40), rng.integers(1, 30, 40))[: last + 1]
    quiet = np.append(quiet, np.zeros(max(0, last + 1 - len(quiet)), int))
    table: dict[str, Any] = {"seq": kept, "who": [f"m{seq % members}" for seq in kept.tolist()]}
    for index, name in enumerate(MEASURES):
        values = np.where(quiet == index, 1.0, rng.normal(0, 10 + index, last + 1))[kept]
        table[name] = pa.array(values, pa.float64(), mask=rng.random(len(kept)) < 0.1)
    interval = draw(st.integers(1, 4))
    made = policy(
        cycle=ring_of(*(f"m{i}" for i in range(members))),
        tuples_at_least=draw(st.integers(1, 12)),
        decide=shed_the_first(draw(st.integers(0, 3))),
        reevaluation=draw(
            st.sampled_from(
                [
                    Reevaluation(interval),
                    Reevaluation(interval, 2.0, 8),
                    Reevaluation(interval, 1.5),
                ]
            )
        ),
        measure_hits=draw(st.booleans()),
    )
    first = draw(st.integers(0, last))
    return Case(pa.table(table), first, last, draw(st.sampled_from([None, 16, 40])), made)


def by_hand(case: Case) -> list[dict[str, Any]]:
    """Window after window: what is shed of it, was it looked at, would its own data alone have it so."""
    one = case.policy
    seq = case.rows["seq"].to_numpy()
    state = ReevaluationState(
        ranking=tuple(name for name, _ in one.trained_ranking), trained=dict(one.trained_ranking)
    )
    in_force = one.decide(state.ranking).treatment
    state = replace(state, treatment=in_force)
    lines, number = [], 0
    for low, high in split_at_frames(case.first, case.last, 0, case.frame_tuples):
        inside = case.rows.filter(pa.array((seq >= low) & (seq <= high)))
        window = window_tuples(one.cycle.length, one.tuples_at_least)
        edges = window_edges(
            inside["seq"].to_numpy(),
            one.cycle.positions({"who": np.array(inside["who"].to_pylist(), dtype=object)}),
            len(one.cycle.members),
            low=low,
            high=high,
            window=window,
            tuples_at_least=one.tuples_at_least,
        )
        for index in range(window_count(low, high, window)):
            start, end = int(edges[index]), int(edges[index + 1])
            part = case.rows.filter(pa.array((seq >= start) & (seq < end)))
            looked = state.next_window <= number
            line = {"start": start, "end": end, "shed": set(in_force), "looked": looked and part.num_rows > 0}
            if part.num_rows:
                columns = {name: part[name].to_numpy(zero_copy_only=False) for name in MEASURES}
                ranked = rank(columns, MEASURES, "stddev", one.smoothing)
                scores = {name: next(r.score for r in ranked if r.attribute == name) for name in MEASURES}
                # what was in force while the window was sent, against what its own data alone ask for
                line["hit"] = set(in_force) == set(one.decide([r.attribute for r in ranked]).scheme)
                if looked:
                    state = one.reevaluation.evaluate(
                        state, number, scores, lambda ranking: one.decide(ranking).treatment
                    )
                    in_force = state.treatment
                lines.append(line)
            number += 1
    return lines


@settings(max_examples=150, deadline=None)
@given(cases())
def test_the_plan_is_what_going_from_window_to_window_by_hand_gives(case: Case) -> None:
    runs, _ = case.plan(case.first, case.last, None)
    lines = by_hand(case)
    assert runs[0].from_seq == case.first
    assert runs[-1].to_seq == case.last
    assert all(after.from_seq == before.to_seq + 1 for before, after in pairwise(runs))
    assert all(
        set(before.attributes_with("shed")) != set(after.attributes_with("shed"))
        for before, after in pairwise(runs)
    )
    for line in lines:
        mine = [run for run in runs if run.from_seq <= line["start"] and line["end"] - 1 <= run.to_seq]
        assert len(mine) == 1, "a window lies under one scheme"
        assert set(mine[0].attributes_with("shed")) == line["shed"]
    assert sum(run.evaluations for run in runs) == sum(line["looked"] for line in lines)
    if case.policy.measure_hits:
        assert sum(run.windows for run in runs) == len(lines)
        assert sum(max(run.hits, 0) for run in runs) == sum(line["hit"] for line in lines)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_batch_planned_again_is_planned_alike_and_the_state_survives_being_stored(case: Case) -> None:
    _, before = case.plan(0, case.first, None)
    stored = json.loads(json.dumps(before))
    assert case.plan(case.first, case.last, before) == case.plan(case.first, case.last, stored)


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(0, 9))
def test_batches_cut_at_frame_edges_are_planned_as_one_batch_would_be(case: Case, at: int) -> None:
    case = replace(case, frame_tuples=case.frame_tuples or 16)
    edges = range(case.frame_tuples or 0, case.last + 1, case.frame_tuples or 1)
    assume(len(edges))
    edge = edges[at % len(edges)]
    whole, after_whole = case.plan(0, case.last, None)
    early, between = case.plan(0, edge - 1, None)
    late, after_late = case.plan(edge, case.last, between)

    def where(runs: Sequence[Run]) -> list[tuple[int, frozenset[str]]]:
        return [
            (seq, frozenset(run.attributes_with("shed")))
            for run in runs
            for seq in range(run.from_seq, run.to_seq + 1)
        ]

    assert where([*early, *late]) == where(whole)
    assert after_late == after_whole
    assert sum(run.windows for run in [*early, *late]) == sum(run.windows for run in whole)
    assert sum(max(run.hits, 0) for run in [*early, *late]) == sum(max(run.hits, 0) for run in whole)


def test_counting_hits_changes_no_decision() -> None:
    rng = np.random.default_rng(4)
    values = {
        name: rng.normal(0, 1 + (np.arange(400) // 57 + i) % 3, 400).tolist()
        for i, name in enumerate(MEASURES)
    }
    runs, state = plan_batch(tuples(values), 0, 399, 0, 128, policy(measure_hits=True), None)
    same, other = plan_batch(tuples(values), 0, 399, 0, 128, policy(measure_hits=False), None)
    assert shed_at(runs) == shed_at(same)
    assert len(runs) > 5
    assert state == other

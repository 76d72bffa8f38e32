"""Plan the scheme of a stream window by window: rank the data of a window, decide, keep the scheme.

Windows are those of `ranking.windows`: whole cycles. They start again at the beginning of every range
(`split_at_frames`). So no window crosses the edge of a frame, and their number is known without reading rows. If
Algorithm 2 (`ranking.reevaluation`) evaluates a window, the planner reads the identifier, which shows where windows
start, and the measures of the rows of that window. A ranking that needs no data (`rank_by: recoverability`, measured in
training) is never re-evaluated. Then nothing is read, and the ranking of the newest training is in force.

A ranking computed on a window applies from the next window on, so no row waits. A window is a hit if the scheme in
force on it equals the scheme that a new ranking of its own data gives.

A batch continues the batch before through the state only. So planning a batch twice gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.cycle.identifier import Cycle
from spillway.levers.attributes.ranking.rank import needs_data, rank
from spillway.levers.attributes.ranking.reevaluation import (
    Chooser,
    Reevaluation,
    ReevaluationState,
    Treatment,
    count_changed_treatments,
    ranking_of,
)
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import window_count, window_edges, window_tuples
from spillway.levers.attributes.scheme import AttributeTreatment, Run, scheme_number
from spillway.levers.frame_slices import frame_edges

STRETCH = 262_144
"""Number of rows read at once; the windows of an endless frame also end at its multiples."""


Read = Callable[[Sequence[str], int, int], pa.Table]
"""Function that reads the tuples of a batch: (columns, first seq, last seq) -> `seq` and the columns, in order."""


@dataclass(frozen=True)
class SchemeDecision:
    """The decision for one ranking: the treatment of every attribute, and the resulting rate on the channel."""

    ways: tuple[AttributeTreatment, ...]
    planned_kbps: float
    shortfall_kbps: float
    reason: str
    loss: float = 0.0
    """The planned sum of weight x loss."""
    finer: tuple[AttributeTreatment, ...] = ()
    """The treatments of the first tuples if one attribute has a better one there than in `ways`; else empty."""
    finer_share: float = 0.0
    """The share of the tuples that have the treatments `finer`."""

    @property
    def scheme(self) -> tuple[str, ...]:
        """Return the attributes that are not kept."""
        return tuple(self.treatment)

    @property
    def treatment(self) -> Treatment:
        """Return the treatment and precision of each attribute that is not kept; hits compare the treatments only."""
        return treatment_of(self.ways)


@dataclass(frozen=True)
class WindowRanking:
    """The ranking of one window: the treatments in force on it, and those that its own data give."""

    window: int
    next_seq: int
    """The first `seq` after it."""
    scores: Mapping[str, float]
    in_force: Treatment
    fresh: Treatment
    evaluated: bool

    @property
    def hit(self) -> bool:
        """Return whether the scheme in force equals the scheme that this window alone gives."""
        return not count_changed_treatments(self.in_force, self.fresh)


@dataclass(frozen=True)
class Policy:
    """The inputs of the planner from contract and training: attributes, ranking rules, and the decision function."""

    cycle: Cycle
    attributes: tuple[str, ...]
    rank_by: str
    smoothing: Smoothing
    tuples_at_least: int
    reevaluation: Reevaluation
    recoverability: Mapping[str, float]
    trained_ranking: tuple[tuple[str, float], ...]
    widths_bits: Mapping[str, float]
    rate_kbps: float
    capacity_kbps: float
    decide: Callable[[Sequence[str]], SchemeDecision]
    measure_hits: bool = True
    watch: Callable[[WindowRanking], None] | None = None
    """Callback for every window that is ranked; it does not change the plan."""

    def is_due(self, state: ReevaluationState, window: int) -> bool:
        """Return whether to rank a window; False if its data cannot change the ranking."""
        return needs_data(self.rank_by) and self.reevaluation.due(state, window)


def treatment_of(ways: Sequence[AttributeTreatment]) -> Treatment:
    """Return the treatment and precision of every attribute that is not kept.

    >>> temp = AttributeTreatment("temp", "shed", precision=2, sent=True)
    >>> treatment_of([temp, AttributeTreatment("wind"), AttributeTreatment("rain", "round")])
    {'temp': 'shed+/2', 'rain': 'round/0'}
    """
    return {
        way.attribute: f"{way.way}{'+' if way.sent else ''}/{way.precision}"
        for way in ways
        if way.way != "keep"
    }


def split_at_frames(
    first_seq: int, last_seq: int, origin: int, frame_tuples: int | None
) -> Iterator[tuple[int, int]]:
    """Split the range of a batch at frame edges and at multiples of `STRETCH` from the start of the frame.

    >>> list(split_at_frames(100, STRETCH + 150, 90, None)) == [(100, STRETCH + 89), (STRETCH + 90, STRETCH + 150)]
    True
    """
    for frame, low, high in frame_edges(first_seq, last_seq, origin, frame_tuples):
        for _, start, end in frame_edges(low, high, frame, STRETCH):
            yield start, end


class _RangeWindows:
    """The windows of one range, and the rows of those that are ranked."""

    def __init__(self, policy: Policy, rows: Read, low: int, high: int, window: int) -> None:
        cycle = policy.cycle
        # without a cycle no tuple opens a window: `seq` shows which windows have tuples
        keys = cycle.attributes if cycle.is_ordered else ()
        # if every window is evaluated, one read is enough
        measures = policy.attributes if policy.measure_hits else ()
        self._policy, self._rows = policy, rows
        table = rows(list(dict.fromkeys([*keys, *measures])), low, high)
        self._whole = table if policy.measure_hits else None
        seq = np.asarray(table["seq"])
        self._edges = window_edges(
            seq,
            cycle.positions({"seq": seq, **{name: key_values(table[name]) for name in keys}}),
            cycle.ring,
            low=low,
            high=high,
            window=window,
            tuples_at_least=policy.tuples_at_least,
        )
        self._at = np.searchsorted(seq, self._edges)

    def end(self, index: int) -> int:
        """Return the first `seq` after a window."""
        return int(self._edges[index + 1])

    def holds_any(self, index: int) -> bool:
        """Return whether a tuple arrived in a window."""
        return bool(self._at[index] < self._at[index + 1])

    def scores(self, index: int) -> dict[str, float]:
        """Return the ranking scores of a window by attribute."""
        policy, part = self._policy, self._rows_of(index)
        window = {name: ranking_values(part[name]) for name in policy.attributes}
        ranked = rank(window, policy.attributes, policy.rank_by, policy.smoothing, policy.recoverability)
        found = {one.attribute: one.score for one in ranked}
        return {name: found[name] for name in policy.attributes}

    def _rows_of(self, index: int) -> pa.Table:
        start, stop = int(self._at[index]), int(self._at[index + 1])
        if self._whole is not None:
            return self._whole.slice(start, stop - start)
        return self._rows(self._policy.attributes, int(self._edges[index]), self.end(index) - 1)


def key_values(values: pa.ChunkedArray) -> np.ndarray:
    """Return a key column in the form that `cycle` needs.

    Integers without nulls stay as they are. Everything else becomes objects, one object per distinct value.
    """
    if pa.types.is_integer(values.type) and not values.null_count:
        return values.to_numpy()
    coded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.array([*coded.dictionary.to_pylist(), None], dtype=object)[np.asarray(coded.indices)]


def ranking_values(values: pa.ChunkedArray) -> np.ndarray:
    """Return a column in the form that `ranking` needs: floats with NaN for null, or objects for text."""
    column = Column.from_arrow(values)
    if column.kind == "text":
        return np.array(column.to_list(), dtype=object)
    numbers = column.values.astype(np.float64)
    numbers[~column.valid] = np.nan
    return numbers


def plan_batch(
    rows: Read,
    first_seq: int,
    last_seq: int,
    origin: int,
    frame_tuples: int | None,
    policy: Policy,
    before: Mapping[str, Any] | None,
) -> tuple[list[Run], dict[str, Any]]:
    """Return the runs of one batch, and the state from which the next batch continues.

    `before` is the state after the previous batch. The `windows` of a run are the windows with tuples, in ranges that
    were read. In other ranges they are the planned windows.
    """
    state, window = _starting_state(policy, before)
    if not policy.attributes:
        # nothing may be shed: one scheme, nothing to rank
        whole = _run(policy, first_seq, policy.decide(()), state)
        return [replace(whole, to_seq=last_seq)], {"window": window, "reevaluation": state.to_dict()}
    decision = policy.decide(state.ranking)
    choose = _chooser(policy)
    runs = [_run(policy, first_seq, decision, state)]
    # the rate and widths of this batch give a new decision, so the state must hold the treatments now in force
    state = replace(state, treatment=decision.treatment)
    for low, high in split_at_frames(first_seq, last_seq, origin, frame_tuples):
        stretch: _RangeWindows | None = None
        length = window_tuples(policy.cycle.length_at(low), policy.tuples_at_least)
        for index in range(window_count(low, high, length)):
            # a window without tuples does not change the state: if it was due, the next window is due
            looks = policy.is_due(state, window) or policy.measure_hits
            if looks and stretch is None:
                stretch = _RangeWindows(policy, rows, low, high, length)
            if stretch is None or stretch.holds_any(index):
                runs[-1] = replace(runs[-1], windows=runs[-1].windows + 1)
                if stretch is not None and looks:
                    scores, after = stretch.scores(index), stretch.end(index)
                    state = _evaluate_window(policy, state, window, scores, choose, runs, after)
            window += 1
    closed = [replace(run, to_seq=after.from_seq - 1) for run, after in pairwise(runs)]
    closed.append(replace(runs[-1], to_seq=last_seq))
    # the decision of the last window is in force from the next batch on
    kept = [part for run in closed if run.from_seq <= last_seq for part in _split_run(run, policy)]
    return kept, {"window": window, "reevaluation": state.to_dict()}


def _split_run(run: Run, policy: Policy) -> Iterator[Run]:
    """Split a run into the first tuples, which have the finer treatments, and the rest; one run if all are the same.

    Windows, evaluations and hits are counted in the first of the two.
    """
    decision = policy.decide([name for name, _, _ in run.ranking])
    rest = run.from_seq + round(decision.finer_share * (run.to_seq - run.from_seq + 1))
    finer = replace(run, ways=decision.finer) if decision.finer else run
    if rest > run.to_seq or rest == run.from_seq:
        yield finer if rest > run.to_seq else run
        return
    yield replace(finer, to_seq=rest - 1)
    yield replace(run, from_seq=rest, windows=0, evaluations=0, hits=min(run.hits, 0))


def _evaluate_window(
    policy: Policy,
    state: ReevaluationState,
    window: int,
    scores: Mapping[str, float],
    choose: Chooser,
    runs: list[Run],
    next_seq: int,
) -> ReevaluationState:
    """Count one ranked window in its run; if it was due, evaluate it, and start a new run if the scheme changes."""
    due, run = policy.is_due(state, window), runs[-1]
    look = WindowRanking(window, next_seq, scores, treatment_of(run.ways), choose(ranking_of(scores)), due)
    if policy.watch is not None:
        policy.watch(look)
    runs[-1] = run = replace(run, evaluations=run.evaluations + due)
    if policy.measure_hits:
        runs[-1] = replace(run, hits=max(run.hits, 0) + look.hit)
    if not due:
        return state
    after = policy.reevaluation.evaluate(state, window, scores, choose)
    decision = policy.decide(after.ranking)
    if scheme_number(decision.ways) != run.scheme:
        runs.append(_run(policy, next_seq, decision, after))
    return after


def _starting_state(policy: Policy, before: Mapping[str, Any] | None) -> tuple[ReevaluationState, int]:
    trained = dict(policy.trained_ranking)
    if before and not needs_data(policy.rank_by):
        state = ReevaluationState.from_dict(before["reevaluation"])
        return replace(state, ranking=tuple(trained), trained=trained), int(before["window"])
    if before:
        state = ReevaluationState.from_dict(before["reevaluation"])
        known = [name for name in state.ranking if name in policy.attributes]
        new = [name for name in policy.attributes if name not in known]
        return replace(state, ranking=(*known, *new), trained=trained), int(before["window"])
    return ReevaluationState(ranking=tuple(trained), trained=trained), 0


def _chooser(policy: Policy) -> Chooser:
    known: dict[tuple[str, ...], Treatment] = {}

    def choose(ranking: tuple[str, ...]) -> Treatment:
        if ranking not in known:
            known[ranking] = policy.decide(ranking).treatment
        return known[ranking]

    return choose


def _run(policy: Policy, from_seq: int, decision: SchemeDecision, state: ReevaluationState) -> Run:
    scores = {**state.trained, **state.scores}
    ranking = tuple(
        (name, float(scores.get(name, 0.0)), float(policy.widths_bits[name])) for name in state.ranking
    )
    return Run(
        from_seq,
        from_seq,
        decision.ways,
        ranking,
        rate_kbps=policy.rate_kbps,
        planned_kbps=decision.planned_kbps,
        capacity_kbps=policy.capacity_kbps,
        shortfall_kbps=decision.shortfall_kbps,
        reason=decision.reason,
        loss=decision.loss,
    )

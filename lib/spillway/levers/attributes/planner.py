"""The scheme of a stream, window by window: rank what an evaluated window holds, decide, hold on to it.

Windows are those of `ranking.windows`: whole cycles, cut afresh in every stretch, so that none crosses a frame's edge
and their number is known without reading. If Algorithm 2 (`ranking.reevaluation`) evaluates a window of a stretch, the
planner reads the identifier, which shows where windows start, and the measures of the rows of that window. A ranking
that needs no data (`rank_by: recoverability`, measured in training) is never evaluated again. Then nothing is read, and
the ranking of the newest training is in force.

A ranking made on a window applies from the next one on: nothing waits. A window is a hit when the scheme in force on
it is the one that its own data, ranked afresh, would give.

Batches go on from one another through the state alone, so a batch planned again is planned alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.cycle.find import Cycle
from spillway.levers.attributes.ranking.rank import needs_data, rank
from spillway.levers.attributes.ranking.reevaluation import (
    LATEST,
    Chooser,
    Reevaluation,
    State,
    Treatment,
    ranking_of,
    treated_otherwise,
)
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import window_count, window_edges, window_tuples
from spillway.levers.attributes.scheme import Run, Way, scheme_number
from spillway.levers.pieces import frame_edges

STRETCH = 262_144
"""Rows read at a time; an endless frame's windows are cut at its multiples too."""


Read = Callable[[Sequence[str], int, int], pa.Table]
"""Where the planner reads a batch's tuples: columns, from, to; `seq` and the columns of that range, in order."""


@dataclass(frozen=True)
class Consequence:
    """What one ranking leads to: how every attribute travels, and what that puts on the channel."""

    ways: tuple[Way, ...]
    planned_kbps: float
    shortfall_kbps: float
    reason: str
    loss: float = 0.0
    """The sum of worth x loss that was planned."""
    finer: tuple[Way, ...] = ()
    """The ways of the first tuples, where one attribute has a better one there than in `ways`; none: all are alike."""
    finer_share: float = 0.0
    """How many of the tuples these are."""

    @property
    def scheme(self) -> tuple[str, ...]:
        """The attributes that do not travel as they are."""
        return tuple(self.treatment)

    @property
    def treatment(self) -> Treatment:
        """The way of each of them, precision and stage aside: what hits compare."""
        return treatment_of(self.ways)


@dataclass(frozen=True)
class Look:
    """One window as it was ranked: what was in force on it, and what its own data ask for."""

    window: int
    next_seq: int
    """The first `seq` after it."""
    scores: Mapping[str, float]
    in_force: Treatment
    fresh: Treatment
    evaluated: bool

    @property
    def hit(self) -> bool:
        """Whether the scheme in force is the one that this window alone would give."""
        return not treated_otherwise(self.in_force, self.fresh)


@dataclass(frozen=True)
class Policy:
    """What the contract and training fixed: what may be ranked, how, and what a ranking leads to."""

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
    decide: Callable[[Sequence[str]], Consequence]
    measure_hits: bool = True
    watch: Callable[[Look], None] | None = None
    """Told of every window that is ranked; changes nothing."""

    def is_due(self, state: State, window: int) -> bool:
        """Return whether to rank a window; False if its data cannot change the ranking."""
        return needs_data(self.rank_by) and self.reevaluation.due(state, window)


def treatment_of(ways: Sequence[Way]) -> Treatment:
    """What is done to every attribute that does not travel as it is, and how precisely.

    >>> treatment_of([Way("temp", "shed", precision=2, sent=True), Way("wind"), Way("rain", "round")])
    {'temp': 'shed+/2', 'rain': 'round/0'}
    """
    return {
        way.attribute: f"{way.way}{'+' if way.sent else ''}/{way.precision}"
        for way in ways
        if way.way != "keep"
    }


def stretches(
    first_seq: int, last_seq: int, origin: int, frame_tuples: int | None
) -> Iterator[tuple[int, int]]:
    """The batch's range cut at frame edges and at multiples of `STRETCH` from the frame's start.

    >>> list(stretches(100, STRETCH + 150, 90, None)) == [(100, STRETCH + 89), (STRETCH + 90, STRETCH + 150)]
    True
    """
    for frame, low, high in frame_edges(first_seq, last_seq, origin, frame_tuples):
        for _, start, end in frame_edges(low, high, frame, STRETCH):
            yield start, end


class _Stretch:
    """The windows of one stretch, and the rows of those that are ranked."""

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
        """The first `seq` after a window."""
        return int(self._edges[index + 1])

    def holds_any(self, index: int) -> bool:
        """Whether a tuple arrived in a window."""
        return bool(self._at[index] < self._at[index + 1])

    def scores(self, index: int) -> dict[str, float]:
        """The ranking's scores of a window."""
        policy, part = self._policy, self._rows_of(index)
        window = {name: rankable(part[name]) for name in policy.attributes}
        ranked = rank(window, policy.attributes, policy.rank_by, policy.smoothing, policy.recoverability)
        found = {one.attribute: one.score for one in ranked}
        return {name: found[name] for name in policy.attributes}

    def _rows_of(self, index: int) -> pa.Table:
        start, stop = int(self._at[index]), int(self._at[index + 1])
        if self._whole is not None:
            return self._whole.slice(start, stop - start)
        return self._rows(self._policy.attributes, int(self._edges[index]), self.end(index) - 1)


def key_values(values: pa.ChunkedArray) -> np.ndarray:
    """A key column as `cycle` takes it: numbers as they are, all else as objects, each different one made once."""
    if pa.types.is_integer(values.type) and not values.null_count:
        return values.to_numpy()
    coded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.array([*coded.dictionary.to_pylist(), None], dtype=object)[np.asarray(coded.indices)]


def rankable(values: pa.ChunkedArray) -> np.ndarray:
    """A column as `ranking` takes it: floats with NaN for null, or objects for text."""
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
    """The runs of one batch, and the state the next batch goes on from (`before` of which is this one's start).

    A run's `windows` are those that hold tuples, in stretches that were read; in others those that are planned.
    """
    state, window = _opening(policy, before)
    if not policy.attributes:
        # nothing may be shed: one scheme, nothing to rank
        whole = _run(policy, first_seq, policy.decide(()), state)
        return [replace(whole, to_seq=last_seq)], {"window": window, "reevaluation": state.to_dict()}
    decision = policy.decide(state.ranking)
    choose = _chooser(policy)
    runs = [_run(policy, first_seq, decision, state)]
    # the decision is made anew for this batch's rate and widths, so that the state must hold what is in force
    state = replace(state, treatment=decision.treatment)
    for low, high in stretches(first_seq, last_seq, origin, frame_tuples):
        stretch: _Stretch | None = None
        length = window_tuples(policy.cycle.length_at(low), policy.tuples_at_least)
        for index in range(window_count(low, high, length)):
            # a window in which nothing arrived leaves the state as it is: one that was due, the next is
            looks = policy.is_due(state, window) or policy.measure_hits
            if looks and stretch is None:
                stretch = _Stretch(policy, rows, low, high, length)
            if stretch is None or stretch.holds_any(index):
                runs[-1] = replace(runs[-1], windows=runs[-1].windows + 1)
                if stretch is not None and looks:
                    scores, after = stretch.scores(index), stretch.end(index)
                    state = _looked_at(policy, state, window, scores, choose, runs, after)
            window += 1
    closed = [replace(run, to_seq=after.from_seq - 1) for run, after in pairwise(runs)]
    closed.append(replace(runs[-1], to_seq=last_seq))
    # what the last window led to is in force from the next batch on
    kept = [part for run in closed if run.from_seq <= last_seq for part in _parted(run, policy)]
    return kept, {"window": window, "reevaluation": state.to_dict()}


def _parted(run: Run, policy: Policy) -> Iterator[Run]:
    """A run as its first tuples, which have the finer ways, and the rest; as it is where all have the same.

    Windows and what was found on them are told of the first part.
    """
    decision = policy.decide([name for name, _, _ in run.ranking])
    rest = run.from_seq + round(decision.finer_share * (run.to_seq - run.from_seq + 1))
    finer = replace(run, ways=decision.finer) if decision.finer else run
    if rest > run.to_seq or rest == run.from_seq:
        yield finer if rest > run.to_seq else run
        return
    yield replace(finer, to_seq=rest - 1)
    yield replace(run, from_seq=rest, windows=0, evaluations=0, hits=min(run.hits, 0))


def _looked_at(
    policy: Policy,
    state: State,
    window: int,
    scores: Mapping[str, float],
    choose: Chooser,
    runs: list[Run],
    next_seq: int,
) -> State:
    """One window ranked: counted in its run, and where it was due, what follows from it in force from the next."""
    due, run = policy.is_due(state, window), runs[-1]
    look = Look(window, next_seq, scores, treatment_of(run.ways), choose(ranking_of(scores)), due)
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


def _opening(policy: Policy, before: Mapping[str, Any] | None) -> tuple[State, int]:
    trained = dict(policy.trained_ranking)
    if before and not needs_data(policy.rank_by):
        state = State.from_dict(before["reevaluation"])
        return replace(state, ranking=tuple(trained), trained=trained), int(before["window"])
    if before:
        state = State.from_dict(before["reevaluation"])
        known = [name for name in state.ranking if name in policy.attributes]
        new = [name for name in policy.attributes if name not in known]
        return replace(state, ranking=(*known, *new), trained=trained), int(before["window"])
    return State(ranking=tuple(trained), trained=trained), 0


def _chooser(policy: Policy) -> Chooser:
    known: dict[tuple[str, ...], Treatment] = {}

    def choose(ranking: tuple[str, ...]) -> Treatment:
        if ranking not in known:
            known[ranking] = policy.decide(ranking).treatment
        return known[ranking]

    return choose


def _run(policy: Policy, from_seq: int, decision: Consequence, state: State) -> Run:
    scores = {**state.trained, **(state.latest if state.follows == LATEST else state.scores)}
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

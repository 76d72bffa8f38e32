"""The scheme of a stream, window by window: rank what an evaluated window holds, decide, hold on to it.

Windows are one or more whole cycles, at least `tuples_at_least` tuples, and never cross a frame's edge: nominal
edges stand every W `seq` numbers from the frame's start, and each real edge is the first wrap of the cycle at or
after its nominal one. So the number of windows is known without reading, an edge is found by looking near it, and a
gap shifts no later window. Only windows that Algorithm 2 (`scheme`) calls for are read and ranked. A ranking made on
a window applies from the next one on: nothing waits.

Batches go on from one another through `State` alone, so a batch planned again is planned alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.cycle.find import Cycle
from spillway.levers.attributes.frames import frame_start
from spillway.levers.attributes.ranking.rank import rank
from spillway.levers.attributes.ranking.reevaluation import Reevaluation, State
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import window_tuples, wraps
from spillway.levers.attributes.scheme import Run, Way

STRETCH = 262_144
"""Rows read at a time; an endless frame's windows are cut at its multiples too."""


class Rows(Protocol):
    """Where the planner reads a batch's tuples: columns of a `seq` range, in order."""

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table: ...


@dataclass(frozen=True)
class Decision:
    """What one ranking leads to: how every attribute travels, and what that puts on the channel."""

    ways: tuple[Way, ...]
    planned_kbps: float
    shortfall_kbps: float
    reason: str

    @property
    def scheme(self) -> tuple[str, ...]:
        """The attributes that do not travel as they are."""
        return tuple(way.attribute for way in self.ways if way.way != "keep")


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
    decide: Callable[[Sequence[str]], Decision]
    measure_hits: bool = True


@dataclass(frozen=True)
class Window:
    """A window of a frame: nominal edges in `seq`; the real ones are the first wraps at or after them."""

    index: int
    from_seq: int
    to_seq: int


def stretches(
    first_seq: int, last_seq: int, origin: int, frame_tuples: int | None
) -> Iterator[tuple[int, int]]:
    """The batch's range cut at frame edges and at multiples of `STRETCH` from the frame's start."""
    seq = first_seq
    while seq <= last_seq:
        start = frame_start(seq, origin, frame_tuples)
        end = last_seq if frame_tuples is None else min(last_seq, start + frame_tuples - 1)
        end = min(end, start + ((seq - start) // STRETCH + 1) * STRETCH - 1)
        yield seq, end
        seq = end + 1


def windows_of(from_seq: int, to_seq: int, length: int) -> list[tuple[int, int]]:
    """Nominal windows of a stretch; a rest shorter than half a window belongs to the last one.

    >>> windows_of(0, 149, 66)
    [(0, 65), (66, 149)]
    """
    count = max(1, (to_seq - from_seq + 1 + length // 2) // length)
    starts = [from_seq + i * length for i in range(count)]
    return [(a, b - 1) for a, b in zip(starts, [*starts[1:], to_seq + 1], strict=True)]


class _Stretch:
    """The rows of one stretch, read when first asked for, and its real window edges."""

    def __init__(self, policy: Policy, rows: Rows, from_seq: int, to_seq: int) -> None:
        columns = [*policy.cycle.attributes, *policy.attributes]
        table = rows(list(dict.fromkeys(columns)), from_seq, to_seq)
        self.seq = np.asarray(table["seq"])
        self.policy = policy
        self._table = table
        keys = {name: key_values(table[name]) for name in policy.cycle.attributes}
        self.wraps = self.seq[wraps(policy.cycle.positions(keys), len(policy.cycle.members))]

    def edge(self, nominal: int) -> int:
        """`seq` of the first wrap at or after `nominal`; `nominal` itself where no cycle turns any more."""
        at = int(np.searchsorted(self.wraps, nominal))
        return int(self.wraps[at]) if at < len(self.wraps) else nominal

    def holds_any(self, low: int, high: int) -> bool:
        """Whether a tuple arrived with `low <= seq < high`."""
        return bool(np.searchsorted(self.seq, low) < np.searchsorted(self.seq, high))

    def scores(self, low: int, high: int) -> dict[str, float]:
        """The ranking's scores of the rows `low..high`."""
        rows = slice(int(np.searchsorted(self.seq, low)), int(np.searchsorted(self.seq, high, side="right")))
        part = self._table.slice(rows.start, rows.stop - rows.start)
        window = {name: rankable(part[name]) for name in self.policy.attributes}
        ranked = rank(
            window,
            self.policy.attributes,
            self.policy.rank_by,
            self.policy.smoothing,
            self.policy.recoverability,
        )
        found = {one.attribute: one.score for one in ranked}
        return {name: found[name] for name in self.policy.attributes}


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
    rows: Rows,
    first_seq: int,
    last_seq: int,
    origin: int,
    frame_tuples: int | None,
    policy: Policy,
    before: Mapping[str, Any] | None,
) -> tuple[list[Run], dict[str, Any]]:
    """The runs of one batch, and the state the next batch goes on from (`before` of which is this one's start)."""
    state, window = _opening(policy, before)
    if not policy.attributes:
        # nothing may be shed: one scheme, nothing to rank
        whole = _run(policy, first_seq, policy.decide(()), state)
        return [replace(whole, to_seq=last_seq)], {"window": window, "reevaluation": state.to_dict()}
    decision = policy.decide(state.ranking)
    choose = _chooser(policy)
    runs = [_run(policy, first_seq, decision, state)]
    windows = [0]  # of each run
    # the decision is made anew for this batch's rate and widths, so that the state must hold what is in force
    state = replace(state, scheme=decision.scheme)
    for low, high in stretches(first_seq, last_seq, origin, frame_tuples):
        stretch: _Stretch | None = None
        length = window_tuples(policy.cycle.length_at(low), policy.tuples_at_least)
        for start, end in windows_of(low, high, length):
            due = policy.reevaluation.due(state, window)
            if due or policy.measure_hits:
                stretch = stretch or _Stretch(policy, rows, low, high)
                real = (
                    stretch.edge(start) if start > low else low,
                    stretch.edge(end + 1) if end < high else end + 1,
                )
                if stretch.holds_any(*real):
                    scores = stretch.scores(real[0], real[1] - 1)
                    hit = set(policy.reevaluation.fresh(state, scores, choose).scheme)
                    if due:
                        state = policy.reevaluation.evaluate(state, window, scores, choose)
                        runs[-1] = replace(runs[-1], evaluations=runs[-1].evaluations + 1)
                        if set(state.scheme) != set(runs[-1].of("shed") + runs[-1].of("round")):
                            runs.append(
                                _run(policy, min(real[1], last_seq + 1), policy.decide(state.ranking), state)
                            )
                            windows.append(0)
                    if policy.measure_hits:
                        where = -2 if len(runs) > 1 and runs[-1].from_seq >= real[1] else -1
                        hits = max(runs[where].hits, 0) + int(hit == set(state.scheme))
                        runs[where] = replace(runs[where], hits=hits)
                elif due:
                    # nothing arrived in this window: look again at the next
                    state = replace(state, next_window=window + 1)
            windows[-2 if len(runs) > 1 and runs[-1].from_seq > start else -1] += 1
            window += 1
    runs = [
        replace(run, windows=count)
        for run, count in zip(runs, windows, strict=True)
        if run.from_seq <= last_seq
    ]
    closed = [
        replace(run, to_seq=(runs[i + 1].from_seq - 1 if i + 1 < len(runs) else last_seq))
        for i, run in enumerate(runs)
    ]
    return closed, {"window": window, "reevaluation": state.to_dict()}


def _opening(policy: Policy, before: Mapping[str, Any] | None) -> tuple[State, int]:
    if before:
        state = State.from_dict(before["reevaluation"])
        known = [name for name in state.ranking if name in policy.attributes]
        new = [name for name in policy.attributes if name not in known]
        return replace(state, ranking=(*known, *new)), int(before["window"])
    return State(
        ranking=tuple(name for name, _ in policy.trained_ranking), scores=dict(policy.trained_ranking)
    ), 0


def _chooser(policy: Policy) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def choose(ranking: tuple[str, ...]) -> tuple[str, ...]:
        if ranking not in known:
            known[ranking] = policy.decide(ranking).scheme
        return known[ranking]

    return choose


def _run(policy: Policy, from_seq: int, decision: Decision, state: State) -> Run:
    scores = dict(state.scores)
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
    )

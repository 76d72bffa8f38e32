"""Run joins by the product's own steps, window after window, and rivals on the same rows.

- *Ours*: `spillway.levers.joins.join_window.JoinWindow`, which is what the pipeline runs.
- *Everything*: the same without a budget.
- *Dropping rows*: each row of either stream is kept with a probability that is chosen for every window, with exact
  knowledge of the window's comparisons, so that they are as many as ours (or so that the time is the same). The kept
  rows are joined in full. This is the best case of the rival: it never has to estimate a rate.
- *Clairvoyant*: knows the true match curve, uses no sample, and takes the best basic windows first.
- *Hindsight*: also knows the pairs of every basic window of the present window, including random variation. It is the
  upper limit for any choice of basic windows, or of whole rows, with these steps.

Both take a proportional share of the last basic window, while the join takes its newest rows. So the join may find
slightly more if these match more often. With basic windows of a quarter of a second, both find about 2 % more in the
paper's joins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from evidence.joins.workload import MICROS, Numbers
from spillway.contracts import read_workload
from spillway.levers.joins.directions import SideRows, costs_in_order
from spillway.levers.joins.exploration import Memory
from spillway.levers.joins.join_window import JoinWindow
from spillway.levers.joins.operands import ItemSets, Operand
from spillway.levers.joins.settings import JoinSettings

ADAPTS = 5.0
"""Seconds of T_r = T_c: a window of the pipeline."""
REPEATS, ENOUGH_SECONDS = 7, 1.0
"""The maximum number of timed runs, and the total seconds after which no more are timed."""
_NO_WINDOW: Any = None


def join_settings(**stated: Any) -> JoinSettings:
    """Return settings as a contract states them, checked in the same way."""
    contract = read_workload(
        {
            "name": "evidence", "inputs": ["left", "right"], "window": {"seconds": ADAPTS},
            "levers": [{"lever": "joins", **stated}],
        }
    )  # fmt: skip
    found: JoinSettings = contract.lever_settings("joins")
    return found


def overlap(
    window: float, index: bool, threshold: float = 3, basic: float = 1.0, **more: Any
) -> JoinSettings:
    """Return the settings of the paper's overlap join."""
    side = {"attribute": "items", "lasts_seconds": window, **more.pop("side", {})}
    return join_settings(
        left=side, right=side, predicate="overlap", threshold=threshold, sets={}, index=index,
        basic_window_seconds=basic, **more,
    )  # fmt: skip


def equality(window: float, index: bool, basic: float = 1.0, **more: Any) -> JoinSettings:
    """Return the settings of the paper's join by equal values."""
    side = {"attribute": "items", "lasts_seconds": window}
    return join_settings(left=side, right=side, index=index, basic_window_seconds=basic, **more)


@dataclass
class Outcome:
    """The result of a join in one window."""

    begin: float
    row: dict[str, Any]
    seconds: float
    """Time of one core, including all decisions and learning."""
    deciding_seconds: float
    pairs: frozenset[tuple[int, int]] | None = None


@dataclass
class JoinRun:
    """The results of consecutive windows."""

    outcomes: list[Outcome] = field(default_factory=list)

    def sum(self, name: str) -> float:
        return float(sum(one.row[name] for one in self.outcomes))

    def of(self, name: str) -> Numbers:
        return np.array([one.row[name] for one in self.outcomes])

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.outcomes)

    @property
    def pairs(self) -> set[tuple[int, int]]:
        return set().union(*(one.pairs or () for one in self.outcomes))


def run_join(
    left: Operand,
    right: Operand,
    settings: JoinSettings,
    begin: float,
    end: float,
    keep_pairs: bool = False,
    memory: Memory | None = None,
    adapts: float = ADAPTS,
) -> JoinRun:
    """Compute every window from `begin` to `end`, each with the state that the window before it left."""
    known, found = memory or Memory(), JoinRun()
    back = max(settings.left.lasts_seconds, settings.right.lasts_seconds)
    for start in np.arange(begin, end - 1e-9, adapts):
        began = time.thread_time()
        given = [operand_window(one, start - back, start, start + adapts) for one in (left, right)]
        turn = JoinWindow(settings, known, given[0], given[1], adapts)
        decision = turn.decision
        counts: dict[str, int] = {}
        decided = time.thread_time()
        tables = [
            table
            for part in decision.task_inputs(_NO_WINDOW, {})
            for table in decision.results(_NO_WINDOW, part, counts)
        ]
        compared = time.thread_time()
        row = turn.result_columns(counts)
        known = Memory.from_row(row)
        ended = time.thread_time()
        pairs = frozenset(_pairs(tables)) if keep_pairs else None
        deciding = decided - began + ended - compared
        facing = turn.allocation.directions
        costs = {
            "costs": np.concatenate([one.costs for one in facing]),
            "looked_up": np.concatenate([one.looked_up for one in facing]),
            "held": np.concatenate([one.held for one in facing]),
            "whole_steps": sum(one.whole_steps for one in facing),
        }
        found.outcomes.append(Outcome(float(start), row | costs, ended - began, deciding, pairs))
    return found


def fastest_run(run: Callable[[], JoinRun]) -> JoinRun:
    """Return the fastest of a few runs that differ only in time; a single run of milliseconds varies too much."""
    found = [run()]
    while len(found) < REPEATS and sum(one.seconds for one in found) < ENOUGH_SECONDS:
        found.append(run())
    return min(found, key=lambda one: one.seconds)


def operand_window(rows: Operand, back: float, begin: float, end: float) -> SideRows:
    """Return one side of a window: rows from `back` on are present, those from `begin` on probe."""
    first, low, high = (
        int(one) for one in np.searchsorted(rows.at, [round(t * MICROS) for t in (back, begin, end)])
    )
    return SideRows(rows.cut(first, high), low - first, high - first)


def _pairs(tables: Iterable[Any]) -> Iterator[tuple[int, int]]:
    for table in tables:
        yield from zip(table["left_seq"].to_pylist(), table["right_seq"].to_pylist(), strict=True)


def without_budget(settings: JoinSettings) -> JoinSettings:
    """Return the same join without a budget."""
    return replace(settings, budget=None)


def join_with_random_drops(
    left: Operand, right: Operand, settings: JoinSettings, like: JoinRun, seed: int, of: str = "compared"
) -> tuple[JoinRun, tuple[Operand, Operand]]:
    """Drop rows at random so that each window makes as many comparisons (or steps) as `like`."""
    chance = np.random.default_rng([seed, 77])
    kept = [np.ones(one.rows, bool) for one in (left, right)]
    draws = [chance.random(one.rows) for one in (left, right)]
    for outcome in like.outcomes:
        target = float(outcome.row[of])
        low, high = 0.0, 1.0
        spans = [
            slice(
                *np.searchsorted(one.at, [round(t * MICROS) for t in (outcome.begin, outcome.begin + ADAPTS)])
            )
            for one in (left, right)
        ]
        whole = _join_steps(left, right, [k.copy() for k in kept], settings, outcome.begin, of)
        if whole > target:
            for _ in range(18):
                middle = (low + high) / 2
                tried = [k.copy() for k in kept]
                for mine, drawn, span in zip(tried, draws, spans, strict=True):
                    mine[span] = drawn[span] < middle
                if _join_steps(left, right, tried, settings, outcome.begin, of) > target:
                    high = middle
                else:
                    low = middle
            for mine, drawn, span in zip(kept, draws, spans, strict=True):
                mine[span] = drawn[span] < high
    thinned = (_thin(left, kept[0]), _thin(right, kept[1]))
    begin, end = like.outcomes[0].begin, like.outcomes[-1].begin + ADAPTS
    return run_join(*thinned, without_budget(settings), begin, end), thinned


def _join_steps(
    left: Operand, right: Operand, kept: Sequence[Numbers], settings: JoinSettings, begin: float, of: str
) -> float:
    """Return the comparisons (or steps) of a window if these rows are kept and joined in full."""
    back = max(settings.left.lasts_seconds, settings.right.lasts_seconds)
    total = 0.0
    ends = [round(t * MICROS) for t in (begin - back, begin, begin + ADAPTS)]
    at = []
    for one, mine in zip((left, right), kept, strict=True):
        first, _, last = np.searchsorted(one.at, ends)
        at.append(one.at[first:last][mine[first:last]])
    for probing, probed, lasts, side in (
        (at[0], at[1], settings.right.lasts_seconds, "left"),
        (at[1], at[0], settings.left.lasts_seconds, "right"),
    ):
        mine = probing[probing >= ends[1]]
        high = np.searchsorted(probed, mine, side=side)  # type: ignore[call-overload]
        total += float((high - np.searchsorted(probed, mine - round(lasts * MICROS))).sum())
    return total


def _thin(rows: Operand, kept: Numbers) -> Operand:
    sizes = np.diff(rows.sets.first)
    mine = np.repeat(kept, sizes)
    return Operand(
        rows.at[kept], rows.seq[kept],
        ItemSets(
            np.concatenate([[0], np.cumsum(sizes[kept])]).astype(np.int64),
            rows.sets.items[mine], rows.sets.weights[mine],
        ),
        rows.kinds[kept],
    )  # fmt: skip


def hindsight_pairs(whole: JoinRun, like: JoinRun) -> float:
    """Return the pairs of the best choice by hindsight with the steps of `like`, by basic windows or by whole rows.

    Computed from the full join's counts: matches and comparisons by basic window, of both windows, those with the most
    pairs per step first. Without an index a step is a comparison.
    """
    return sum(
        _pairs_by_curve(full, mine, full.row["own_matches"] / np.maximum(full.row["own_volumes"], 1e-12))
        for full, mine in zip(whole.outcomes, like.outcomes, strict=True)
    )


def clairvoyant_pairs(whole: JoinRun, like: JoinRun) -> float:
    """Return the pairs of the best choice by the true match curve, which is the mean of all windows of `whole`.

    For stationary streams. The curve is computed from the measured run, so random variation favours the clairvoyant.
    """
    matches, volumes = (
        sum(one.row[name] for one in whole.outcomes) for name in ("own_matches", "own_volumes")
    )
    curve = matches / np.maximum(volumes, 1e-12)
    return sum(
        _pairs_by_curve(full, mine, curve) for full, mine in zip(whole.outcomes, like.outcomes, strict=True)
    )


def _pairs_by_curve(full: Outcome, mine: Outcome, curve: Numbers) -> float:
    """Return the pairs in the best basic windows by the curve, within the steps of `mine`."""
    matches, volumes, costs = full.row["own_matches"], full.row["own_volumes"], mine.row["costs"]
    order = np.argsort(-curve / costs)
    cut, added = len(full.row["left_curve"]), costs.copy()
    for side in (slice(0, cut), slice(cut, None)):  # the neighbours of a picked row are examined with it
        ranks = np.argsort(np.argsort(order)[side])
        added[side] = costs_in_order(
            costs[side], mine.row["looked_up"][side], np.argsort(ranks), mine.row["held"][side]
        )
    steps = volumes * added
    left, picked = float(mine.row["steps"]), 0.0
    of_all = min(1.0, left / max(1e-12, mine.row["whole_steps"])) * float(matches.sum())
    for at in order:
        used = min(left, steps[at])
        picked += matches[at] * (used / steps[at] if steps[at] else 0.0)
        left -= used
        if left <= 0:
            break
    return max(picked, of_all)


def with_own_counts(whole: JoinRun, memory: float) -> JoinRun:
    """Return the full join with the counts of each window alone, without the faded counts of earlier windows."""
    before: dict[str, Numbers] = {}
    for outcome in whole.outcomes:
        for name in ("matches", "comparisons"):
            learned = [np.array(outcome.row[f"{side}_learned"][name]) for side in ("left", "right")]
            joined = np.concatenate(learned)
            own = (
                joined - memory * before[name]
                if name in before and len(before[name]) == len(joined)
                else joined
            )
            before[name] = joined
            outcome.row["own_matches" if name == "matches" else "own_volumes"] = np.maximum(own, 0.0)
    return whole


def sample_both(left: Operand, right: Operand, share: float, seed: int) -> tuple[Operand, Operand]:
    """Return both streams, each row kept with the same probability."""
    chance = np.random.default_rng([seed, 78])
    return _thin(left, chance.random(left.rows) < share), _thin(right, chance.random(right.rows) < share)


def join_with_even_drops(
    left: Operand,
    right: Operand,
    settings: JoinSettings,
    like: JoinRun,
    seed: int,
    of: str,
    skip: int,
    turns: int = 3,
) -> JoinRun:
    """Rows dropped evenly so that the windows that are judged, all but the first few (`skip`), take as many steps
    (`steps`), or as long (`seconds`), as they took `like`.

    For constant rates. The share is found by search, because the steps of a join grow with the square of the kept rows.
    """
    begin, end = like.outcomes[0].begin, like.outcomes[-1].begin + ADAPTS

    def takes(joined: JoinRun) -> float:
        judged = JoinRun(joined.outcomes[skip:])
        return judged.seconds if of == "seconds" else judged.sum(of)

    target, share, best = takes(like), 0.3, None
    for _ in range(turns):
        kept = sample_both(left, right, share, seed)
        run = partial(run_join, *kept, without_budget(settings), begin, end)
        tried = fastest_run(run) if of == "seconds" else run()
        took = takes(tried)
        if best is None or abs(took - target) < abs(best[0] - target):
            best = (took, tried)
        share = min(1.0, share * float(np.sqrt(target / max(took, 1e-9))))
    assert best is not None
    # correct for slightly different steps: pairs are proportional to steps
    scale = target / best[0]
    for outcome in best[1].outcomes:
        outcome.row["pairs"] *= scale
    return best[1]

"""What the queries of a room were offered, were given and took before: from the table `coverage`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.levers.protocol import Views
from spillway.levers.quality.overload import (
    FEW_MEASUREMENTS,
    Measurements,
    TupleCost,
    fit_costs,
)

COVERAGE = "coverage"
_COLUMNS = (
    "subject",
    "window",
    "from_time",
    "sic",
    "tuples_kept",
    "cost",
    "cost_offered",
    "seconds",
    "arrived_first",
)
MEASURED = 16
"""The number of answers of a query that its cost is fitted to."""
MEAN_OF = 10
"""The number of slices over which the paper's cost of a tuple is averaged."""


@dataclass
class RoomHistory:
    """By query and slice: what it reached, what it was offered, and what it was given."""

    sic: dict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(dict))
    """By query and slice: the sum of the windows' sic, and the number of windows."""
    offered: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    given: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    measured: dict[str, Measurements] = field(default_factory=dict)
    mean_cost: TupleCost = field(default_factory=lambda: TupleCost(MEAN_OF))
    """The paper's cost of a tuple, one for all queries of the room."""
    arrived_first: dict[tuple[str, int], int] = field(default_factory=dict)
    """By query and window, the tuples that were here when it was first worked out."""
    kept: dict[tuple[str, int], int] = field(default_factory=dict)
    """By query and window, the tuples that it was worked out of before it is again."""

    def add(
        self, query: str, number: int, sic: float, offered: float, given: float, windows: int = 1
    ) -> None:
        """Add windows of a slice, computed or planned: the sums of their sic and costs."""
        reached = self.sic[query].setdefault(number, [0.0, 0])
        reached[0] += sic
        reached[1] += windows
        self.offered[query][number] = self.offered[query].get(number, 0.0) + offered
        self.given[query][number] = self.given[query].get(number, 0.0) + given

    def reached(self, query: str, before: int, slices: int) -> list[float]:
        """What it reached in the slices right before one, on average over the windows of each."""
        told = self.sic.get(query, {})
        return [told[one][0] / told[one][1] for one in range(before - slices + 1, before) if one in told]

    def waited(self, query: str, before: int) -> int:
        """For how many of its last slices it was offered something and given nothing."""
        count = 0
        for number in sorted((n for n in self.offered.get(query, {}) if n < before), reverse=True):
            if self.given[query][number] > 0 or not self.offered[query][number]:
                break
            count += 1
        return count

    def load(self, number: int, queries: Iterable[str]) -> float:
        """What the queries were offered in a slice."""
        return sum(self.offered.get(query, {}).get(number, 0.0) for query in queries)

    def last_load(self, query: str, before: int) -> float:
        """What it was last offered before a slice; nothing where it never was."""
        told = {n: load for n, load in self.offered.get(query, {}).items() if n < before}
        return told[max(told)] if told else 0.0

    def windows_in(self, query: str, number: int) -> int:
        """How many of its windows in a slice were worked out or planned."""
        found = self.sic.get(query, {}).get(number)
        return 0 if found is None else int(found[1])

    def windows_last_time(self, query: str, before: int) -> int:
        """How many windows it had in the last slice before one that it had any in."""
        last = max((n for n in self.sic.get(query, {}) if n < before), default=None)
        return 0 if last is None else self.windows_in(query, last)

    def costs(self, names: Iterable[str]) -> dict[str, tuple[float, float]]:
        """Return by query its fixed cost and its cost per tuple, in seconds (`overload.fit_costs`).

        A query without a measurement has the cost of the median query; 0 if no query was measured.
        """
        known = list(self.measured)
        fixed, per_tuple = fit_costs([self.measured[name] for name in known])
        found = dict(zip(known, zip(fixed.tolist(), per_tuple.tolist(), strict=True), strict=True))
        usual = (float(np.median(fixed)), float(np.median(per_tuple))) if known else (0.0, 0.0)
        return {name: found.get(name, usual) for name in names}

    def has_few_measurements(self, query: str) -> bool:
        """Return whether the query has so few measurements that one slow answer decides its estimated cost."""
        return len(self.measured.get(query, ())) < FEW_MEASUREMENTS


def room_history(
    tables: Views,
    room: str,
    again: Mapping[str, Collection[int]],
    step: int,
    since: int | None = None,
    last_slices: int = 0,
) -> RoomHistory:
    """Return the history of a room, without the windows that are worked out again; of them, what they cost.

    Slices of `step` microseconds are computed from the windows, so that another length of slice divides the same past
    anew. If `since` is given, older slices are left out, but for the `last_slices` of each query.
    """
    rows = tables.at(COVERAGE).rows(list(_COLUMNS), room=room)
    return history_of(rows, again, step, since, last_slices)


def history_of(
    rows: pa.Table,
    again: Mapping[str, Collection[int]],
    step: int,
    since: int | None = None,
    last_slices: int = 0,
) -> RoomHistory:
    """Return the history from rows of `coverage`."""
    found = RoomHistory()
    if not rows.num_rows:
        return found
    names = sorted(pc.unique(rows["subject"]).to_pylist())
    query = pc.index_in(rows["subject"], pa.array(names)).to_numpy().astype(np.int64)
    begins = rows["from_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    order = np.lexsort([begins, query])
    query, begins = query[order], begins[order]
    window, kept, seconds, sic, cost, offered = (
        rows[name].to_numpy()[order]
        for name in ("window", "tuples_kept", "seconds", "sic", "cost", "cost_offered")
    )
    ends = np.searchsorted(query, np.arange(len(names) + 1))
    number = begins // step
    # times are measurements, also those of windows that are computed again
    took = (kept > 0) & (seconds > 0)
    age = ends[query + 1] - 1 - np.arange(len(query))
    for at, name in enumerate(names):
        mine = ends[at] + np.flatnonzero(took[ends[at] : ends[at + 1]])
        if len(mine):
            mine = mine[select_measurements(kept[mine])]
            found.measured[name] = Measurements(kept[mine], seconds[mine], age[mine])
    found.mean_cost = _mean_cost(number[took], seconds[took], kept[took])
    pairs = [(at << 44) + one for at, name in enumerate(names) for one in again.get(name, ())]
    redone = np.isin((query << 44) + window, np.array(pairs, np.int64))
    mine = np.flatnonzero(redone)
    first = rows["arrived_first"].take(pa.array(order[mine])).to_pylist()
    for place, arrived in zip(mine.tolist(), first, strict=True):
        found.arrived_first[names[query[place]], int(window[place])] = arrived
        found.kept[names[query[place]], int(window[place])] = int(kept[place])
    stays = np.flatnonzero(~redone)
    _add_slices(
        found,
        names,
        query[stays],
        number[stays],
        (sic[stays], offered[stays], cost[stays]),
        since,
        last_slices,
    )
    return found


def select_measurements(tuples: np.ndarray) -> np.ndarray:
    """Return the indices of the measurements that a cost is fitted to: the latest half of `MEASURED`, and others.

    The others are the latest ones of another size, if there are any. Answers of one size cannot separate the fixed cost
    from the cost per tuple. `tuples` are in the order of time.
    """
    if len(tuples) <= MEASURED:
        return np.arange(len(tuples))
    half = MEASURED // 2
    usual = float(np.median(tuples[-half:]))
    earlier = np.arange(len(tuples) - half)
    differs = np.abs(tuples[:-half] - usual) > usual / 4
    # a stable sort puts those of another size last, each in the order of time
    others = earlier[np.argsort(differs, kind="stable")][-half:]
    return np.concatenate([np.sort(others), np.arange(len(tuples) - half, len(tuples))])


def _mean_cost(number: np.ndarray, seconds: np.ndarray, tuples: np.ndarray) -> TupleCost:
    """Return the mean of t / n of the last slices, t and n of all queries together (eq. 5.2)."""
    found = TupleCost(MEAN_OF)
    slices, of = np.unique(number, return_inverse=True)
    sums = [np.bincount(of, values, len(slices)) for values in (seconds, tuples)]
    for took, read in zip(sums[0][-MEAN_OF:].tolist(), sums[1][-MEAN_OF:].tolist(), strict=True):
        found = found.after(took, read)
    return found


def _add_slices(
    found: RoomHistory,
    names: list[str],
    query: np.ndarray,
    number: np.ndarray,
    sums: tuple[np.ndarray, np.ndarray, np.ndarray],
    since: int | None,
    last_slices: int,
) -> None:
    """Add windows in the order of queries and slices to a history, one entry per query and slice."""
    if not len(query):
        return
    begins = np.flatnonzero(np.r_[True, (query[1:] != query[:-1]) | (number[1:] != number[:-1])])
    windows = np.diff(np.r_[begins, len(query)])
    totals = [np.add.reduceat(values.astype(np.float64), begins) for values in sums]
    query, number = query[begins], number[begins]
    recent = np.ones(len(query), np.bool_)
    if since is not None:
        old = number < since
        # how many slices a query has between one and `since`
        later = np.searchsorted(query * 2 + ~old, query * 2, side="right") - 1 - np.arange(len(query))
        recent = ~old | (later < last_slices)
    query, number = query[recent], number[recent]
    sic, offered, given = (one[recent].tolist() for one in totals)
    reached = list(map(list, zip(sic, windows[recent].tolist(), strict=True)))
    slices = number.tolist()
    ends = np.searchsorted(query, np.arange(len(names) + 1)).tolist()
    for at, name in enumerate(names):
        low, high = ends[at], ends[at + 1]
        if low < high:
            mine = slices[low:high]
            found.sic[name] = dict(zip(mine, reached[low:high], strict=True))
            found.offered[name] = dict(zip(mine, offered[low:high], strict=True))
            found.given[name] = dict(zip(mine, given[low:high], strict=True))

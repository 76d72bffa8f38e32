"""Predict the cost of a query, detect an overload (Fiscato 2012, 5.2 to 5.4), and read the history of a room.

The paper's tuple cost model, `TupleCost` (`cost_model: mean`), has one cost for all queries of a node:

    C_T = t / n                           n tuples were processed in t seconds          (5.2)
    N_keep = delta / mean of the last C_T                                               (5.3)
    N_discard = buffer - N_keep, where that is above 0                                  (5.1)

The default, `fit_costs` (`cost_model: affine`), has a fixed cost in addition to the cost per tuple, for each query:

    t = F + m n

On Spark, F is seconds, and t / n grows without limit as less is kept. The fit is robust: m is the weighted median of
the slopes between pairs of measurements (Theil 1950, Sen 1968), F the weighted median of t - m n, both at least 0. It
forgets: a measurement has half the weight of one that is `HALF_LIFE` windows younger. So neither one slow answer (a
cold start) nor a slow hour in the past determines the estimated cost.

A single large batch is no overload. The offered load is smoothed, and an overloaded node stays overloaded until the
smoothed load falls to `calm` times its capacity (hysteresis).

>>> cost = TupleCost(last=3).after(0.3, 5000)
>>> cost.max_tuples(0.25)
4166
>>> for seconds, tuples in [(0.25, 5000), (0.26, 3900), (0.4, 5000)]:
...     cost = cost.after(seconds, tuples)
...     print(cost.max_tuples(0.25))
4545
4245
3813
>>> measured = Measurements(np.array([100, 300, 200, 100]), np.array([8.0, 0.05, 0.04, 0.03]), np.arange(4)[::-1])
>>> fixed, per_tuple = fit_costs([measured])
>>> fixed.round(6).tolist(), per_tuple.round(6).tolist()
([0.02], [0.0001])

`RoomHistory` holds what the queries of a room were offered, what they were given, and the seconds that they took. It is
read from the table `coverage`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.protocol import Views

HALF_LIFE = 8.0
"""The number of windows after which a measurement has half its weight."""
FEW_MEASUREMENTS = 3
"""With fewer measurements, a single slow one can decide the fit."""


@dataclass(frozen=True)
class Measurements:
    """Measured answers of one query; one element per answer."""

    tuples: np.ndarray
    """Tuples that were read, above 0."""
    seconds: np.ndarray
    age: np.ndarray
    """The age: the number of later windows of the query, answered or not."""

    def __len__(self) -> int:
        return len(self.tuples)


def fit_costs(queries: Sequence[Measurements]) -> tuple[np.ndarray, np.ndarray]:
    """Return the fixed cost F and the cost per tuple m of each query, from at least one measurement each."""
    ends = np.cumsum([0, *(len(one) for one in queries)])
    fixed, per_tuple = np.zeros(len(queries)), np.zeros(len(queries))
    if len(queries):
        tuples, seconds, age = (
            np.concatenate([getattr(one, name) for one in queries]).astype(np.float64)
            for name in ("tuples", "seconds", "age")
        )
        _fit_all(tuples, seconds, age, ends, fixed, per_tuple)
    return fixed, per_tuple


@njit(cache=True)
def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the smallest value at which the cumulative weight reaches half of the total."""
    half = weights.sum() / 2.0
    order = np.argsort(values)
    reached = 0.0
    for at in order:
        reached += weights[at]
        if reached >= half:
            return float(values[at])
    return float(values[order[-1]])


@njit(cache=True)
def _fit(tuples: np.ndarray, seconds: np.ndarray, age: np.ndarray) -> tuple[float, float]:
    count = len(tuples)
    weights = np.maximum(0.5 ** ((age - age.min()) / HALF_LIFE), 1e-12)
    slopes, of_pairs = np.empty(count * (count - 1) // 2), np.empty(count * (count - 1) // 2)
    pairs = 0
    for i in range(count):
        for j in range(i):
            apart = tuples[i] - tuples[j]
            if apart != 0.0:
                slopes[pairs] = (seconds[i] - seconds[j]) / apart
                of_pairs[pairs] = weights[i] * weights[j] * abs(apart)
                pairs += 1
    if pairs:
        slope = max(0.0, _weighted_median(slopes[:pairs], of_pairs[:pairs]))
        fixed = _weighted_median(seconds - slope * tuples, weights)
        if fixed >= 0.0:
            return fixed, slope
        # F would be negative: all cost is per tuple
        return 0.0, _weighted_median(seconds / tuples, weights)
    # answers of one size cannot separate F from m n: half each, so that a try costs less than twice the capacity
    whole = _weighted_median(seconds, weights)
    return whole / 2.0, whole / 2.0 / tuples[0]


@njit(cache=True)
def _fit_all(
    tuples: np.ndarray,
    seconds: np.ndarray,
    age: np.ndarray,
    ends: np.ndarray,
    fixed: np.ndarray,
    per_tuple: np.ndarray,
) -> None:
    for at in range(len(fixed)):
        mine = slice(ends[at], ends[at + 1])
        fixed[at], per_tuple[at] = _fit(tuples[mine], seconds[mine], age[mine])


@dataclass(frozen=True)
class TupleCost:
    """The paper's cost of a tuple (eq. 5.2), as the mean of the last few measurements."""

    last: int = 10
    seconds: tuple[float, ...] = ()

    def after(self, seconds: float, tuples: int) -> TupleCost:
        """Add a measurement; an interval without tuples is ignored."""
        if tuples <= 0 or seconds <= 0:
            return self
        return replace(self, seconds=(*self.seconds, seconds / tuples)[-self.last :])

    @property
    def seconds_per_tuple(self) -> float:
        """Return the smoothed C_T; 0 before the first measurement."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else 0.0

    def max_tuples(self, interval_seconds: float) -> int:
        """Return N_keep: the number of tuples that fit into an interval (eq. 5.3)."""
        if interval_seconds <= 0:
            raise InvalidValue(
                "interval_seconds", "be above 0", interval_seconds, "say how long an interval is"
            )
        if not self.seconds:
            return 2**62
        # a rounding error of the quotient must not remove a tuple that fits exactly
        return math.floor(interval_seconds / self.seconds_per_tuple * (1 + 1e-12))


@dataclass(frozen=True)
class Overload:
    """Whether the smoothed load exceeds the capacity, with hysteresis."""

    last: int = 4
    calm: float = 0.9
    offered: tuple[float, ...] = ()
    on: bool = False

    def after(self, offered: float, can: float) -> Overload:
        """Return the state after one more interval, with the load offered in it and its capacity `can`.

        >>> spike = Overload(last=4)
        >>> [(spike := spike.after(load, can=100)).on for load in (50, 50, 50, 220, 50)]
        [False, False, False, False, False]
        >>> lasting = Overload(last=2)
        >>> [(lasting := lasting.after(load, can=100)).on for load in (50, 200, 200, 96, 92, 50)]
        [False, True, True, True, True, False]
        """
        seen = (*self.offered, offered)[-self.last :]
        smoothed = sum(seen) / len(seen)
        return replace(self, offered=seen, on=smoothed > (self.calm if self.on else 1.0) * can)


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
    """The sic that each query reached in each slice, the cost of what it was offered, and of what it was given."""

    sic: dict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(dict))
    """By query and slice: the sum of the windows' sic, and the number of windows."""
    offered: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    given: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    measured: dict[str, Measurements] = field(default_factory=dict)
    mean_cost: TupleCost = field(default_factory=lambda: TupleCost(MEAN_OF))
    """The paper's cost of a tuple, one for all queries of the room."""
    arrived_first: dict[tuple[str, int], int] = field(default_factory=dict)
    """By query and window: the tuples that had arrived when the window was first computed."""
    kept: dict[tuple[str, int], int] = field(default_factory=dict)
    """By query and window that is computed again: the tuples that were kept the last time."""

    def add(
        self, query: str, number: int, sic: float, offered: float, given: float, windows: int = 1
    ) -> None:
        """Add windows of a slice, computed or planned: the sums of their sic and costs."""
        reached = self.sic[query].setdefault(number, [0.0, 0])
        reached[0] += sic
        reached[1] += windows
        self.offered[query][number] = self.offered[query].get(number, 0.0) + offered
        self.given[query][number] = self.given[query].get(number, 0.0) + given

    def coverage_by_slice(self, query: str, before: int, slices: int) -> list[float]:
        """Return the mean sic of each of the `slices - 1` slices before a slice, without those that have no window."""
        told = self.sic.get(query, {})
        return [told[one][0] / told[one][1] for one in range(before - slices + 1, before) if one in told]

    def slices_waited(self, query: str, before: int) -> int:
        """Return the number of the query's last slices in which it was offered something and given nothing."""
        count = 0
        for number in sorted((n for n in self.offered.get(query, {}) if n < before), reverse=True):
            if self.given[query][number] > 0 or not self.offered[query][number]:
                break
            count += 1
        return count

    def load(self, number: int, queries: Iterable[str]) -> float:
        """Return the cost of what the queries were offered in a slice."""
        return sum(self.offered.get(query, {}).get(number, 0.0) for query in queries)

    def last_load(self, query: str, before: int) -> float:
        """Return the cost of what the query was last offered before a slice; 0 if it never was."""
        told = {n: load for n, load in self.offered.get(query, {}).items() if n < before}
        return told[max(told)] if told else 0.0

    def windows_in(self, query: str, number: int) -> int:
        """Return the number of the query's windows in a slice that were computed or planned."""
        found = self.sic.get(query, {}).get(number)
        return 0 if found is None else int(found[1])

    def windows_in_last_slice(self, query: str, before: int) -> int:
        """Return the number of the query's windows in the last slice before this one that has any."""
        last = max((n for n in self.sic.get(query, {}) if n < before), default=None)
        return 0 if last is None else self.windows_in(query, last)

    def costs(self, names: Iterable[str]) -> dict[str, tuple[float, float]]:
        """Return by query its fixed cost and its cost per tuple, in seconds (`fit_costs`).

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
    """Return the history of a room; of windows computed `again`, only measurements, `arrived_first` and `kept`.

    Slices of `step` microseconds are computed from the windows, so a changed slice length applies to the past, too. If
    `since` is given, older slices are left out, except the `last_slices` last ones of each query.
    """
    rows = tables.at(COVERAGE).rows(list(_COLUMNS), capacity_group=room)
    return history_of(rows, again, step, since, last_slices)


def history_of(
    rows: pa.Table,
    again: Mapping[str, Collection[int]],
    step: int,
    since: int | None = None,
    last_slices: int = 0,
) -> RoomHistory:
    """Return the history from rows of `coverage`; the parameters are those of `room_history`."""
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
        # the number of slices that a query has between this one and `since`
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

"""Estimate COUNT, SUM and AVG of all batches from the batches that were read, with a 95 % confidence interval.

Ratio estimation by clusters. A batch (a portion of a window) is a cluster. Of N batches n were read; every batch was
equally likely to be among them. Batch i has m_i tuples. The query computes y_i (a sum) and c_i (a count) from it. T,
the number of tuples of all batches, is known without reading them. Let r = sum y / sum m over the batches that were
read, f = n / N, and t the quantile of Student's t with n - 1 degrees of freedom. The interval is total +- t se, with

    total = T r,      se = T / mean(m) * sqrt((1 - f) / n * sum (y_i - r m_i)^2 / (n - 1))

An average is the ratio of two totals: r = sum y / sum c, with the residuals y_i - r c_i over mean(c). If nothing was
shed, the value is exact and the interval has no width.

The spread of the batches that were read says nothing about a batch that differs from all of them. If a few batches make
up a sum, intervals of 95 % that use the spread alone contain the sum in only 9 to 85 % of the cases. So `ValueRange`
moves the ends: it adds what hidden batches may contain, and it limits the ends to what all rows can add up to.

The spread is not used in four cases: fewer than `FEWEST` batches were read; chance alone chose fewer than `FEWEST` of
them; their sizes are not `have_even_sizes`; too few of them contain what is added up (`shows_spread`). Then the certain
bounds alone are the interval. If the range of a row's contribution is unknown, there is no interval, and a reason says
why. The exception is `assume_alike`: the batches that were left out are assumed to be like those that were read.

>>> tens = np.full(5, 10.0)
>>> read = Clusters(tens, np.array([4.0, 5.0, 6.0, 4.0, 6.0]), tens)
>>> five = WindowSample(read, left=tens)
>>> five.total(), five.certain_bounds_reason
(Estimate(value=50.0, low=None, high=None), 'nothing says how far values that were left out may lie')
>>> alike = replace(five, assume_alike=True).total()
>>> round(alike.low, 1), round(alike.high, 1)
(41.2, 58.8)
>>> sure = replace(five, row_range=ValueRange(0.0, 1.0)).total()
>>> round(sure.low, 1), round(sure.high, 1)
(26.2, 73.8)
>>> replace(five, left=np.zeros(0)).total()
Estimate(value=25.0, low=25.0, high=25.0)

*Certain bounds*: a row adds between `least` and `most` to a total, or nothing if it need not be counted. Let S and C be
the sum and the count of the batches that were read, and U the number of unread tuples:

    total in [S + U a, S + U b],   a = least or min(0, least), b = most or max(0, most)
    mean in [min(S / C, (S + U least) / (C + U)), max(S / C, (S + U most) / (C + U))]

*Hidden batches*: n of N batches were read, every batch equally likely. The probability that k given batches were all
left out is

    C(N - k, n) / C(N, n) = prod_{i < k} (N - n - i) / (N - i)

So at most `max_hidden_batches` unusual batches may have been left out (2.5 % at either end). Each of them may have any
values that its rows allow, and the ends are moved accordingly.

>>> max_hidden_batches(10, 20), max_hidden_batches(39, 40), max_hidden_batches(5, 20)
(4, 1, 9)
>>> ValueRange(0.0, 1.0).total(np.array([3.0]), np.array([10.0, 10.0]))
(3.0, 23.0)
>>> ValueRange(0.0, 100.0, always=True).mean(200.0, 10.0, 10.0)
(10.0, 60.0)

*Inexact values*, which an earlier lever shed or rounded, widen the interval. A value v that was recovered with an error
bound of b per cent represents a true value with

    |v - truth| <= o(v) = |v| b / (100 - b)        (b < 100; zero represents only zero)

So the true sum of a batch lies between y_i - o_i and y_i + o_i, where o_i is the sum of o over the batch. The interval
reaches from the low end for the least sums (all y_i - o_i) to the high end for the largest sums (all y_i + o_i). It
contains the truth whenever the interval of the exact values would. There is no interval if a value is lost or has no
bound, if an inexact value enters a calculation before it is added up, or if it decides which rows are counted, or in
which group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from spillway.contracts.column_names import BOUND_SUFFIX
from spillway.levers.quality.sql_text import Measure, PlainAggregate, names_in

_ONE_OR_NONE = re.compile(r"case\s+when\b.*\bthen\s+1(\s+else\s+0)?\s+end$", re.IGNORECASE | re.DOTALL)
DOUBT = 0.025
"""The probability that each end of a 95 % interval misses the true value."""


@dataclass(frozen=True)
class ValueRange:
    """The range of what a row may add to a total; for an average, the range of its value."""

    least: float
    most: float
    always: bool = False
    """Whether every row is counted; if not, a row may add nothing."""

    def total(self, read: np.ndarray, unread: np.ndarray) -> tuple[float, float]:
        """Return the bounds of the sum over all batches.

        `read`: the sum of each batch that was read; `unread`: the number of tuples of each other batch.
        """
        (low, high), (sure, tuples) = self.row_contribution, (float(read.sum()), float(unread.sum()))
        return sure + tuples * low, sure + tuples * high

    def mean(self, total: float, counted: float, unread: float) -> tuple[float, float]:
        """Return the bounds of an average over all batches.

        `total`, `counted`: the sum and the count of the rows read; `unread`: the number of tuples that were not read.
        """
        rows = counted + unread
        if not rows:
            return self.least, self.most
        ends = [(total + unread * end) / rows for end in (self.least, self.most)]
        if counted and not self.always:
            ends += [total / counted]
        return min(ends), max(ends)

    def hidden_in_total(self, ratio: float, unread: np.ndarray, most: int) -> tuple[float, float]:
        """Return by how much hidden batches may lower and raise a sum that was scaled up by a ratio.

        `unread`: the number of tuples of each batch that may be hidden; `most`: the number of hidden batches.
        """
        low, high = self.row_contribution
        tuples = float(np.sort(unread)[::-1][:most].sum())
        return max(0.0, tuples * (ratio - low)), max(0.0, tuples * (high - ratio))

    def hidden_in_mean(self, ratio: float, unread: np.ndarray, most: int) -> tuple[float, float]:
        """Return by how much hidden batches may lower and raise the sum of deviations from an average."""
        tuples = float(np.sort(unread)[::-1][:most].sum())
        return max(0.0, tuples * (ratio - self.least)), max(0.0, tuples * (self.most - ratio))

    @property
    def row_contribution(self) -> tuple[float, float]:
        """Return the smallest and the largest value that a row may add to a total."""
        return (self.least, self.most) if self.always else (min(0.0, self.least), max(0.0, self.most))


def row_range(
    one: Measure, of: PlainAggregate, ranges: Mapping[str, tuple[float, float]]
) -> ValueRange | None:
    """Return what a row may add to a measure; None: unknown.

    `ranges`: the range of values of each column, by its name in lower case.

    >>> from spillway.levers.quality.sql_text import plain_aggregate
    >>> ranges = {"loss": (0.0, 100.0)}
    >>> said = plain_aggregate("SELECT count(*) AS n, avg(loss) AS m, sum(x) AS s FROM polls")
    >>> [row_range(one, said, ranges) for one in said.measures]
    [ValueRange(least=1.0, most=1.0, always=True), ValueRange(least=0.0, most=100.0, always=False), None]
    """
    if one.of is None:
        always = of.where is None and not of.keys
        return ValueRange(float(always), 1.0, always)
    if one.kind == "count":
        return ValueRange(0.0, 1.0)
    flag = _ONE_OR_NONE.match(one.of) and len(re.findall(r"\bwhen\b", one.of, re.IGNORECASE)) == 1
    if flag:
        return ValueRange(0.0, 1.0)
    return ValueRange(*ranges[one.of.lower()]) if one.of.lower() in ranges else None


def max_hidden_batches(read: int, batches: int) -> int:
    """Return the largest k such that P(all k unusual batches were left out) > `DOUBT`; at least 1 if any was left out.

    `read`: batches that were read; `batches`: all batches. The minimum of 1 is needed because the spread of the batches
    that were read does not bound a single unread batch.
    """
    chance, found = 1.0, 0
    while found < batches - read:
        chance *= (batches - read - found) / (batches - found)
        if chance <= DOUBT:
            break
        found += 1
    return max(found, int(read < batches))


FEWEST = 5
"""The smallest number of batches from which the spread is estimated."""
MOST_OVER_MEAN = 1.5
"""The spread is used only if the largest batch has at most this multiple of the mean number of tuples."""

FEW_READ = f"fewer than {FEWEST} portions were read"
CHOSEN = f"chance alone chose fewer than {FEWEST} of the portions that were read"
UNEVEN_SIZES = "portions differ much in size"
RARE = "too few portions hold what is asked for, or one makes most of it"
BEYOND = "nothing says how far values that were left out may lie"
DROPPED = "values of dropped rows have no known range: state a rule of kind range for the attribute"
UNBOUNDED = "values that were shed or rounded say which rows count, or are bounded by nothing"
REASONS = (FEW_READ, CHOSEN, UNEVEN_SIZES, RARE, BEYOND, DROPPED, UNBOUNDED)
"""Why an estimate has no interval. All but the last two concern portions that were left out."""
NORMAL = 1.959963985
"""The two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Clusters:
    """The batches that were read, one element each: the tuples, the sum, and the number of counted values."""

    tuples: np.ndarray
    total: np.ndarray
    counted: np.ndarray

    def __len__(self) -> int:
        return len(self.tuples)

    def at(self, places: np.ndarray) -> Clusters:
        """Return the batches at these indices."""
        return Clusters(self.tuples[places], self.total[places], self.counted[places])


@dataclass(frozen=True)
class Estimate:
    """An estimate of a value over all batches, and its 95 % confidence interval; None: no interval."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SampledRows:
    """Rows of the window that an earlier lever dropped, estimated from the kept ones (Horvitz and Thompson 1952).

    A row that was kept with probability p has the weight w = 1 / p. The sampling variance of a total of y is at most
    the sum of w (w - 1) y^2 over the kept rows. This is the variance of independent draws; that of a sifter is smaller.
    The variance does not cover dropped rows that differ from all kept rows. Therefore `hidden` rows may have any value.
    The probability that all of m rows were dropped is (1 - 1 / w)^m, and m is the largest number for which it is at
    least 2.5 %. *Unsampled* rows were not sampled at all: each of them may have any value.
    """

    seen: Clusters
    """The kept rows, without weights."""
    total_squares: float
    """Sum of w (w - 1) y^2."""
    cross: float
    """Sum of w (w - 1) y over the counted rows."""
    counted_squares: float
    """Sum of w (w - 1) over the counted rows."""
    dropped_least: int
    dropped_most: int
    unsampled_least: int
    unsampled_most: int
    largest_weight: float
    left_rows: float = 0.0
    """The number of rows that arrived in portions that were left out."""
    left_unknown: float = 0.0
    """The possible error of that number."""
    off_squares: float = 0.0
    """Sum of w (w - 1) o^2, if a value is within o of the truth."""

    @property
    def hidden(self) -> float:
        """Return the largest number of sampled rows whose probability to be all dropped is at least 2.5 %."""
        most = max(0, self.dropped_most - self.unsampled_least)
        if self.largest_weight <= 1.0:
            return float(most)  # the weight with which they were dropped is not known
        return min(float(most), math.log(DOUBT) / math.log1p(-1.0 / self.largest_weight))

    def half_of_total(self) -> float:
        """Return half the width of the interval of a total."""
        return NORMAL * (math.sqrt(max(0.0, self.total_squares)) + math.sqrt(self.off_squares))

    def half_of_residuals(self, ratio: float) -> float:
        """Return half the width of the interval of the sum of y - ratio over the counted rows."""
        squares = self.total_squares - 2 * ratio * self.cross + ratio**2 * self.counted_squares
        return NORMAL * (math.sqrt(max(0.0, squares)) + math.sqrt(self.off_squares))


@dataclass(frozen=True)
class WindowSample:
    """The batches of a window that were read, and the known facts about the others."""

    read: Clusters
    left: np.ndarray
    """The number of tuples of each batch that was not read."""
    drawn: np.ndarray | None = None
    """Indices of the read batches that chance alone chose; None: all of them."""
    row_range: ValueRange | None = None
    """What an unread row may add; None: unknown."""
    assume_alike: bool = False
    rows: SampledRows | None = None
    """The dropped rows, if there are any; then `read` is weighted, and `left` includes dropped rows."""

    @property
    def no_interval_reason(self) -> str | None:
        """Return why there is no interval although the portions allow one: dropped rows may have any values."""
        if self.rows is None or self.row_range is not None:
            return None
        return DROPPED if self.rows.unsampled_most or not self.assume_alike else None

    @property
    def certain_bounds_reason(self) -> str | None:
        """Return why only the certain bounds limit the interval; None: spread and hidden batches do, too."""
        if len(self.read) < FEWEST:
            return FEW_READ
        if len(self._random_batches) < FEWEST:
            return CHOSEN
        if not have_even_sizes(np.concatenate([self.read.tuples, self.left])):
            return UNEVEN_SIZES
        return BEYOND if self._hidden and self.row_range is None else None

    def total(self) -> Estimate | None:
        """Return the estimated sum over all batches; None if nothing was read."""
        read, drawn = self.read, self._random_batches if len(self._random_batches) else self.read
        if not len(self.left):
            value = float(read.total.sum())
            return _exact(value) if self.rows is None else self._of_rows(value, (value, value), 1.0)
        size = float(drawn.tuples.sum())
        if not size:
            return None
        ratio, others = float(drawn.total.sum()) / size, self._unchosen_sizes
        tuples = float(read.tuples.sum() + self.left.sum())
        ends = (-math.inf, math.inf)
        if self.row_range is not None and self.rows is None:
            ends = self.row_range.total(read.total, self.left)
        if self.certain_bounds_reason is None and shows_spread(replace(drawn, counted=drawn.tuples)):
            residuals = drawn.total - ratio * drawn.tuples
            half = tuples * _half_width(residuals, float(drawn.tuples.mean()), self._batches)
            under, over = (0.0, 0.0)
            if self._hidden and self.row_range is not None:
                under, over = self.row_range.hidden_in_total(ratio, others, self._hidden)
            ends = _intersection(ends, (tuples * ratio - half - under, tuples * ratio + half + over))
        if self.rows is not None:
            return self._of_rows(tuples * ratio, ends, tuples / size)
        return _clipped_estimate(tuples * ratio, ends)

    def mean(self) -> Estimate | None:
        """Return the estimated average over all batches; None if no value was counted."""
        read, drawn = self.read, self._random_batches
        by_chance = bool(drawn.counted.any())
        drawn = drawn if by_chance else read
        counted = float(drawn.counted.sum())
        if not counted:
            return None
        ratio = float(drawn.total.sum()) / counted
        if not len(self.left):
            return _exact(ratio) if self.rows is None else self._mean_of_rows(ratio, (ratio, ratio))
        sure = float(read.total.sum()), float(read.counted.sum()), float(self.left.sum())
        ends = (-math.inf, math.inf)
        if self.row_range is not None and self.rows is None:
            ends = self.row_range.mean(*sure)
        if self.certain_bounds_reason is None and by_chance and shows_spread(drawn):
            residuals, each = drawn.total - ratio * drawn.counted, float(drawn.counted.mean())
            half = _half_width(residuals, each, self._batches)
            under, over = (0.0, 0.0)
            if self._hidden and self.row_range is not None:
                under, over = self.row_range.hidden_in_mean(ratio, self._unchosen_sizes, self._hidden)
            whole = each * self._batches
            ends = _intersection(ends, (ratio - half - under / whole, ratio + half + over / whole))
        if self.rows is not None:
            return self._mean_of_rows(ratio, ends)
        return _clipped_estimate(ratio, ends)

    def _of_rows(self, value: float, ends: tuple[float, float], scale: float) -> Estimate:
        """Widen the ends of a total by what dropped rows may add.

        `scale`: the tuples of all portions per tuple of the portions that chance chose.
        """
        rows = self.rows
        assert rows is not None
        half = scale * rows.half_of_total()
        if self.row_range is None:
            if self.no_interval_reason is not None:
                return Estimate(value, None, None)
            return _clipped_estimate(value, (ends[0] - half, ends[1] + half))
        low, high = self.row_range.row_contribution
        any_row = scale * rows.hidden + rows.unsampled_most
        seen, unread = float(rows.seen.total.sum()), self._unread
        sure = seen + min(low * one for one in unread), seen + max(high * one for one in unread)
        if self.row_range.always:
            return _clipped_estimate(value, sure)
        likely = ends[0] - half + any_row * low, ends[1] + half + any_row * high
        return _clipped_estimate(value, _intersection(sure, likely))

    def _mean_of_rows(self, ratio: float, ends: tuple[float, float]) -> Estimate:
        """Widen the ends of an average by the possible values of dropped rows."""
        rows = self.rows
        assert rows is not None
        counted = float(self.read.counted.sum())
        half = rows.half_of_residuals(ratio) / counted
        if self.row_range is None:
            if self.no_interval_reason is not None:
                return Estimate(ratio, None, None)
            return _clipped_estimate(ratio, (ends[0] - half, ends[1] + half))
        any_row = (rows.hidden + rows.unsampled_most) / counted
        under = half + any_row * max(0.0, ratio - self.row_range.least)
        over = half + any_row * max(0.0, self.row_range.most - ratio)
        seen, most = rows.seen, self._unread[1]
        sure = self.row_range.mean(float(seen.total.sum()), float(seen.counted.sum()), most)
        return _clipped_estimate(ratio, _intersection(sure, (ends[0] - under, ends[1] + over)))

    @property
    def _unread(self) -> tuple[float, float]:
        """Return the least and the largest number of unread rows: in portions left out, and dropped rows."""
        assert self.rows is not None
        rows = self.rows
        least = max(0.0, rows.left_rows - rows.left_unknown)
        return least + rows.dropped_least, rows.left_rows + rows.left_unknown + rows.dropped_most

    @property
    def _random_batches(self) -> Clusters:
        return self.read if self.drawn is None else self.read.at(self.drawn)

    @property
    def _batches(self) -> int:
        return len(self.read) + len(self.left)

    @property
    def _unchosen_sizes(self) -> np.ndarray:
        """Return the number of tuples of each batch that chance did not choose."""
        if self.drawn is None:
            return self.left
        return np.concatenate([np.delete(self.read.tuples, self.drawn), self.left])

    @property
    def _hidden(self) -> int:
        return 0 if self.assume_alike else max_hidden_batches(len(self._random_batches), self._batches)


def have_even_sizes(tuples: np.ndarray) -> bool:
    """Return whether all batches, read and unread, have about the same size.

    >>> have_even_sizes(np.array([90.0, 100.0, 110.0, 7.0])), have_even_sizes(np.array([20.0, 20.0, 200.0]))
    (True, False)
    """
    return len(tuples) == 0 or float(tuples.max()) <= MOST_OVER_MEAN * float(tuples.mean())


def shows_spread(read: Clusters) -> bool:
    """Return whether the batches that were read show the spread of all batches.

    They do not if fewer than `FEWEST` have a sum other than 0, if all are alike, or if one dominates the spread.

    >>> ones = np.ones(6)
    >>> shows_spread(Clusters(ones, np.array([3.0, 4.0, 5.0, 3.0, 4.0, 5.0]), ones))
    True
    >>> [shows_spread(Clusters(ones, np.array(few), ones)) for few in ([0, 0, 1, 2, 1, 2], [1, 1, 1, 1, 1, 9], [4] * 6)]
    [False, False, False]
    """
    part = float(read.total.sum()) / max(1.0, float(read.counted.sum())) * read.counted
    squares = (read.total - part) ** 2
    lumps = (2 * squares > squares.sum()) & (np.abs(read.total - part) > np.abs(part))
    return bool((read.total != 0).sum() >= FEWEST and squares.any() and not lumps.any())


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def _intersection(sure: tuple[float, float], likely: tuple[float, float]) -> tuple[float, float]:
    """Return the intersection of two intervals; `sure` if it is empty."""
    low, high = max(sure[0], likely[0]), min(sure[1], likely[1])
    return (low, high) if low <= high else sure


def _clipped_estimate(value: float, ends: tuple[float, float]) -> Estimate:
    """Return an estimate that is limited to the ends; it has no interval if an end is infinite."""
    low, high = ends
    if not (math.isfinite(low) and math.isfinite(high)):
        return Estimate(value, None, None)
    return Estimate(min(max(value, low), high), low, high)


def _half_width(residuals: np.ndarray, mean_size: float, batches: int) -> float:
    """Return half the width of the interval, in the unit of the ratio."""
    n = len(residuals)
    variance = float((residuals**2).sum()) / (n - 1) * (1.0 - n / batches) / n
    return student_quantile(n - 1) * math.sqrt(max(0.0, variance)) / mean_size


def student_quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t.

    It is tabulated up to 10 degrees of freedom; above, it is computed by the Cornish-Fisher expansion.

    >>> student_quantile(2), round(student_quantile(20), 3), round(student_quantile(1000), 3)
    (4.303, 2.086, 1.962)
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = 1.959963985
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def deciding_attributes(of: PlainAggregate, inexact: frozenset[str]) -> frozenset[str]:
    """Return the inexact attributes that decide which rows are counted, or in which group."""
    return names_in(" ".join([of.where or "", *of.keys])) & inexact


def relevant_attributes(of: PlainAggregate, inexact: frozenset[str]) -> frozenset[str]:
    """Return the inexact attributes (in lower case) on which the answer depends."""
    return deciding_attributes(of, inexact) | (
        names_in(" ".join(one.of or "" for one in of.measures)) & inexact
    )


def inexact_rows_sql(names: frozenset[str]) -> str:
    """Return an SQL expression for the number of rows in which one of these attributes was shed or rounded.

    >>> inexact_rows_sql(frozenset({"temp"}))
    'count(CASE WHEN temp__bound_pct IS NOT NULL THEN 1 END)'
    """
    either = " OR ".join(f"{name}{BOUND_SUFFIX} IS NOT NULL" for name in sorted(names))
    return f"count(CASE WHEN {either} THEN 1 END)"


@dataclass(frozen=True)
class ErrorExpressions:
    """Expressions for the possible error of a measure's values, and for the number of unknown values."""

    off: str
    """The possible error of the sum of all values."""
    unknown: str
    each: str | None = None
    """The possible error of one value; None: the values that are added up are exact or unknown."""


def error_expressions(one: Measure, inexact: frozenset[str]) -> ErrorExpressions | None:
    """Return expressions for the possible error of a measure's values; None: they are exact.

    >>> error_expressions(Measure("m", "avg", "wind"), frozenset({"temp"})) is None
    True
    >>> error_expressions(Measure("m", "avg", "temp + 1"), frozenset({"temp"})).unknown
    'count(CASE WHEN temp__bound_pct IS NOT NULL THEN 1 END)'
    """
    names = names_in(one.of or "") & inexact
    if not names or one.of is None:
        return None
    if one.of.lower() not in inexact:
        return ErrorExpressions("0.0", inexact_rows_sql(names))
    value, bound = one.of, one.of + BOUND_SUFFIX
    if one.kind == "count":
        return ErrorExpressions("0.0", f"count(CASE WHEN {value} IS NULL AND {bound} >= 100 THEN 1 END)")
    each = f"CASE WHEN {bound} < 100 THEN abs({value}) * {bound} / (100 - {bound}) END"
    unknown = f"count(CASE WHEN {bound} >= 100 AND ({value} IS NULL OR {value} <> 0) THEN 1 END)"
    return ErrorExpressions(f"sum({each})", unknown, each)


def widen_estimate(
    scale: Callable[[WindowSample], Estimate | None],
    sample: WindowSample,
    off: np.ndarray,
    seen_off: np.ndarray | None = None,
) -> Estimate | None:
    """Return the estimate with an interval over all possible true values.

    `off`: the possible error of the sum of each batch. If rows have weights, `off` is weighted, and `seen_off` is the
    same without weights.

    >>> read = Clusters(np.ones(2), np.array([4.0, 6.0]), np.ones(2))
    >>> widen_estimate(WindowSample.mean, WindowSample(read, np.zeros(0)), np.array([0.5, 0.5]))
    Estimate(value=5.0, low=4.5, high=5.5)
    """
    found = scale(sample)
    if found is None or not off.any():
        return found
    least, most = (scale(_shift_sample(sample, sign * off, sign, seen_off)) for sign in (-1, 1))
    assert least is not None
    assert most is not None
    if least.low is None or most.high is None:
        return replace(found, low=None, high=None)
    return replace(found, low=min(least.low, found.value), high=max(most.high, found.value))


def _shift_sample(
    sample: WindowSample, off: np.ndarray, sign: int, seen_off: np.ndarray | None
) -> WindowSample:
    """Return the sample with values shifted by `off`, batch by batch."""
    rows = sample.rows
    if rows is not None and seen_off is not None:
        rows = replace(rows, seen=replace(rows.seen, total=rows.seen.total + sign * seen_off))
    return replace(sample, read=replace(sample.read, total=sample.read.total + off), rows=rows)

"""Controllers of a join (Gedik, Wu, Yu and Liu, 2007): how much to compare, and which comparisons to make first.

**Allocation of the budget: a greedy fractional knapsack over windows and row types** (Algorithm 5).

An item is a row type against a basic window of the other side. Its volume is the number of steps it takes. Its value
per comparison is v = u_iz o_ij, divided by the steps of a comparison there. (The paper has
u_iz n_i o_ij / sum_k o_ik. Its u_iz is the utility of a comparison; here it is the utility of a comparison that yields
one pair, `utility_by_type`.) The heap holds, for each window and type, the best basic window that is not taken yet. The
best of all is taken until the budget is spent, the last one partly:

    O(|Z| + (n_1 + n_2) |Z| log |Z|)

Errata: the frequency of a type is that among rows of the *other* stream, which probe (C3). r_iz is a share of the
window, sum_j / n_i (C4), here in rows of basic windows, since the first and the last are partly filled and n_i b is
w_i + b, not w_i (C7). The loop ends inside the else (C12). With one type and utility 1 this also decides the direction
of the join, one basic window after the other, whereas Algorithm 4 takes one window whole before the other.

>>> import numpy as np
>>> volumes, one = np.array([[10.0], [10.0]]), np.ones(2)
>>> left = Side(volumes, np.array([3.0, 1.0]), np.array([1.0]), one, np.array([0, 1]))
>>> right = Side(volumes, np.array([2.0, 2.0]), np.array([1.0]), one, np.array([0, 1]))
>>> shares, worth = allocate_by_utility(25.0, (left, right))
>>> [share.tolist() for share in shares], worth
([[0.5], [0.75]], 60.0)

**Rate adaptation: the fraction r of the windows that is processed** (Algorithm 1), in steps or in measured time.

*Followed* (the paper): every T_r seconds beta = rows fetched / rows arrived, and

    r <- beta r  where beta < 1,      r <- min(1, delta_r r)  otherwise,      delta_r = 1.2.

*Counted* (ours, the default): all rows of a window are present before any is compared, so the cost of r = 1 is known,
and r = budget / cost of r = 1. Overspent steps are deducted from the next window.

Measured time drives the same controllers. A share of a core is the number of steps that were recently made in that
time, including the time to decide and to write pairs. Time used beyond the share is a debt that the next windows save,
so that the share is kept over the run.

>>> adapt_fraction(0.5, fetched=800, arrived=1000), adapt_fraction(0.9, fetched=1000, arrived=1000)
(0.4, 1.0)
>>> budget_fraction(budget_steps=50.0, possible=200.0), budget_fraction(budget_steps=50.0, possible=0.0)
(0.25, 1.0)

**Join direction: the window with the higher yield per comparison comes first, the other gets the rest** (Algorithm 4).

The number of comparisons stays that of one fraction r for both windows:

    r (v_1 + v_2) = r_1 v_1 + r_2 v_2,    v_i = comparisons that r_i = 1 takes (w_i, if the rates are equal)

So r_1 = min(1, r (v_1 + v_2) / v_1), and r_2 solves the constraint. Line 7 as printed divides by the wrong window
(erratum C1): with w_1 = 1, w_2 = 4, r = 0.5 it gives r_2 = 2.25, which exceeds 1.

>>> allocate_by_direction(0.5, 1.0, 4.0, o_left=2.0, o_right=1.0)
(1.0, 0.375)
>>> allocate_by_direction(0.5, 1.0, 4.0, o_left=1.0, o_right=2.0)
(0.0, 0.625)

**Time correlation: rank basic windows by their expected output per comparison** (Algorithm 2).

o_ij = matches in basic window j / comparisons there. All comparisons count: selected, explored and sampled ones,
because none of them was chosen for the values of its two rows. Learned counts fade by `memory` from window to window,
so that a moved peak is found again. A basic window without comparisons counts as average at least, so none is starved.

Difference from the paper: the paper learns from the sample alone and divides by the expected number of its comparisons,
gamma r b lambda_1 lambda_2 T_c. Here the divisor is the actual number, so o is unbiased whichever rows arrived (and
erratum C6 has no effect). Selected comparisons count fully and are soon known without noise: a basic window that looked
better than it is loses its rank. The estimate of a basic window is its own as far as it is known; beyond that it is
that of its neighbours, since the lag of matches does not depend on the boundaries of basic windows. No basic window has
more weight than one that is just known (`smoothing_weights`).

>>> import numpy as np
>>> o = match_rates(np.array([100.0, 900.0, 200.0]), np.array([1e4, 1e4, 1e4]))
>>> rank_basic_windows(o).tolist()
[1, 2, 0]

**Utility by row type: u_iz, the utility of a comparison of a row of type z that yields one pair on average** (5.3).

It has two factors: how often rows of the type match, and the utility of their pairs.

*How often*, relative to rows of all types: m_z = M_z / E_z. M_z is the number of pairs that rows of type z made. E_z is
the number expected of the same comparisons if all types matched alike, sum_j (comparisons with basic window j) o_ij. So
a type that was compared only with the best basic windows is not mistaken for a better type, and every comparison
counts, not only the sample's. A few rows make many of a window's pairs, so m_z is noisy. It is shrunk to the overall
mean as far as the differences between types can be noise (DerSimonian and Laird's random effects):

    v_z = phi m / E_z,   Q = sum (m_z - m)^2 / v_z,   tau^2 = max(0, (Q - (k - 1)) / (S_1 - S_2 / S_1)),
    m_z' = m + (m_z - m) tau^2 / (tau^2 + v_z),       S_p = sum v_z^-p,  phi = sum m^2 / sum m over rows

So types with equal or too few matches differ by their utilities alone.

*Utility of a pair*: the mean of max(V(z), V(y)) over the pairs of the type, plus a prior of `GUESSED` lumps of pairs
whose partner types y occur as often as in the window.

>>> import numpy as np
>>> alike = TypePairs(np.array([105.0, 95.0]), np.array([100.0, 100.0]), np.array([105.0, 95.0]), squares=800.0)
>>> relative_match_rates(alike).tolist()
[1.0, 1.0]
>>> different = TypePairs(np.array([1500.0, 500.0]), np.array([1e3, 1e3]), np.array([1500.0, 500.0]), squares=8000.0)
>>> [round(float(m), 2) for m in relative_match_rates(different)]
[1.5, 0.5]
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array


@dataclass(frozen=True)
class Side:
    """One window as it is probed: an input of the knapsack."""

    volumes: Array
    """Number of possible comparisons, by basic window and type of the probing row."""
    o: Array
    """Expected output per comparison, by basic window."""
    u: Array
    """Utility of a comparison that yields one pair on average, by type of the probing row."""
    costs: Array
    """Steps per comparison, by basic window, if the basic windows before it in the order are taken too."""
    order: Array
    """Basic windows by rank, the highest yield per step first."""


def allocate_by_utility(budget: float, sides: Sequence[Side]) -> tuple[list[Array], float]:
    """Return r_iz, by window and type, and the total yield.

    r_iz is the share of the window that a row of the type is compared with.
    """
    worth = [np.outer(side.o, side.u) for side in sides]
    taken = [np.zeros(side.volumes.shape[1]) for side in sides]

    def entry(i: int, z: int, at: int) -> tuple[float, int, int, int]:
        j = sides[i].order[at]
        return (-worth[i][j, z] / sides[i].costs[j], at, i, z)

    heap = [
        entry(i, z, 0)
        for i, side in enumerate(sides)
        for z in range(side.volumes.shape[1])
        if len(side.order)
    ]
    heapq.heapify(heap)
    left, yields = budget, 0.0
    while heap and left > 0:
        _, at, i, z = heapq.heappop(heap)  # ties: the better rank first, then the left side
        j = sides[i].order[at]
        used = min(float(sides[i].volumes[j, z]), left / sides[i].costs[j])
        taken[i][z] += used
        yields += used * worth[i][j, z]
        left -= used * sides[i].costs[j]
        if at + 1 < len(sides[i].order):
            heapq.heappush(heap, entry(i, z, at + 1))
    shares = [
        np.where(total > 0, np.minimum(1.0, mine / np.where(total > 0, total, 1.0)), 1.0)
        for mine, total in ((taken[i], side.volumes.sum(axis=0)) for i, side in enumerate(sides))
    ]
    return shares, float(yields)


PAYS = 1.05
"""Smallest ratio of the expected yields of selecting basic windows and of comparing whole rows. Selection bias makes a
selection look better than it is; and if no basic window is better than the others, whole rows find most pairs.
"""


def is_selection_worthwhile(yields: float, budget: float, sides: Sequence[Side], whole_steps: float) -> bool:
    """Return whether selecting yields at least `PAYS` times what the same steps yield on randomly chosen whole rows.

    >>> import numpy as np
    >>> side = Side(np.array([[10.0], [10.0]]), np.array([3.0, 1.0]), np.ones(1), np.full(2, 2.0), np.array([0, 1]))
    >>> [is_selection_worthwhile(30.0, 20.0, [side], whole_steps) for whole_steps in (40.0, 25.0)]
    [True, False]
    """
    whole = sum(float((one.volumes * np.outer(one.o, one.u)).sum()) for one in sides)
    return bool(yields * whole_steps >= PAYS * whole * budget)


BOOST = 1.2
LEAST_FRACTION = 1e-6
"""Smallest value of r. It is not 0, because pairs that are never compared cannot prove productive."""
MOST_OWED = 10.0
STEPS_PER_CORE_SECOND = 20_000_000.0
"""Default if there are no rows to measure it on."""


def adapt_fraction(r: float, fetched: float, arrived: float, boost: float = BOOST) -> float:
    """Return the next r, from the share of arrived rows that could be fetched.

    If no row arrived, everything was fetched. If no row was fetched, r becomes `LEAST_FRACTION`.
    """
    beta = fetched / arrived if arrived > 0 else 1.0
    return max(LEAST_FRACTION, beta * r) if beta < 1.0 else min(1.0, boost * r)


def budget_fraction(budget_steps: float, possible: float, boost: float = BOOST) -> float:
    """Return r: budget / cost of the full join. `boost` is ignored."""
    return 1.0 if possible <= budget_steps else max(LEAST_FRACTION, budget_steps / possible)


@njit(cache=True)
def fetched_rows(at: Array, steps: Array, steps_per_second: float, buffer_seconds: float, free_at: float):  # type: ignore[no-untyped-def]
    """Return which rows are fetched before they overflow the input buffer, and when the last of them is done.

    Rows (of both streams, in the order of time, in microseconds) wait for those before them. A row that would wait
    longer than `buffer_seconds` is not fetched: it stays in its window for others, but it does not probe. Such rows are
    counted.
    """
    taken = np.zeros(len(at), np.bool_)
    for k in range(len(at)):
        begins = max(free_at, float(at[k]))
        if begins - at[k] <= buffer_seconds * 1e6:
            taken[k] = True
            free_at = begins + steps[k] / steps_per_second * 1e6
    return taken, free_at


def overdrawn_seconds(debt: float, used: float, core_pct: float, seconds: float) -> float:
    """Return the core time used beyond its share, which the next window has to save.

    Unused time is not carried over, since time that has passed cannot be spent. The debt is limited to the share of
    `MOST_OWED` windows. Without this limit, a time in which deciding alone exceeds the share would stop all comparisons
    for long afterwards.

    >>> [overdrawn_seconds(debt, used, core_pct=20.0, seconds=5.0) for debt, used in ((0.0, 1.5), (0.5, 0.2))]
    [0.5, 0.0]
    """
    share = core_pct / 100.0 * seconds
    return min(MOST_OWED * share, max(0.0, debt + used - share))


def allocate_by_direction(
    r: float, left_volume: float, right_volume: float, o_left: float, o_right: float
) -> tuple[float, float]:
    """Return (r_1, r_2), the fractions of the left and the right window.

    `o_left`, `o_right`: the mean o over the basic windows of each.
    """
    budget = r * (left_volume + right_volume)
    if o_left >= o_right:
        first = _share(budget, left_volume)
        return first, _share(budget - first * left_volume, right_volume)
    second = _share(budget, right_volume)
    return _share(budget - second * right_volume, left_volume), second


def _share(budget: float, volume: float) -> float:
    return min(1.0, max(0.0, budget) / volume) if volume > 0 else 1.0


def fade_counts(learned: Array, compared: Array, memory: float) -> Array:
    """Return the learned counts after a window: the earlier ones, faded, plus those of the window.

    >>> fade_counts(np.array([4.0, 0.0]), np.array([1.0, 6.0]), memory=0.5).tolist()
    [3.0, 6.0]
    """
    if learned.shape != compared.shape:  # the contract's windows or types have changed
        return compared.astype(np.float64)
    return learned * memory + compared


def smooth_curve(values: Array, passes: int = 1) -> Array:
    """Return the values smoothed `passes` times with their neighbours (weights 1-2-1)."""
    found = values.astype(np.float64)
    for _ in range(passes if len(values) > 2 else 0):
        padded = np.concatenate([found[:1], found, found[-1:]])
        found = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
    return found


MOST_PASSES = 24
ENOUGH_MATCHES = 60.0
"""Matches in a basic window of average output that distinguish it from its neighbours."""


def smoothing_passes(matches: Array) -> int:
    """Return the number of smoothing passes: the fewer matches a basic window has on average, the more passes.

    t passes reach about sqrt(t / 2) basic windows to either side.

    >>> smoothing_passes(np.full(20, 100.0)), smoothing_passes(np.full(20, 10.0)), smoothing_passes(np.zeros(20))
    (1, 18, 24)
    """
    mean = float(np.mean(matches)) if len(matches) else 0.0
    if mean <= ENOUGH_MATCHES / np.sqrt(2 * MOST_PASSES):
        return MOST_PASSES
    return max(1, min(MOST_PASSES, round((ENOUGH_MATCHES / mean) ** 2 / 2)))


def smoothing_weights(matches: Array, comparisons: Array) -> tuple[Array, Array, int]:
    """Return how far each basic window is known, its weight in comparisons, and the number of smoothing passes.

    A basic window is known with the comparisons that yield `ENOUGH_MATCHES` on average. Its weight is limited to these.

    >>> part, heard, passes = smoothing_weights(np.array([90.0, 30.0]), np.array([10_000.0, 2_000.0]))
    >>> part.round(3).tolist(), heard.tolist(), passes
    ([1.0, 0.333], [6000.0, 2000.0], 1)
    """
    found, own = float(np.sum(matches)), matches / np.maximum(comparisons, 1e-300)
    enough = ENOUGH_MATCHES * float(np.sum(comparisons)) / found if found > 0 else np.inf
    heard = np.minimum(comparisons, enough)
    return np.minimum(1.0, comparisons / enough), heard, smoothing_passes(own * heard)


def match_rates(matches: Array, comparisons: Array, smooth: bool = True) -> Array:
    """Return o_ij, the matches per comparison by basic window; 1 if nothing is known.

    A basic window without comparisons gets the yield of the nearest one with comparisons, and at least the mean. So
    lags that become reachable while windows fill are tried if the curve rises towards them.
    """
    total = float(np.sum(comparisons))
    if total <= 0:
        return np.ones(len(matches))
    part, heard, passes = smoothing_weights(matches, comparisons)
    if not smooth:
        part, heard, passes = np.ones(len(matches)), comparisons, 0
    own = matches / np.maximum(comparisons, 1e-300)
    near, made = smooth_curve(own * heard, passes), smooth_curve(heard, passes)
    seen = np.flatnonzero(made > 0)
    found = part[seen] * own[seen] + (1.0 - part[seen]) * near[seen] / made[seen]
    every = np.arange(len(made))
    places = (
        np.clip(np.searchsorted(seen, every), 1, len(seen) - 1) if len(seen) > 1 else np.zeros_like(every)
    )
    nearer = places - (len(seen) > 1) * (every - seen[places - 1] <= seen[places] - every)
    return np.where(made > 0, found[nearer], np.maximum(found[nearer], float(np.sum(matches)) / total))


def rank_basic_windows(o: Array) -> Array:
    """Return s_i: basic windows by descending o; the newer one first if two are equal."""
    return np.argsort(-o, kind="stable").astype(np.int64)


GUESSED = 10.0
"""Weight of the prior on partner types, in lumps of pairs: partners occur as often as their types in the window."""


@dataclass(frozen=True)
class TypePairs:
    """By type of the probing row: pairs made, pairs expected if types matched alike, utility.

    `squares`: the sum of the squared numbers of pairs per row.
    """

    pairs: Array = field(default_factory=lambda: np.zeros(0))
    expected: Array = field(default_factory=lambda: np.zeros(0))
    worth: Array = field(default_factory=lambda: np.zeros(0))
    squares: float = 0.0

    def merge_later(self, later: TypePairs, memory: float) -> TypePairs:
        """Return the counts after a later window: these, faded by `memory`, plus those of `later`."""
        if len(self.pairs) != len(later.pairs):  # the contract's types have changed
            return later
        return TypePairs(
            self.pairs * memory + later.pairs,
            self.expected * memory + later.expected,
            self.worth * memory + later.worth,
            self.squares * memory + later.squares,
        )

    @property
    def phi(self) -> float:
        """Return sum m^2 / sum m, the number of pairs that come together."""
        total = float(self.pairs.sum())
        return max(1.0, self.squares / total) if total > 0 else 1.0


def relative_match_rates(known: TypePairs) -> Array:
    """Return m_z' / m: how often rows of each type match, relative to all rows."""
    even = np.ones(len(known.pairs))
    seen = known.expected > 0
    total = float(known.expected.sum())
    if seen.sum() < 2 or known.pairs.sum() <= 0:
        return even
    mean = float(known.pairs.sum()) / total
    ratio = known.pairs[seen] / known.expected[seen] / mean
    noise = known.phi / (mean * known.expected[seen])
    between = between_group_variance(ratio, noise)
    even[seen] += (ratio - 1.0) * between / (between + noise)
    return np.maximum(even, 0.0)


def between_group_variance(ratio: Array, noise: Array) -> float:
    """Return tau^2: the variance of ratios of mean 1 beyond their noise (its variances), by DerSimonian and Laird.

    >>> noise = np.array([0.01, 0.01])
    >>> [between_group_variance(np.array(ratio), noise) for ratio in ([1.5, 0.5], [1.05, 0.95])]
    [0.49, 0.0]
    """
    sums = [float((noise**-p).sum()) for p in (1, 2)]
    heterogeneity = float(((ratio - 1.0) ** 2 / noise).sum()) - (len(ratio) - 1)
    return max(0.0, heterogeneity / max(1e-12, sums[0] - sums[1] / sums[0]))


def utility_by_type(known: TypePairs, often: Array, worth: Sequence[float]) -> Array:
    """Return u_iz, the utility of a comparison, by type of the probing row.

    It assumes that a comparison of a row of any type yields one pair on average. `often`: the number of rows of each
    type in the window.
    """
    values = np.asarray(worth, np.float64)
    alike: Array = np.maximum(values[:, None], values[None, :]) @ (often / max(1.0, float(often.sum())))
    if len(known.pairs) != len(values):
        return alike
    guessed = GUESSED * known.phi
    return relative_match_rates(known) * (known.worth + guessed * alike) / (known.pairs + guessed)

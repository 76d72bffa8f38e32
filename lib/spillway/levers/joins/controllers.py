"""Which rows first: fractions by window and type of the probing row, a fractional knapsack (Algorithm 5).

An item is a type of row against a basic window of the other side: its volume is the steps that takes, its worth a
comparison v = u_iz o_ij (the paper's u_iz n_i o_ij / sum_k o_ik, with u_iz the utility of a comparison that yields a
pair, where the paper's is that of a comparison: `type_worth`), by what a comparison costs there. The heap holds, for
each window and type, the best basic window not yet taken; the best of all is taken until the budget is spent, the last
one partly:

    O(|Z| + (n_1 + n_2) |Z| log |Z|)

Errata: the frequency of a type is that among rows of the *other* stream, which probe (C3); r_iz is a share of the
window, sum_j / n_i (C4), here by the rows that basic windows hold, since the first and last are partly filled and n_i b
is w_i + b, not w_i (C7); the loop ends inside the else (C12). With one type and utility 1 for all it settles the
direction of the join too, basic window by basic window, where Algorithm 4 takes one window whole before the other.

>>> import numpy as np
>>> volumes, one = np.array([[10.0], [10.0]]), np.ones(2)
>>> left = Side(volumes, np.array([3.0, 1.0]), np.array([1.0]), one, np.array([0, 1]))
>>> right = Side(volumes, np.array([2.0, 2.0]), np.array([1.0]), one, np.array([0, 1]))
>>> shares, worth = by_worth(25.0, (left, right))
>>> [share.tolist() for share in shares], worth
([[0.5], [0.75]], 60.0)

How much may be processed: the fraction r of the windows (Algorithm 1), driven by steps or by measured time.

*Followed*, as the paper has it: every T_r seconds beta = rows fetched / rows arrived, and

    r <- beta r  where beta < 1,      r <- min(1, delta_r r)  otherwise,      delta_r = 1.2.

*Counted* (ours, the default): here the rows of a window are all there before any is compared, so what r = 1 would take
is known, and r = what may be spent / what r = 1 would take; what was spent too much is taken off the next window.

Measured time drives the same controllers: a share of a core is as many steps as lately were made in so much time, of
which deciding and writing pairs down are part; what took longer than that all the same is owed, and saved in the next
windows, so that over the run the share is kept.

>>> followed(0.5, fetched=800, arrived=1000), followed(0.9, fetched=1000, arrived=1000)
(0.4, 1.0)
>>> counted(may_spend=50.0, possible=200.0), counted(may_spend=50.0, possible=0.0)
(0.25, 1.0)

Which window first: the one a comparison in which yields more gets what there is, the other the rest (Algorithm 4).

The comparisons stay as many as one fraction r for both would make:

    r (v_1 + v_2) = r_1 v_1 + r_2 v_2,    v_i = comparisons that r_i = 1 takes (w_i, at rates that are the same)

so r_1 = min(1, r (v_1 + v_2) / v_1) and r_2 solves the constraint. Line 7 as printed divides by the wrong window
(erratum C1): with w_1 = 1, w_2 = 4, r = 0.5 it gives r_2 = 2.25 - and 1.5 of it are not there.

>>> by_direction(0.5, 1.0, 4.0, o_left=2.0, o_right=1.0)
(1.0, 0.375)
>>> by_direction(0.5, 1.0, 4.0, o_left=1.0, o_right=2.0)
(0.0, 0.625)

What is worth processing first: basic windows by their expected output per comparison (Algorithm 2).

o_ij = matches in basic window j / comparisons there, of all comparisons that were made: selected, looked at and drawn
alike, since none of them was chosen for what the two rows hold. What was learned fades by `memory` from window to
window, so that a peak that moves is found again, and basic windows without a comparison count as average at least: none
is starved for want of a look.

Where we differ: the paper learns of the sample alone and divides by the comparisons it expects of it, gamma r b
lambda_1 lambda_2 T_c; we by those there were, so that o is unbiased whichever rows came (and erratum C6 cannot bite).
What is selected is counted whole, and soon known without noise: a basic window that looked better than it is gives way
to the next. A basic window speaks for itself as far as it is known, and its neighbours for it beyond that (a lag does
not care where a basic window ends), none of them louder than one that is just known.

>>> import numpy as np
>>> o = expected(np.array([100.0, 900.0, 200.0]), np.array([1e4, 1e4, 1e4]))
>>> ranks(o).tolist()
[1, 2, 0]

u_iz: what a comparison of a row of type z yields, in utility, from as few rows as there are (5.3).

Two things make it: how often rows of the type match, and what a pair of theirs is worth.

*How often*, against rows of all types: m_z = M_z / E_z, with M_z the pairs that rows of type z made and E_z what their
very comparisons were expected to make if types matched alike, sum_j (comparisons with basic window j) o_ij. So a type
that was compared with the best basic windows alone is not taken for a better one, and every comparison tells of it,
not the sample's alone. Few rows make many of a window's pairs, so m_z is noisy, and it is drawn to the mean of all as
far as the types' differences can be noise (DerSimonian and Laird's random effects):

    v_z = phi m / E_z,   Q = sum (m_z - m)^2 / v_z,   tau^2 = max(0, (Q - (k - 1)) / (S_1 - S_2 / S_1)),
    m_z' = m + (m_z - m) tau^2 / (tau^2 + v_z),       S_p = sum v_z^-p,  phi = sum m^2 / sum m over rows

Types that match alike, or of which too little is known, are thus told apart by their utilities alone.

*What a pair is worth*: the mean of max(V(z), V(y)) over its pairs, with `GUESSED` lumps of pairs more in which types y
come as they do in the window.

>>> import numpy as np
>>> alike = TypePairs(np.array([105.0, 95.0]), np.array([100.0, 100.0]), np.array([105.0, 95.0]), squares=800.0)
>>> types_match(alike).tolist()
[1.0, 1.0]
>>> apart = TypePairs(np.array([1500.0, 500.0]), np.array([1e3, 1e3]), np.array([1500.0, 500.0]), squares=8000.0)
>>> [round(float(m), 2) for m in types_match(apart)]
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
    """One window as it is probed."""

    volumes: Array
    """Comparisons there are to make, by basic window and type of the probing row."""
    o: Array
    """Expected output a comparison, by basic window."""
    u: Array
    """Utility of a comparison that yields one pair on average, by type of the probing row."""
    costs: Array
    """Steps a comparison, by basic window, where those that come before it are taken."""
    order: Array
    """Basic windows by rank: those that yield most a step first."""


def by_worth(budget: float, sides: Sequence[Side]) -> tuple[list[Array], float]:
    """r_iz, by window and type: the share of the window that a row of the type is compared with; and what it yields."""
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
        _, at, i, z = heapq.heappop(heap)  # of two alike, the newer basic window of either side
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
"""What is expected of picking out over whole rows, at least: what was picked because it looked best is less good than
it looked, and where nothing is better than anything else whole rows find most."""


def picking_pays(yields: float, budget: float, sides: Sequence[Side], whole_steps: float) -> bool:
    """Whether what picking out yields is `PAYS` times what the same steps do on whole rows, as many as chance picks.

    >>> import numpy as np
    >>> side = Side(np.array([[10.0], [10.0]]), np.array([3.0, 1.0]), np.ones(1), np.full(2, 2.0), np.array([0, 1]))
    >>> picking_pays(30.0, 20.0, [side], whole_steps=40.0), picking_pays(30.0, 20.0, [side], whole_steps=25.0)
    (True, False)
    """
    whole = sum(float((one.volumes * np.outer(one.o, one.u)).sum()) for one in sides)
    return bool(yields * whole_steps >= PAYS * whole * budget)


BOOST = 1.2
LEAST_FRACTION = 1e-6
"""r never reaches 0: what is not looked at can never be found to be worth it."""
MOST_OWED = 10.0
STEPS_PER_CORE_SECOND = 20_000_000.0
"""Where there is nothing to measure it on."""


def followed(r: float, fetched: float, arrived: float, boost: float = BOOST) -> float:
    """The next r, from how many of the rows that arrived could be fetched.

    Where nothing arrived, everything was fetched. A run in which nothing at all was fetched leaves `LEAST_FRACTION`.
    """
    beta = fetched / arrived if arrived > 0 else 1.0
    return max(LEAST_FRACTION, beta * r) if beta < 1.0 else min(1.0, boost * r)


def counted(may_spend: float, possible: float, boost: float = BOOST) -> float:
    """r from what may be spent and what everything would take; `boost` has no part in it."""
    return 1.0 if possible <= may_spend else max(LEAST_FRACTION, may_spend / possible)


@njit(cache=True)
def fetched_rows(at: Array, steps: Array, steps_per_second: float, buffer_seconds: float, free_at: float):  # type: ignore[no-untyped-def]
    """Which rows are fetched before they fall out of the input buffer, and when the last of them is through.

    Rows (of both streams, in the order of time, in microseconds) wait for those before them; one that would wait longer
    than the buffer holds is not fetched: it stays in its window for others, but probes nothing. It is counted.
    """
    taken = np.zeros(len(at), np.bool_)
    for k in range(len(at)):
        begins = max(free_at, float(at[k]))
        if begins - at[k] <= buffer_seconds * 1e6:
            taken[k] = True
            free_at = begins + steps[k] / steps_per_second * 1e6
    return taken, free_at


def owed_seconds(debt: float, used: float, core_pct: float, seconds: float) -> float:
    """Time of a core that was used beyond a share of it, to be saved in the next window.

    What was saved is not kept: time that has passed cannot be spent. No more is owed than `MOST_OWED` windows have:
    where deciding alone takes more than a window has, nothing would be compared again long after that has passed.

    >>> owed_seconds(0.0, used=1.5, core_pct=20.0, seconds=5.0), owed_seconds(0.5, used=0.2, core_pct=20.0, seconds=5.0)
    (0.5, 0.0)
    """
    share = core_pct / 100.0 * seconds
    return min(MOST_OWED * share, max(0.0, debt + used - share))


def by_direction(
    r: float, left_volume: float, right_volume: float, o_left: float, o_right: float
) -> tuple[float, float]:
    """(r_1, r_2): fractions of the left and of the right window; o is the mean over a window's basic windows."""
    budget = r * (left_volume + right_volume)
    if o_left >= o_right:
        first = _share(budget, left_volume)
        return first, _share(budget - first * left_volume, right_volume)
    second = _share(budget, right_volume)
    return _share(budget - second * right_volume, left_volume), second


def _share(budget: float, volume: float) -> float:
    return min(1.0, max(0.0, budget) / volume) if volume > 0 else 1.0


def faded(learned: Array, compared: Array, memory: float) -> Array:
    """What is known after a window: what was known, faded, and what was compared in it.

    >>> faded(np.array([4.0, 0.0]), np.array([1.0, 6.0]), memory=0.5).tolist()
    [3.0, 6.0]
    """
    if learned.shape != compared.shape:  # the contract's windows, or its types, are others now
        return compared.astype(np.float64)
    return learned * memory + compared


def smoothed(values: Array, passes: int = 1) -> Array:
    """Each with its neighbours, 1-2-1, so many times."""
    found = values.astype(np.float64)
    for _ in range(passes if len(values) > 2 else 0):
        padded = np.concatenate([found[:1], found, found[-1:]])
        found = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
    return found


MOST_PASSES = 24
ENOUGH_MATCHES = 60.0
"""In a basic window of average output, to tell it from its neighbours."""


def passes_for(matches: Array) -> int:
    """How often to smooth: the fewer matches a basic window has on average, the wider it has to look.

    t passes look sqrt(t / 2) basic windows far, to either side.

    >>> passes_for(np.full(20, 100.0)), passes_for(np.full(20, 10.0)), passes_for(np.zeros(20))
    (1, 18, 24)
    """
    mean = float(np.mean(matches)) if len(matches) else 0.0
    if mean <= ENOUGH_MATCHES / np.sqrt(2 * MOST_PASSES):
        return MOST_PASSES
    return max(1, min(MOST_PASSES, round((ENOUGH_MATCHES / mean) ** 2 / 2)))


def how_known(matches: Array, comparisons: Array) -> tuple[Array, Array, int]:
    """How far each basic window speaks for itself, by how many comparisons it is heard, and how wide to smooth.

    It is known with the comparisons that `ENOUGH_MATCHES` take on average, and heard with no more than these.

    >>> part, heard, passes = how_known(np.array([90.0, 30.0]), np.array([10_000.0, 2_000.0]))
    >>> part.round(3).tolist(), heard.tolist(), passes
    ([1.0, 0.333], [6000.0, 2000.0], 1)
    """
    found, own = float(np.sum(matches)), matches / np.maximum(comparisons, 1e-300)
    enough = ENOUGH_MATCHES * float(np.sum(comparisons)) / found if found > 0 else np.inf
    heard = np.minimum(comparisons, enough)
    return np.minimum(1.0, comparisons / enough), heard, passes_for(own * heard)


def expected(matches: Array, comparisons: Array, smooth: bool = True) -> Array:
    """o_ij: matches a comparison, by basic window; 1 where nothing is known.

    Where nothing was compared, what the nearest one yields that was, and at least the mean: lags that come within reach
    while windows fill are tried where the curve rises towards them.
    """
    total = float(np.sum(comparisons))
    if total <= 0:
        return np.ones(len(matches))
    part, heard, passes = how_known(matches, comparisons)
    if not smooth:
        part, heard, passes = np.ones(len(matches)), comparisons, 0
    own = matches / np.maximum(comparisons, 1e-300)
    near, made = smoothed(own * heard, passes), smoothed(heard, passes)
    seen = np.flatnonzero(made > 0)
    found = part[seen] * own[seen] + (1.0 - part[seen]) * near[seen] / made[seen]
    every = np.arange(len(made))
    places = (
        np.clip(np.searchsorted(seen, every), 1, len(seen) - 1) if len(seen) > 1 else np.zeros_like(every)
    )
    nearer = places - (len(seen) > 1) * (every - seen[places - 1] <= seen[places] - every)
    return np.where(made > 0, found[nearer], np.maximum(found[nearer], float(np.sum(matches)) / total))


def ranks(o: Array) -> Array:
    """s_i: basic windows, the one with the largest o first; of two alike the newer one."""
    return np.argsort(-o, kind="stable").astype(np.int64)


GUESSED = 10.0
"""Lumps of pairs whose partners are taken as types come in the window."""


@dataclass(frozen=True)
class TypePairs:
    """By type of the probing row: pairs made, pairs expected if types matched alike, utility; squares of m by row."""

    pairs: Array = field(default_factory=lambda: np.zeros(0))
    expected: Array = field(default_factory=lambda: np.zeros(0))
    worth: Array = field(default_factory=lambda: np.zeros(0))
    squares: float = 0.0

    def then(self, later: TypePairs, memory: float) -> TypePairs:
        """What is known a window later."""
        if len(self.pairs) != len(later.pairs):  # the contract's types are others now
            return later
        return TypePairs(
            self.pairs * memory + later.pairs,
            self.expected * memory + later.expected,
            self.worth * memory + later.worth,
            self.squares * memory + later.squares,
        )

    @property
    def phi(self) -> float:
        """Pairs that come at a time."""
        total = float(self.pairs.sum())
        return max(1.0, self.squares / total) if total > 0 else 1.0


def types_match(known: TypePairs) -> Array:
    """m_z' / m: how often rows of each type match, against all."""
    even = np.ones(len(known.pairs))
    seen = known.expected > 0
    total = float(known.expected.sum())
    if seen.sum() < 2 or known.pairs.sum() <= 0:
        return even
    mean = float(known.pairs.sum()) / total
    ratio = known.pairs[seen] / known.expected[seen] / mean
    noise = known.phi / (mean * known.expected[seen])
    between = apart(ratio, noise)
    even[seen] += (ratio - 1.0) * between / (between + noise)
    return np.maximum(even, 0.0)


def apart(ratio: Array, noise: Array) -> float:
    """tau^2: how much things of mean 1 differ beyond their noise (its variances), by DerSimonian and Laird.

    >>> apart(np.array([1.5, 0.5]), np.array([0.01, 0.01])), apart(np.array([1.05, 0.95]), np.array([0.01, 0.01]))
    (0.49, 0.0)
    """
    sums = [float((noise**-p).sum()) for p in (1, 2)]
    heterogeneity = float(((ratio - 1.0) ** 2 / noise).sum()) - (len(ratio) - 1)
    return max(0.0, heterogeneity / max(1e-12, sums[0] - sums[1] / sums[0]))


def worth_by_type(known: TypePairs, often: Array, worth: Sequence[float]) -> Array:
    """Utility of a comparison by type of the probing row, where one of any type yields one pair on average.

    `often`: how often each type is in the window.
    """
    values = np.asarray(worth, np.float64)
    alike: Array = np.maximum(values[:, None], values[None, :]) @ (often / max(1.0, float(often.sum())))
    if len(known.pairs) != len(values):
        return alike
    guessed = GUESSED * known.phi
    return types_match(known) * (known.worth + guessed * alike) / (known.pairs + guessed)

"""What is worth processing first: basic windows by their expected output per comparison (Algorithm 2).

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
"""

from __future__ import annotations

import numpy as np

from spillway.levers.joins.operands import Array


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

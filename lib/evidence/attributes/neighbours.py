"""Recovery by the Euclidean nearest neighbour (3.2.4.1): the thesis's baseline that stores nothing.

The shed value of attribute A in tuple t is taken from the tuple of a window that still has A whose other
attributes are nearest to t's, d(x, y) = sqrt(sum (x_i - y_i)^2) (equations 3.5 and 3.6). That window is the adjacent
one (`recover_adjacent`): of stocks, yesterday's prices, not those of the first year.

Guarantee: none on the error, which is why it is a baseline. The answer is the same however t is batched; of
equally near tuples the first wins.

Where we differ: `scale="range"` divides every attribute by its range over the reference window first, else the
attribute with the largest numbers decides alone; `scale="none"` is the method of the thesis. Where one of two values is
missing, that attribute does not count, and the distance is the mean over those that do, times their number.

>>> import numpy as np
>>> reference = np.array([[50.0, 3.0], [80.0, 9.0]])
>>> recover_nearest(np.array([[78.0, 8.0]]), reference, np.array([29.9, 30.4])).tolist()
[30.4]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Values = npt.NDArray[np.float64]

SCALES = ("none", "range")


def recover_nearest(shed: Values, reference: Values, recovered_from: Values, scale: str = "none") -> Values:
    """Return the attribute's value at the nearest reference tuple, for every tuple that lost it.

    `shed` and `reference` hold the other attributes, one row a tuple; `recovered_from` the attribute itself
    over the reference rows. A reference row without it is no candidate; without any candidate the answer is
    NaN.
    """
    if scale not in SCALES:
        raise ValueError(f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}; write scale: none")
    shed = np.ascontiguousarray(shed, dtype=np.float64)
    reference = np.ascontiguousarray(reference, dtype=np.float64)
    values = np.ascontiguousarray(recovered_from, dtype=np.float64)
    if shed.ndim != 2 or reference.ndim != 2 or shed.shape[1] != reference.shape[1]:
        raise ValueError(
            "`shed` must have the same attributes as the reference, "
            f"got {shed.shape} against {reference.shape}; leave the shed attribute out of both"
        )
    if reference.shape[0] != values.size:
        raise ValueError(
            "`recovered_from` must have a value a reference tuple, "
            f"got {values.size} for {reference.shape[0]}; take both from the same window"
        )
    scales = np.ones(shed.shape[1])
    if scale == "range":
        scales = _ranges(reference)
    chosen = _nearest(shed / scales, reference / scales, np.isnan(values))
    return np.where(chosen >= 0, values[chosen] if values.size else np.nan, np.nan)


def recover_adjacent(others: Values, values: Values, window: int, scale: str = "none") -> Values:
    """Return `values` of every tuple as found in the preceding window of `window` tuples; NaN in the first window.

    >>> others = np.array([[1.0], [2.0], [2.1], [0.9]])
    >>> recover_adjacent(others, np.array([10.0, 20.0, 21.0, 11.0]), window=2).tolist()
    [nan, nan, 20.0, 10.0]
    """
    found = np.full(len(values), np.nan)
    for start in range(window, len(values), window):
        before, own = slice(start - window, start), slice(start, start + window)
        found[own] = recover_nearest(others[own], others[before], values[before], scale)
    return found


def _ranges(reference: Values) -> Values:
    known = np.isfinite(reference)
    highest = np.max(np.where(known, reference, -np.inf), axis=0, initial=-np.inf)
    lowest = np.min(np.where(known, reference, np.inf), axis=0, initial=np.inf)
    # highest - lowest is -inf where nothing is known
    spread = highest - lowest
    return np.where(spread > 0, spread, 1.0)


@njit(cache=True)
def _nearest(shed: Values, reference: Values, missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    chosen = np.full(shed.shape[0], -1, dtype=np.int64)
    width = shed.shape[1]
    for t in range(shed.shape[0]):
        best = np.inf
        for r in range(reference.shape[0]):
            if missing[r]:
                continue
            squares = 0.0
            counted = 0
            for a in range(width):
                apart = shed[t, a] - reference[r, a]
                if np.isfinite(apart):
                    squares += apart * apart
                    counted += 1
            if counted == width:
                distance = squares
            elif counted > 0:
                distance = squares / counted * width
            else:
                distance = np.inf
            if distance < best or chosen[t] < 0:
                best = distance
                chosen[t] = r
    return chosen

"""Which window first: the one a comparison in which yields more gets what there is, the other the rest (Algorithm 4).

The comparisons stay as many as one fraction r for both would make:

    r (v_1 + v_2) = r_1 v_1 + r_2 v_2,    v_i = comparisons that r_i = 1 takes (w_i, at rates that are the same)

so r_1 = min(1, r (v_1 + v_2) / v_1) and r_2 solves the constraint. Line 7 as printed divides by the wrong window
(erratum C1): with w_1 = 1, w_2 = 4, r = 0.5 it gives r_2 = 2.25 - and 1.5 of it are not there.

>>> by_direction(0.5, 1.0, 4.0, o_left=2.0, o_right=1.0)
(1.0, 0.375)
>>> by_direction(0.5, 1.0, 4.0, o_left=1.0, o_right=2.0)
(0.0, 0.625)
"""

from __future__ import annotations


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

"""Whether matches lie elsewhere now: a test of what selecting found against what was believed it would.

What is learned fades slowly, which is right as long as the streams keep their ways, and wrong for many windows after
they change them. Selecting says so at once: it compares thousands of rows a window with the basic windows that were the
best, and where the peak has moved they yield what any other would. So with F pairs found where P were expected of those
very comparisons, what was learned is dropped, and looking begins anew (`exploring`), where

    F < (1 - DROP) P    and    P - F > DEVIATIONS sqrt(phi P + P^2 / lumps),    phi = sum m^2 / sum m

phi P is the variance of F, as lumpy as a row's pairs are, and P^2 / lumps that of P, which rests on few lumps: what is
chosen because it looked best is less good than it looked, and must not be taken for a change. They are those behind
the very basic windows that P was expected of,

    P^2 / lumps = sum P_j^2 / K_j,    K_j = lumps known, by the comparisons that were made there (`exploring`)

so that a guess from what a neighbour yields, of a basic window in which hardly anything was compared, speaks as softly
as it is known. A peak that only grew elsewhere is found by looking, as what was known of it fades.

>>> moved(found=400.0, expected=1000.0, phi=3.0, lumps=200.0), moved(found=900.0, expected=1000.0, phi=3.0, lumps=200.0)
(True, False)
>>> moved(found=400.0, expected=1000.0, phi=3.0, lumps=10.0)
False
"""

from __future__ import annotations

import math

from spillway.levers.joins.operands import Array

DROP = 0.25
DEVIATIONS = 3.0


def moved(found: float, expected: float, phi: float, lumps: float) -> bool:
    """Whether so few pairs, where so many were expected, say that matches have moved."""
    if expected <= 0 or lumps <= 0 or found >= (1.0 - DROP) * expected:
        return False
    spread = math.sqrt(max(1.0, phi) * expected + expected * expected / lumps)
    return expected - found > DEVIATIONS * spread


def lumps_behind(expected: Array, made: Array, lumps: float) -> float:
    """How many of the lumps that are known stand behind what is expected, by basic window; `made`: comparisons there.

    >>> import numpy as np
    >>> made = np.array([9000.0, 1000.0])
    >>> [round(lumps_behind(np.array(one), made, 100.0)) for one in ([5, 0], [5, 5], [0, 5])]
    [90, 36, 10]
    """
    some = expected > 0
    known = lumps * made[some] / max(1e-300, float(made.sum()))
    if not some.any() or (known <= 0).any():
        return 0.0
    return float(expected[some].sum() ** 2 / (expected[some] ** 2 / known).sum())

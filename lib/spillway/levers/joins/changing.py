"""Whether matches lie elsewhere now: a test of what selecting found against what was believed it would.

What is learned fades slowly, which is right as long as the streams keep their ways, and wrong for many windows after
they change them. Selecting says so at once: it compares thousands of rows a window with the basic windows that were the
best, and where the peak has moved they yield what any other would. So with F pairs found where P were expected of those
very comparisons, what was learned is dropped, and looking begins anew (`exploring`), where

    F < (1 - DROP) P    and    P - F > DEVIATIONS sqrt(phi P + P^2 / lumps),    phi = sum m^2 / sum m

phi P is the variance of F, as lumpy as a row's pairs are, and P^2 / lumps that of P, which rests on few lumps: what is
chosen because it looked best is less good than it looked, and must not be taken for a change. A peak that only grew
elsewhere is found by looking, as what was known of it fades.

>>> moved(found=400.0, expected=1000.0, phi=3.0, lumps=200.0), moved(found=900.0, expected=1000.0, phi=3.0, lumps=200.0)
(True, False)
>>> moved(found=400.0, expected=1000.0, phi=3.0, lumps=10.0)
False
"""

from __future__ import annotations

import math

DROP = 0.25
DEVIATIONS = 3.0


def moved(found: float, expected: float, phi: float, lumps: float) -> bool:
    """Whether so few pairs, where so many were expected, say that matches have moved."""
    if expected <= 0 or lumps <= 0 or found >= (1.0 - DROP) * expected:
        return False
    spread = math.sqrt(max(1.0, phi) * expected + expected * expected / lumps)
    return expected - found > DEVIATIONS * spread

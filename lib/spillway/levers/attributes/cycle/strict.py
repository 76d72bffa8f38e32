"""Replicated attributes, the strict form of the cycle identifier (section 3.2.1, Algorithm 1).

Attribute A is *replicated* with period L when T[i+L][A] = T[i][A] for every i of the training set. The
text compares with the first tuple and gives up at the first tuple that equals it, which loses a,b,a,c
(errata A1, A2, A5); here the smallest L of all is found in one pass: n minus the longest proper border of
the sequence (Knuth, Morris and Pratt's failure function). A period is evidence only when the training set
holds two full cycles, and a constant attribute identifies nothing (A7).

>>> import numpy as np
>>> smallest_period(np.array([0, 1, 0, 2, 0, 1, 0, 2]))
4
>>> replicated_period(np.array([0, 1, 0, 2, 0, 1])) is None   # one and a half cycles prove nothing
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

import numpy as np
from numba import njit

from spillway.levers.attributes.cycle.value_codes import Codes, joint_codes

# Beyond this the joint cycle is not laid out: no window that long is useful.
LONGEST_CYCLE_TUPLES = 1_000_000


@njit(cache=True)
def _longest_border(codes: Codes) -> int:
    n = len(codes)
    border = np.zeros(n, dtype=np.int64)
    k = 0
    for i in range(1, n):
        while k > 0 and codes[i] != codes[k]:
            k = border[k - 1]
        if codes[i] == codes[k]:
            k += 1
        border[i] = k
    return int(border[n - 1]) if n else 0


def smallest_period(codes: Codes) -> int:
    """The smallest L >= 1 with codes[i + L] == codes[i] for all i (L = n when nothing repeats)."""
    return len(codes) - int(_longest_border(np.ascontiguousarray(codes, dtype=np.int64)))


def replicated_period(codes: Codes) -> int | None:
    """The period of a replicated attribute, or None: constant, or less than two full cycles seen."""
    if len(codes) < 4:
        return None
    period = smallest_period(codes)
    return period if period >= 2 and 2 * period <= len(codes) else None


def cycle_codes(codes: Mapping[str, Codes], periods: Mapping[str, int], attributes: Sequence[str]) -> Codes:
    """The joint codes of one whole cycle: lcm of the periods long, also when the data are shorter.

    The text multiplies the periods (step e); periods 4 and 6 repeat together after 12 tuples, not 24 (A6).
    """
    length = lcm(*(periods[attribute] for attribute in attributes))
    rows = np.arange(min(length, LONGEST_CYCLE_TUPLES))
    return joint_codes([codes[attribute][rows % periods[attribute]] for attribute in attributes])


def is_unique_in_cycle(
    codes: Mapping[str, Codes], periods: Mapping[str, int], attributes: Sequence[str]
) -> bool:
    """Whether these attributes tell every tuple of one cycle from every other (A4)."""
    joint = cycle_codes(codes, periods, attributes)
    return bool((joint >= 0).all()) and int(joint.max()) + 1 == lcm(*(periods[a] for a in attributes))

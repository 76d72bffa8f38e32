"""Test one attribute or combination for a cycle, in the robust and in the strict form.

*Robust form.* Equality at a fixed lag finds nothing in a stream that skips a station, repeats one or delivers two in
the wrong order, because one missing tuple shifts all later ones. So `trace_cycle` learns the order of the members:

1. Values enter a ring in order of first appearance. Each goes behind the value that most often came before it in its
   first turns (`ring.ENTRY_TURNS`). Members that join later find their place by the same rule.
2. Members that most cycles show in the opposite order change places.
3. A member is active from its first to its last tuple, except for absences of at least `ABSENCE_CYCLES` of its own
   cycles. An absence at either end that is shorter than `EDGE_CYCLES` counts as a gap.
4. `confidence` = steps to the next active member / all steps. Steps to a value that is seen for the first time are not
   counted, because they could not fail. Tuples whose value has no place in the ring count as failures.

A cycle is accepted if the confidence is high enough *and* cannot be chance (Chernoff bound on a guess among the active
members), two full cycles were seen, the values do not change over time like those of a measure, and no member occurs
more than once in a cycle (a, a, b against x, y, z). If 5 % of the tuples are missing, 1 % are duplicated and 2 % of the
neighbours are swapped, 1 - .05 - .01 - 3 x .02 = 0.88 of the steps conform, at every length. The default requires 0.8.

>>> import numpy as np
>>> trace = trace_cycle(np.array([0, 1, 2] * 9 + [0, 2] + [0, 1, 2] * 9))
>>> trace.accepted, trace.order.tolist(), trace.length, round(trace.confidence, 3)
(True, [0, 1, 2], 3, 0.981)

*Strict form: replicated attributes* (Ahuja 2006, section 3.2.1, Algorithm 1). Attribute A is *replicated* with period
L if T[i+L][A] = T[i][A] for every i of the training set. Algorithm 1 compares with the first tuple and stops at the
first tuple that equals it, so it misses a,b,a,c (errata A1, A2, A5). `smallest_period` finds the smallest L in one
pass: n minus the longest proper border of the sequence (the failure function of Knuth, Morris and Pratt). A period is
evidence only if the training set has two full cycles. A constant attribute identifies nothing (A7).

>>> import numpy as np
>>> smallest_period(np.array([0, 1, 0, 2, 0, 1, 0, 2]))
4
>>> replicated_period(np.array([0, 1, 0, 2, 0, 1])) is None   # one and a half cycles prove nothing
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm, log

import numpy as np
import numpy.typing as npt
from numba import njit

from spillway.levers.attributes.cycle.codes import Codes, first_appearance, joint_codes, rows_by_value
from spillway.levers.attributes.cycle.ring import (
    conforming_steps,
    ring_by_entry,
    same_successor_share,
    settle_ring,
)

DEFAULT_CONFIDENCE = 0.8
ABSENCE_CYCLES = 50
EDGE_CYCLES = 5
MISSING_SHARE = 0.1
MOST_VALUES = 0.75
TURNOVER = 4.0
CHANCE = 1e-4
NO_ORDER = "does not follow one order"
FEW = 64
"""Up to this number of members, values are ordered even if they follow no order."""
TWICE = 1.4
"""A member that occurs `TWICE` x as often as there are cycles has two places in them."""


@dataclass(frozen=True)
class Trace:
    """The result of tracing the codes of one attribute or combination through the stream."""

    accepted: bool
    reason: str
    confidence: float
    mean_length: float
    length: int
    order: Codes
    """The codes of the members in cyclic order."""
    first_rows: Codes
    """The row of the first tuple of each activity interval."""
    last_rows: Codes
    """The row of the last tuple of each activity interval."""
    interval_position: Codes
    """The position in `order` of the member of each interval."""
    from_start: npt.NDArray[np.bool_]
    """Whether the interval starts at the first tuple."""
    to_end: npt.NDArray[np.bool_]
    """Whether the interval ends at the last tuple."""

    def positions(self, codes: Codes) -> Codes:
        """Return the place in the ring of every row; -1 if its value has none."""
        table = np.full(int(codes.max(initial=0)) + 2, -1, dtype=np.int64)
        table[self.order] = np.arange(len(self.order))
        return table[codes]


_EMPTY = np.zeros(0, dtype=np.int64)
_NONE = np.zeros(0, dtype=np.bool_)


def _rejected_trace(reason: str, confidence: float = 0.0, length: float = 0.0) -> Trace:
    return Trace(False, reason, confidence, length, 0, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _NONE, _NONE)


def is_chance(conforming: int, counted: int, guess: float) -> bool:
    """Return whether random guesses, right with probability `guess`, could conform that often (Chernoff bound)."""
    share = conforming / counted if counted else 0.0
    if share <= guess:
        return True
    divergence = share * log(share / guess)
    if share < 1:
        divergence += (1 - share) * log((1 - share) / (1 - guess))
    return -counted * divergence > log(CHANCE)


def worth_sorting(confidence: float) -> float:
    """Return the least share of steps with the same successor as before; one deviating step spoils two comparisons.

    >>> round(worth_sorting(0.8), 9)
    0.5
    """
    return 1 - 2.5 * (1 - confidence)


def follows_some_order(codes: Codes) -> bool:
    """Return whether the values of a stated identifier follow an order that can be learned; up to `FEW` values always
    count."""
    c = codes[codes >= 0]
    values = int(c.max(initial=-1)) + 1
    return values <= FEW or float(same_successor_share(c, values)) >= worth_sorting(DEFAULT_CONFIDENCE)


def trace_cycle(codes: Codes, *, confidence: float = DEFAULT_CONFIDENCE, forced: bool = False) -> Trace:
    """Learn the ring of the values, the intervals of its members, and how well the stream follows it.

    `forced` is for a cycle that the contract states: everything is learned, and no check rejects it.
    """
    rows = np.flatnonzero(codes >= 0)
    n = len(rows)
    if n == 0:
        return _rejected_trace("holds no value")
    if not forced and n < (1 - MISSING_SHARE) * len(codes):
        return _rejected_trace(f"is missing in {100 * (1 - n / len(codes)):.0f} % of the tuples")
    c = codes[rows]
    values = int(c.max()) + 1
    stutter = float(np.mean(c[1:] == c[:-1])) if n > 1 else 0.0
    if not forced:
        if values < 2:
            return _rejected_trace("is constant")
        if values > MOST_VALUES * n:
            return _rejected_trace("hardly ever repeats")
        if stutter > 1 - confidence:
            return _rejected_trace("stays the same from one tuple to the next", 0.5 * (1 - stutter))
        steady = float(same_successor_share(c, values))
        if steady < worth_sorting(confidence):
            return _rejected_trace(NO_ORDER, steady)

    by_value = rows_by_value(c)
    sorted_codes = c[by_value]
    same = sorted_codes[1:] == sorted_codes[:-1]
    distance = np.diff(by_value)[same]
    owner = sorted_codes[1:][same]
    count = np.bincount(c, minlength=values)
    usual = _median_by_owner(distance, owner, values)
    absence = distance > ABSENCE_CYCLES * np.maximum(usual[owner], 2)
    near_count = np.bincount(owner[~absence], minlength=values)
    near_sum = np.bincount(owner[~absence], weights=distance[~absence], minlength=values)
    mean_distance = near_sum / np.maximum(near_count, 1)
    regular = count > 0
    if not forced:
        slowest = 3 * float(np.quantile(distance, 0.9)) if len(distance) else 0.0
        regular = (near_count > 0) & (mean_distance <= slowest)
        if len(distance) and n < 4 * float(np.median(distance)):
            # in a short training set, a gap leaves some members a single turn
            regular |= count == 1
    in_ring = regular[c]
    strays = int(n - in_ring.sum())
    if not forced and (strays > (1 - confidence) * n or regular.sum() < 2):
        return _rejected_trace("has values that do not come back", 1 - strays / n)

    rows, c = rows[in_ring], c[in_ring]
    dense, first_seen = first_appearance(c)
    names = c[first_seen]
    members = len(names)
    reach = 3 if len(distance) and float(np.median(distance)) >= 8 else 1
    ring = settle_ring(dense, ring_by_entry(dense, members), reach)
    place = np.empty(members, dtype=np.int64)
    place[ring] = np.arange(members)
    positions = place[dense]

    starts, stops, at, from_start, to_end = _activity(positions, members)
    conforming, counted, mean_length, length = conforming_steps(
        positions,
        members,
        np.where(from_start, 0, starts),
        np.where(to_end, len(positions) + 1, stops + 1),
        at,
    )
    share = conforming / (counted + strays) if counted + strays else 0.0
    reason = ""
    if share < confidence:
        reason = NO_ORDER
    elif is_chance(conforming, counted + strays, 1 / max(mean_length, 2.0)):
        reason = "was seen too few times to rule out chance"
    elif len(positions) < 2 * mean_length:
        reason = "holds less than two full cycles"
    elif members > TURNOVER * mean_length:
        reason = "changes its values like a measure"
    elif _recurs_too_often(positions, starts, stops, at, from_start, to_end):
        reason = "holds a value that comes more than once in a cycle"
    return Trace(
        accepted=not reason,
        reason=reason,
        confidence=share,
        mean_length=mean_length,
        length=length,
        order=names[ring],
        first_rows=rows[starts],
        last_rows=rows[stops],
        interval_position=at,
        from_start=from_start,
        to_end=to_end,
    )


def _recurs_too_often(
    positions: Codes,
    starts: Codes,
    stops: Codes,
    at: Codes,
    from_start: npt.NDArray[np.bool_],
    to_end: npt.NDArray[np.bool_],
) -> bool:
    """Return whether a member occurred clearly more often than there were cycles while it was active."""
    n, members = len(positions), int(at.max()) + 1
    begin, end = np.where(from_start, 0, starts), np.where(to_end, n, stops + 1)
    alive = np.cumsum(np.bincount(begin, minlength=n + 1)[:n] - np.bincount(end, minlength=n + 1)[:n])
    cycles = np.append(0.0, np.cumsum(1 / np.maximum(alive, 1)))
    expected = np.bincount(at, weights=cycles[end] - cycles[begin], minlength=members)
    came = np.bincount(positions, minlength=members)
    clearly = (came >= TWICE * expected) & (came - expected >= 4 * np.sqrt(expected)) & (came >= 8)
    return bool(clearly.any())


def _median_by_owner(values: Codes, owner: Codes, owners: int) -> npt.NDArray[np.float64]:
    if not len(values):
        return np.zeros(owners)
    counts = np.bincount(owner, minlength=owners)
    ends = np.cumsum(counts)
    middle = np.minimum(ends - counts + (counts - 1).clip(0) // 2, len(values) - 1)
    span = int(values.max()) + 1
    ranked = np.sort(owner * span + values) % span
    return np.where(counts > 0, ranked[middle], 0).astype(np.float64)


def _activity(
    positions: Codes, members: int
) -> tuple[Codes, Codes, Codes, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the activity intervals of all members: first row, last row, position, reaches the start, reaches the
    end."""
    n = len(positions)
    by_member = rows_by_value(positions)
    owner = positions[by_member]
    step = np.diff(by_member)
    same = owner[1:] == owner[:-1]
    usual = _median_by_owner(step[same], owner[1:][same], members)
    usual = np.where(usual > 0, usual, members)
    breaks = np.append(True, ~same | (step > ABSENCE_CYCLES * np.maximum(usual[owner[1:]], 2)))
    first = np.flatnonzero(breaks)
    last = np.append(first[1:], n) - 1
    starts, stops, at = by_member[first], by_member[last], owner[first]
    edge = EDGE_CYCLES * usual[at]
    return starts, stops, at, starts <= edge, n - 1 - stops <= edge


# A longer joint cycle is cut off here: no window of that length is useful.
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
    """Return the smallest L >= 1 with codes[i + L] == codes[i] for all i; L = n if nothing repeats."""
    return len(codes) - int(_longest_border(np.ascontiguousarray(codes, dtype=np.int64)))


def replicated_period(codes: Codes) -> int | None:
    """Return the period of a replicated attribute; None if it is constant or has less than two full cycles."""
    if len(codes) < 4:
        return None
    period = smallest_period(codes)
    return period if period >= 2 and 2 * period <= len(codes) else None


def cycle_codes(codes: Mapping[str, Codes], periods: Mapping[str, int], attributes: Sequence[str]) -> Codes:
    """Return the joint codes of one whole cycle, whose length is the lcm of the periods, even if the data are shorter.

    Ahuja multiplies the periods (step e); but periods 4 and 6 repeat together after 12 tuples, not 24 (A6).
    """
    length = lcm(*(periods[attribute] for attribute in attributes))
    rows = np.arange(min(length, LONGEST_CYCLE_TUPLES))
    return joint_codes([codes[attribute][rows % periods[attribute]] for attribute in attributes])


def is_unique_in_cycle(
    codes: Mapping[str, Codes], periods: Mapping[str, int], attributes: Sequence[str]
) -> bool:
    """Return whether these attributes distinguish all tuples of one cycle (A4)."""
    joint = cycle_codes(codes, periods, attributes)
    return bool((joint >= 0).all()) and int(joint.max()) + 1 == lcm(*(periods[a] for a in attributes))

"""Held-back confirmation: what the first part of the training set shows, its last part must bear out.

The ring is learned on the first three quarters alone (on more where these hold less than two cycles) and then foretells
the last quarter, first visits included. Members that join in between are passed over, members that left are not
expected; values that belong to no ring fail. Both parts must reach the confidence asked of the whole, less two standard
errors of so many steps, and the held-back steps must not be a guess's (Chernoff's bound).

A cycle that only the first part has, and an order that a search fitted to the rows it saw, are refused here.

>>> import numpy as np
>>> steady = np.arange(400) % 5
>>> refuted = np.where(np.arange(400) < 330, steady, np.random.default_rng(0).integers(0, 5, 400))
>>> [held_back(codes, trace_cycle(codes), 0.8).confirmed for codes in (steady, refuted)]
[True, False]
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from spillway.levers.attributes.cycle.ring import conforming_steps
from spillway.levers.attributes.cycle.robust import EDGE_CYCLES, Trace, is_chance, trace_cycle
from spillway.levers.attributes.cycle.value_codes import Codes

HELD_BACK_SHARE = 0.25
KNOWN_SHARE = 0.5
"""Of the held-back tuples, the least share from members that the first part knows."""
AHEAD = 3
MOVING = 0.5
"""Of the steps of each attribute, the least share that goes a few places ahead; in short cycles any step does."""
STANDARD_ERRORS = 2.0


@dataclass(frozen=True)
class Confirmation:
    """Whether the held-back part bears a cycle out, and the share of its steps that conform."""

    confirmed: bool
    share: float


def first_rows(rows: int, length: float) -> int:
    """How many rows are learned from: three quarters, or two cycles and a bit where that is more.

    >>> first_rows(1000, 10), first_rows(1000, 450)
    (750, 945)
    """
    return min(rows, max(rows - int(rows * HELD_BACK_SHARE), ceil(2.1 * length)))


def held_back(codes: Codes, whole: Trace, confidence: float) -> Confirmation:
    """Whether the last part of the rows confirms the ring that the first part gives."""
    cut = first_rows(len(codes), whole.mean_length)
    first = trace_cycle(codes[:cut], confidence=_less_error(confidence, cut))
    if not first.accepted:
        return Confirmation(False, first.confidence)
    later = codes[cut:]
    place = np.full(int(codes.max(initial=0)) + 2, -1, dtype=np.int64)
    joined = np.zeros(len(place), dtype=np.bool_)
    place[first.order] = np.arange(len(first.order))
    joined[whole.order] = True
    positions = place[later]
    known = positions >= 0
    strays = int((~known & ~joined[later] & (later >= 0)).sum())
    present = int((later >= 0).sum())
    if not present or known.sum() < KNOWN_SHARE * present:
        return Confirmation(False, 0.0)
    kept, counted = _foretold(positions[known], first, whole.mean_length)
    share = kept / (counted + strays) if counted + strays else 0.0
    enough = share >= _less_error(confidence, counted + strays)
    return Confirmation(
        enough and not is_chance(kept, counted + strays, 1 / max(whole.mean_length, 2.0)), share
    )


def moves_in_order(codes: Codes, trace: Trace, part: Codes) -> float:
    """Of the steps at which one attribute of the cycle moves on, the share that goes a few places ahead.

    Senders that report at random, each its eight readings in a row, conform in seven steps of eight; in none at which
    the sender changes.

    >>> sender = np.repeat(np.random.default_rng(2).integers(0, 20, 100), 8)
    >>> both = 8 * sender + np.arange(800) % 8
    >>> trace = trace_cycle(both)
    >>> round(trace.confidence, 2), round(moves_in_order(both, trace, sender), 2)
    (0.89, 0.18)
    """
    places = trace.positions(codes)
    known = np.flatnonzero(places >= 0)
    moved = part[known[1:]] != part[known[:-1]]
    members = len(trace.order)
    ahead = np.diff(places[known])[moved] % members
    few = AHEAD * members / max(trace.mean_length, 1.0)
    return float(np.mean((ahead >= 1) & (ahead <= few))) if len(ahead) else 1.0


def _foretold(positions: Codes, first: Trace, length: float) -> tuple[int, int]:
    """Steps that go where the first part's ring says, of how many."""
    members, n = len(first.order), len(positions)
    last = np.full(members, -1, dtype=np.int64)
    last[positions] = np.arange(n)
    stays = np.zeros(members, dtype=np.bool_)
    stays[first.interval_position[first.to_end]] = True
    edge = EDGE_CYCLES * length
    # one that left before, or stays away for whole cycles, is not expected; one that comes back is
    active = np.flatnonzero((last >= 0) | (stays & (n < edge)))
    gone = n - 1 - last[active] >= edge
    stops = np.where(gone & (last[active] >= 0), last[active] + 1, n + 1)
    starts = np.zeros(len(active), dtype=np.int64)
    kept, counted, _, _ = conforming_steps(positions, members, starts, stops, active, first_visits=True)
    return kept, counted


def _less_error(confidence: float, steps: int) -> float:
    return confidence - STANDARD_ERRORS * sqrt(confidence * (1 - confidence) / max(steps, 1))

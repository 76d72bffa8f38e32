"""Learn the ring (cyclic order) of a cycle's members from the stream, and measure how well the steps follow it.

>>> import numpy as np
>>> codes = np.array([0, 1, 2, 3] * 5 + [0, 2, 1, 3] + [0, 1, 2, 3] * 5)     # one swap
>>> settle_ring(codes, ring_by_entry(codes, 4), reach=1).tolist()
[0, 1, 2, 3]
>>> always = np.zeros(4, dtype=np.int64)
>>> conforming_steps(codes, 4, always, always + 99, np.arange(4))[:2]
(37, 40)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from spillway.levers.attributes.cycle.codes import Codes

ENTRY_TURNS = 9
"""Number of a member's first turns from which its place is learned."""


@njit(cache=True)
def _most_frequent(values: Codes, filled: int) -> int:
    best = -1
    most = 0
    for i in range(filled):
        count = 0
        for k in range(i, filled):
            if values[k] == values[i]:
                count += 1
        if count > most:
            most = count
            best = values[i]
    return best


@njit(cache=True)
def ring_by_entry(codes: Codes, members: int) -> Codes:
    """Return the initial ring (step 1 of `trace`); codes must be numbered in order of first appearance."""
    before = np.full((members, ENTRY_TURNS), -1, dtype=np.int64)
    after = np.full((members, ENTRY_TURNS), -1, dtype=np.int64)
    befores = np.zeros(members, dtype=np.int64)
    afters = np.zeros(members, dtype=np.int64)
    for i in range(1, len(codes)):
        u, v = codes[i - 1], codes[i]
        if u == v:
            continue
        if befores[v] < ENTRY_TURNS:
            before[v, befores[v]] = u
            befores[v] += 1
        if afters[u] < ENTRY_TURNS:
            after[u, afters[u]] = v
            afters[u] += 1
    following = np.full(members, -1, dtype=np.int64)
    preceding = np.full(members, -1, dtype=np.int64)
    following[0] = 0
    preceding[0] = 0
    placed = 1
    forced = False
    turns = 0
    while placed < members:
        progress = False
        turns += 1
        for v in range(1, members):
            if following[v] >= 0:
                continue
            u = _most_frequent(before[v], befores[v])
            if u < 0 or following[u] < 0:
                w = _most_frequent(after[v], afters[v])
                if w >= 0 and following[w] >= 0:
                    u = preceding[w]
                elif forced:
                    u = v - 1
                else:
                    continue
            w = following[u]
            following[u] = v
            preceding[v] = u
            following[v] = w
            preceding[w] = v
            placed += 1
            progress = True
        # members without a place are inserted in order of appearance, so v - 1 already has its place
        forced = not progress or turns >= ENTRY_TURNS
    order = np.empty(members, dtype=np.int64)
    value = 0
    for k in range(members):
        order[k] = value
        value = following[value]
    return order


@njit(cache=True)
def _settle(order: Codes, keys: Codes, counts: Codes, look: int) -> Codes:
    """Swap members that most cycles show in the opposite order, also across members without votes in between."""
    members = len(order)

    def votes(before: int, after: int) -> int:
        at = np.searchsorted(keys, before * members + after)
        return counts[at] if at < len(keys) and keys[at] == before * members + after else 0

    for _ in range(100):
        moved = False
        for left in range(members):
            for step in range(1, min(look, members - 1) + 1):
                a = order[left]
                b = order[(left + step) % members]
                if votes(b, a) <= votes(a, b):
                    continue
                # b moves before a if no member in between has a majority before b
                free = True
                for k in range(1, step):
                    x = order[(left + k) % members]
                    if votes(x, b) > votes(b, x):
                        free = False
                        break
                if free:
                    for k in range(step, 0, -1):
                        order[(left + k) % members] = order[(left + k - 1) % members]
                    order[left] = b
                    moved = True
        if not moved:
            break
    return order


def settle_ring(codes: Codes, order: Codes, reach: int) -> Codes:
    """Return the corrected ring (step 2 of `trace`); a vote is a pair of codes within `reach` tuples."""
    members = len(order)
    if members < 3 or len(codes) <= reach:
        return order
    pairs = np.concatenate([codes[:-lag] * members + codes[lag:] for lag in range(1, reach + 1)])
    keys, counts = np.unique(pairs, return_counts=True)
    return np.asarray(_settle(order.copy(), keys, counts.astype(np.int64), 8), dtype=np.int64)


@njit(cache=True)
def same_successor_share(codes: Codes, values: int) -> float:
    """Return the share of steps with the same successor as the previous step from that value."""
    successor = np.full(values, -1, dtype=np.int64)
    same = 0
    compared = 0
    for i in range(1, len(codes)):
        before = codes[i - 1]
        if successor[before] >= 0:
            compared += 1
            same += successor[before] == codes[i]
        successor[before] = codes[i]
    return same / compared if compared else 0.0


@njit(cache=True)
def _walk(
    positions: Codes,
    members: int,
    event_row: Codes,
    event_position: Codes,
    event_on: npt.NDArray[np.bool_],
    seen: npt.NDArray[np.bool_],
) -> tuple[int, int, int, int]:
    """Return conforming steps, counted steps, active members summed over the rows, and active members at the end."""
    following = np.full(members, -1, dtype=np.int64)
    preceding = np.full(members, -1, dtype=np.int64)
    active = np.zeros(members, dtype=np.bool_)
    alive = 0
    conforming = 0
    counted = 0
    alive_rows = 0
    event = 0
    for i in range(len(positions)):
        while event < len(event_row) and event_row[event] <= i:
            x = event_position[event]
            if event_on[event] and not active[x]:
                if alive == 0:
                    following[x] = x
                    preceding[x] = x
                else:
                    before = x - 1 if x > 0 else members - 1
                    while not active[before]:
                        before = before - 1 if before > 0 else members - 1
                    after = following[before]
                    following[before] = x
                    preceding[x] = before
                    following[x] = after
                    preceding[after] = x
                active[x] = True
                alive += 1
            elif not event_on[event] and active[x]:
                following[preceding[x]] = following[x]
                preceding[following[x]] = preceding[x]
                active[x] = False
                alive -= 1
            event += 1
        value = positions[i]
        if i > 0 and seen[value]:
            counted += 1
            if following[positions[i - 1]] == value:
                conforming += 1
        seen[value] = True
        alive_rows += alive
    return conforming, counted, alive_rows, alive


def conforming_steps(
    positions: Codes,
    members: int,
    starts: Codes,
    stops: Codes,
    at: Codes,
    *,
    first_visits: bool = False,
) -> tuple[int, int, float, int]:
    """Return conforming steps, counted steps, mean length and last length of the ring.

    Member `at[k]` is active in rows [starts[k], stops[k]). The first visit of a member is not counted if the order was
    learned from these rows, because it could not fail. Set `first_visits` if the order was learned from other rows.
    """
    rows = np.concatenate([starts, stops])
    places = np.concatenate([at, at])
    on = np.concatenate([np.ones(len(starts), dtype=np.bool_), np.zeros(len(stops), dtype=np.bool_)])
    # arrivals before departures, so that the ring is never empty between the two
    by_row = np.lexsort((places, ~on, rows))
    seen = np.full(members, first_visits)
    kept, counted, alive_rows, alive = _walk(
        positions, members, rows[by_row], places[by_row], on[by_row], seen
    )
    return int(kept), int(counted), alive_rows / max(len(positions), 1), int(alive)

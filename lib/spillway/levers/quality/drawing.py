"""In which order chance takes a query's portions: the same again, and of all inputs alike.

Chance is a hash of what a portion is: it falls alike whichever queries are planned together, and of one input any
portion is as likely to be kept as any other, so that answers may be scaled up.

Where a query reads several inputs, its portions would go by what they carry for their cost, as the text's do: all of
the smaller input, and nothing of the larger, of which a join answers nothing at all. So (ours) inputs are kept level: a
window is cut into as many stretches as the input of fewest portions has, chance takes one stretch after the other, the
same of all inputs (what is joined by time lies in one), and within it portions go by how much of their input went
before.

What came late for a window that had been worked out comes last (`late_last`), so that what was kept of it is kept
again: an answer does not get poorer by rows that come.

>>> cut = [("a", 0), ("b", 0), ("b", 50)]
>>> place = [("q", 1, Portion(stream, 1, low, low + 49, 50, 1, 50.0)) for stream, low in cut]
>>> sorted(turns("desk", 1, place, chance_order("desk", 1, place)).tolist())
[0.0, 0.0, 0.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from spillway.levers.quality.admission import Batches
from spillway.levers.windows import Portion

Places = Sequence[tuple[str, int, Portion]]
"""Of every portion that a slice is offered: its query, its window, and itself."""


def chance_order(room: str, number: int, place: Places) -> np.ndarray:
    """A permutation by each portion's own hash."""
    drawn = [
        _hash(room, number, name, window, one.stream, one.batch, one.from_seq) for name, window, one in place
    ]
    order = np.argsort(np.array(drawn, np.int64), kind="stable")
    tie = np.empty(len(place), np.int64)
    tie[order] = np.arange(len(place))
    return tie


def _hash(*parts: object) -> int:
    return int.from_bytes(blake2b("\0".join(map(str, parts)).encode(), digest_size=7).digest())


def turns(room: str, number: int, place: Places, tie: np.ndarray) -> np.ndarray:
    """When a portion's turn comes among its query's, from 0 to 1; `tie` orders equals."""
    found = np.zeros(len(place))
    inputs: dict[tuple[str, int], dict[str, list[int]]] = {}
    for at, (name, window, portion) in enumerate(place):
        inputs.setdefault((name, window), {}).setdefault(portion.stream, []).append(at)
    for (name, window), by_stream in inputs.items():
        stretches = min(len(mine) for mine in by_stream.values())
        drawn = [_hash(room, number, name, window, stretch) for stretch in range(stretches)]
        rank = np.argsort(np.argsort(np.array(drawn, np.int64), kind="stable"))
        for mine in by_stream.values():
            ordered = sorted(mine, key=lambda at: (place[at][2].batch, place[at][2].from_seq))
            for stretch, some in enumerate(np.array_split(np.array(ordered), stretches)):
                some = some[np.argsort(tie[some])]
                tuples = np.array([place[at][2].tuples for at in some], np.float64)
                before = (np.cumsum(tuples) - tuples) / max(1.0, tuples.sum())
                found[some] = (rank[stretch] + before) / stretches
    return found


def late_last(order: np.ndarray, late: np.ndarray) -> np.ndarray:
    """The order, by whole or by broken numbers, with those that are late behind all others.

    >>> late_last(np.array([2, 0, 1]), np.array([False, True, False])), late_last(np.array([0.5]), np.array([True]))
    (array([1, 2, 0]), array([0.75]))
    """
    if order.dtype.kind == "i":
        found = np.empty_like(order)
        found[np.lexsort([order, late])] = np.arange(len(order))
        return found
    return order / 2 + late / 2 if late.any() else order


def drawn_by_chance(offered: Sequence[int], kept: Sequence[int], batches: Batches) -> tuple[int, ...]:
    """Places in `kept` of the first ones in order of chance, up to one that was left out; of one window and input.

    What comes behind that one was kept because it is small enough for what room was left, or because its query had
    waited: of such a choice nothing can be said of the rest. Whoever is before it would be so in any other order of
    these: each portion is among them with one chance (Ting 2022, adaptive thresholds that can be substituted).
    """
    tie, turn = batches.tie, batches.turn
    assert tie is not None
    place = {one: at for at, one in enumerate(kept)}
    found = []
    for one in sorted(offered, key=lambda one: (0.0 if turn is None else float(turn[one]), int(tie[one]))):
        if one not in place:
            break
        found.append(place[one])
    return tuple(sorted(found))

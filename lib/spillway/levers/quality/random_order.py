"""Order the portions of a window at random, reproducibly, so that the same share of every input is kept.

The random order is a hash of each portion's identity. So it does not depend on which queries are planned together. Any
portion of an input is as likely to be kept as any other, so answers may be scaled up.

If a query reads several inputs, an order by sic per cost (the paper's) would keep all of the smaller input and nothing
of the larger one. A join of these has no answer. So the same share of each input is kept (our rule). A window is
divided into time slices ("stretches" in the code). Their number is that of the portions of the input with the fewest
portions. The slices are taken in random order, the same for all inputs, because rows that join by time lie in the same
slice. Within a slice, the position of a portion is the share of its input's tuples in the slice that come before it.

Portions that arrived after their window was computed come last (`move_late_last`). So the portions that the first
computation kept are kept again: late rows do not make an answer worse.

>>> cut = [("a", 0), ("b", 0), ("b", 50)]
>>> place = [("q", 1, Portion(stream, 1, low, low + 49, 50, 1, 50.0)) for stream, low in cut]
>>> offer = PortionColumns.of(place)
>>> sorted(portion_turns("desk", 1, offer, chance_order("desk", 1, offer)).tolist())
[0.0, 0.0, 0.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter

import numpy as np
from numba import njit

from spillway.levers.quality.admission import Batches
from spillway.levers.windows import Portion


@dataclass(frozen=True)
class PortionColumns:
    """The portions of some windows as columns, one element per portion; portions of a window are contiguous."""

    windows: tuple[tuple[str, int], ...]
    """The query and the number of each window."""
    streams: tuple[str, ...]
    window: np.ndarray
    """Index into `windows`."""
    stream: np.ndarray
    """Index into `streams`."""
    batch: np.ndarray
    from_seq: np.ndarray
    tuples: np.ndarray
    produced: np.ndarray

    @staticmethod
    def of(place: Sequence[tuple[str, int, Portion]]) -> PortionColumns:
        """Return portions as columns, with the query and the window of each; portions of a window are contiguous."""
        windows = list(dict.fromkeys((name, window) for name, window, _ in place))
        found = []
        for name, window in windows:
            portions = [one for *of, one in place if of == [name, window]]
            found.append((name, window, portions, list(dict.fromkeys(one.stream for one in portions))))
        return PortionColumns.of_windows(found)

    @staticmethod
    def of_windows(windows: Sequence[tuple[str, int, Sequence[Portion], Sequence[str]]]) -> PortionColumns:
        """Return the portions of some windows as columns; each window has its query and the streams it reads."""
        counts = np.array([len(portions) for _, _, portions, _ in windows], np.int64)
        every = [portion for _, _, portions, _ in windows for portion in portions]
        window = np.repeat(np.arange(len(counts)), counts)
        streams = tuple(dict.fromkeys(stream for *_, inputs in windows for stream in inputs))
        places = {name: at for at, name in enumerate(streams)}
        first = np.array([places[inputs[0]] for *_, inputs in windows], np.int64)
        stream = first[window]
        if any(len(inputs) > 1 for *_, inputs in windows):
            stream = np.array([places[one.stream] for one in every], np.int64)

        def column(name: str, kind: type) -> np.ndarray:
            return np.fromiter(map(attrgetter(name), every), kind, len(every))

        return PortionColumns(
            tuple((name, number) for name, number, *_ in windows),
            streams,
            window,
            stream,
            column("batch", np.int64),
            column("from_seq", np.int64),
            column("tuples", np.int64),
            column("produced", np.float64),
        )

    def __len__(self) -> int:
        return len(self.window)


def chance_order(room: str, number: int, offer: PortionColumns) -> np.ndarray:
    """Return a random permutation of the portions, by a hash of each."""
    seeds = np.array(
        [[_seed(room, number, *window, stream) for stream in offer.streams] for window in offer.windows],
        np.uint64,
    ).reshape(len(offer.windows), len(offer.streams))
    drawn = _hashes(seeds, offer.window, offer.stream, offer.batch, offer.from_seq)
    tie = np.empty(len(offer), np.int64)
    tie[np.argsort(drawn)] = np.arange(len(offer))
    return tie


def _seed(*parts: object) -> int:
    return int.from_bytes(blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest())


@njit(cache=True)
def _mixed(state: np.uint64, value: int) -> np.uint64:
    """Return a hash of a number and a state (splitmix64: Steele, Lea, Flood 2014)."""
    z = (state ^ np.uint64(value)) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(z ^ (z >> np.uint64(31)))


@njit(cache=True)
def _hashes(
    seeds: np.ndarray, window: np.ndarray, stream: np.ndarray, batch: np.ndarray, from_seq: np.ndarray
) -> np.ndarray:
    found = np.empty(len(window), np.uint64)
    for i in range(len(window)):
        found[i] = _mixed(_mixed(seeds[window[i], stream[i]], batch[i]), from_seq[i])
    return found


def portion_turns(
    room: str, number: int, offer: PortionColumns, tie: np.ndarray, among: np.ndarray | None = None
) -> np.ndarray:
    """Return the position of each portion in the order of its window, from 0 to 1; `tie` orders equal ones.

    `among`: indices of the portions to consider, by default all; the result has one element for each.
    """
    of = slice(None) if among is None else among
    window = offer.window[of]
    seeds = np.array([_seed(room, number, *one) for one in offer.windows], np.uint64)
    found = np.zeros(len(window))
    columns = (offer.stream[of], offer.batch[of], offer.from_seq[of], offer.tuples[of], tie[of])
    _turns(window, *columns, seeds, len(offer.streams), found)
    return found


@njit(cache=True)
def _turns(
    window: np.ndarray,
    stream: np.ndarray,
    batch: np.ndarray,
    from_seq: np.ndarray,
    tuples: np.ndarray,
    tie: np.ndarray,
    seeds: np.ndarray,
    streams: int,
    found: np.ndarray,
) -> None:
    start = 0
    while start < len(window):
        end = start + 1
        while end < len(window) and window[end] == window[start]:
            end += 1
        sizes = np.zeros(streams, np.int64)
        for i in range(start, end):
            sizes[stream[i]] += 1
        stretches = end - start
        for s in range(streams):
            if sizes[s]:
                stretches = min(stretches, sizes[s])
        rank = _ranks(seeds[window[start]], stretches)
        for s in range(streams):
            if sizes[s]:
                mine = start + np.flatnonzero(stream[start:end] == s)
                # in the order of their rows: two stable sorts, the less important key first
                mine = mine[np.argsort(from_seq[mine], kind="mergesort")]
                mine = mine[np.argsort(batch[mine], kind="mergesort")]
                _turns_of_input(mine, tuples, tie, rank, stretches, found)
        start = end


@njit(cache=True)
def _ranks(seed: np.uint64, stretches: int) -> np.ndarray:
    """Return a random order of the stretches of a window."""
    drawn = np.empty(stretches, np.uint64)
    for k in range(stretches):
        drawn[k] = _mixed(seed, k)
    rank = np.empty(stretches, np.int64)
    for place, k in enumerate(np.argsort(drawn, kind="mergesort")):
        rank[k] = place
    return rank


@njit(cache=True)
def _turns_of_input(
    mine: np.ndarray, tuples: np.ndarray, tie: np.ndarray, rank: np.ndarray, stretches: int, found: np.ndarray
) -> None:
    """Split the portions of an input into stretches, and write the position of each to `found`.

    The numbers of portions of two stretches differ by at most one. Within a stretch `tie` gives the order.
    """
    short, longer = len(mine) // stretches, len(mine) % stretches
    begin = 0
    for stretch in range(stretches):
        end = begin + short + (1 if stretch < longer else 0)
        some = mine[begin:end]
        if end - begin > 1:
            some = some[np.argsort(tie[some], kind="mergesort")]
        whole, before = 0.0, 0.0
        for i in some:
            whole += tuples[i]
        for i in some:
            found[i] = (rank[stretch] + before / max(1.0, whole)) / stretches
            before += tuples[i]
        begin = end


def move_late_last(order: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Return the order with late portions behind all others; `order`: integer positions, or turns from 0 to 1.

    >>> move_late_last(np.array([2, 0, 1]), np.array([False, True, False]))
    array([1, 2, 0])
    >>> move_late_last(np.array([0.5]), np.array([True]))
    array([0.75])
    """
    if order.dtype.kind == "i":
        if not late.any():
            return order
        found = np.empty_like(order)
        found[np.lexsort([order, late])] = np.arange(len(order))
        return found
    return order / 2 + late / 2 if late.any() else order


def is_chosen_by_chance(batches: Batches, window: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return which kept batches were chosen by chance alone: those before the first of their window that was left out.

    The batches of a window are contiguous. A batch behind the first one left out was kept because it fits into the
    remaining capacity, or because its query had waited. So it is not a random sample. The batches before
    it would be kept in any other order among themselves. So each batch has the same probability of being among them
    (Ting 2022, substitutable adaptive thresholds).

    >>> three = Batches(np.zeros(3, np.int64), np.ones(3), np.ones(3), np.array([1, 0, 2]))
    >>> is_chosen_by_chance(three, np.zeros(3, np.int64), np.array([False, True, True])).tolist()
    [False, True, False]
    """
    tie = np.arange(len(batches)) if batches.tie is None else batches.tie
    turn = np.zeros(len(batches)) if batches.turn is None else batches.turn
    found = np.zeros(len(batches), np.bool_)
    _mark_kept_prefix(window, turn, tie, kept, found)
    return found


@njit(cache=True)
def _mark_kept_prefix(
    window: np.ndarray, turn: np.ndarray, tie: np.ndarray, kept: np.ndarray, found: np.ndarray
) -> None:
    """Mark the kept batches of each window that precede all batches left out, in the order of turn and tie."""
    start = 0
    while start < len(window):
        end = start + 1
        while end < len(window) and window[end] == window[start]:
            end += 1
        first_turn, first_tie = np.inf, 0
        for i in range(start, end):
            if not kept[i] and (turn[i] < first_turn or (turn[i] == first_turn and tie[i] < first_tie)):
                first_turn, first_tie = turn[i], tie[i]
        for i in range(start, end):
            before = turn[i] < first_turn or (turn[i] == first_turn and tie[i] < first_tie)
            found[i] = kept[i] and before
        start = end

"""In which order chance takes a query's portions: the same again, and of all inputs alike.

Chance is a hash of what a portion is: it falls alike whichever queries are planned together, and of one input any
portion is as likely to be kept as any other, so that answers may be scaled up.

If a query reads several inputs, its portions would go by what they carry for their cost, as the paper's do: all of
the smaller input, and nothing of the larger, of which a join answers nothing at all. So (ours) inputs are kept level: a
window is cut into as many stretches as the input of fewest portions has, chance takes one stretch after the other, the
same of all inputs (what is joined by time lies in one), and within it portions go by how much of their input went
before.

What came late for a window that had been worked out comes last (`late_last`), so that what was kept of it is kept
again: an answer does not get poorer by rows that come.

>>> cut = [("a", 0), ("b", 0), ("b", 50)]
>>> place = [("q", 1, Portion(stream, 1, low, low + 49, 50, 1, 50.0)) for stream, low in cut]
>>> offer = Offer.of(place)
>>> sorted(turns("desk", 1, offer, chance_order("desk", 1, offer)).tolist())
[0.0, 0.0, 0.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter

import numpy as np

from spillway.levers.quality.admission import Batches
from spillway.levers.windows import Portion

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Offer:
    """The portions of some windows in columns, one element per portion, those of a window together."""

    windows: tuple[tuple[str, int], ...]
    """The query and the number of each window."""
    streams: tuple[str, ...]
    window: np.ndarray
    """Place in `windows`."""
    stream: np.ndarray
    """Place in `streams`."""
    batch: np.ndarray
    from_seq: np.ndarray
    tuples: np.ndarray
    produced: np.ndarray

    @staticmethod
    def of(place: Sequence[tuple[str, int, Portion]]) -> Offer:
        """Return the columns of portions, each with its query and its window."""
        windows = list(dict.fromkeys((name, window) for name, window, _ in place))
        return Offer.of_windows(
            [(name, window, [one for *of, one in place if of == [name, window]]) for name, window in windows]
        )

    @staticmethod
    def of_windows(windows: Sequence[tuple[str, int, Sequence[Portion]]]) -> Offer:
        """Return the columns of the portions of some windows, each with its query."""
        counts = np.array([len(portions) for *_, portions in windows], np.int64)
        every = [portion for *_, portions in windows for portion in portions]
        count = len(every)
        named = list(map(attrgetter("stream"), every))
        streams = tuple(dict.fromkeys(named))
        places = {name: at for at, name in enumerate(streams)}
        stream = np.fromiter(map(places.__getitem__, named), np.int64, count)

        def column(name: str, kind: type) -> np.ndarray:
            return np.fromiter(map(attrgetter(name), every), kind, count)

        return Offer(
            tuple((name, window) for name, window, _ in windows),
            streams,
            np.repeat(np.arange(len(counts)), counts),
            stream,
            column("batch", np.int64),
            column("from_seq", np.int64),
            column("tuples", np.int64),
            column("produced", np.float64),
        )

    def __len__(self) -> int:
        return len(self.window)


def chance_order(room: str, number: int, offer: Offer) -> np.ndarray:
    """Return a permutation of the portions by each one's own hash."""
    seeds = np.array(
        [[_seed(room, number, *window, stream) for stream in offer.streams] for window in offer.windows], np.uint64
    ).reshape(len(offer.windows), len(offer.streams))
    drawn = _mixed(_mixed(seeds[offer.window, offer.stream], offer.batch), offer.from_seq)
    tie = np.empty(len(offer), np.int64)
    tie[np.argsort(drawn, kind="stable")] = np.arange(len(offer))
    return tie


def _seed(*parts: object) -> int:
    return int.from_bytes(blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest())


def _mixed(state: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return hashes of a number, each from its own state (splitmix64: Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = (state ^ value.astype(np.uint64)) + _ODD
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def turns(room: str, number: int, offer: Offer, tie: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Return when each portion's turn comes in its window, from 0 to 1; `tie` orders equals.

    `among`: places of the portions that are looked at, by default all; the result has one element for each of them.
    """
    of = slice(None) if among is None else among
    window, stream, tie = offer.window[of], offer.stream[of], tie[of]
    if not len(window):
        return np.zeros(0)
    tuples = offer.tuples[of].astype(np.float64)
    inputs = len(offer.streams)
    source = window * inputs + stream
    sizes = np.bincount(source, minlength=len(offer.windows) * inputs)
    by_window = np.where(sizes, sizes, np.iinfo(np.int64).max).reshape(-1, inputs).min(axis=1)
    stretches = np.where(by_window == np.iinfo(np.int64).max, 0, by_window)
    # a source's portions in the order of its rows, cut into stretches of lengths that differ by one at most
    order = np.lexsort([offer.from_seq[of], offer.batch[of], source])
    placed = np.empty(len(window), np.int64)
    placed[order] = np.arange(len(window)) - np.searchsorted(source[order], source[order])
    short, longer = np.divmod(sizes[source], stretches[window])
    inside = placed < longer * (short + 1)
    stretch = np.where(inside, placed // (short + 1), longer + (placed - longer * (short + 1)) // np.maximum(1, short))
    # chance takes one stretch of a window after the other
    ends = np.cumsum(stretches)
    begins = ends - stretches
    seeds = np.array([_seed(room, number, *one) for one in offer.windows], np.uint64)
    of_stretch = np.repeat(np.arange(len(stretches)), stretches)
    drawn = _mixed(seeds[of_stretch], np.arange(len(of_stretch)) - begins[of_stretch])
    rank = np.empty(len(of_stretch), np.int64)
    rank[np.lexsort([drawn, of_stretch])] = np.arange(len(of_stretch)) - begins[of_stretch]
    # within a stretch portions go by how much of their source's share of it went before
    piece = (begins[window] + stretch) * inputs + stream
    order = np.lexsort([tie, piece])
    whole = np.bincount(piece, tuples)
    sums = np.cumsum(tuples[order])
    first = np.searchsorted(piece[order], piece[order])
    before = np.empty(len(window))
    before[order] = sums - tuples[order] - (sums - tuples[order])[first]
    return np.asarray(
        (rank[begins[window] + stretch] + before / np.maximum(1.0, whole[piece])) / stretches[window]
    )


def late_last(order: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Return the order, by whole or by broken numbers, with those that are late behind all others.

    >>> late_last(np.array([2, 0, 1]), np.array([False, True, False])), late_last(np.array([0.5]), np.array([True]))
    (array([1, 2, 0]), array([0.75]))
    """
    if order.dtype.kind == "i":
        if not late.any():
            return order
        found = np.empty_like(order)
        found[np.lexsort([order, late])] = np.arange(len(order))
        return found
    return order / 2 + late / 2 if late.any() else order


def drawn_by_chance(batches: Batches, window: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return which kept batches chance alone chose: the first of their window in its order, up to one left out.

    A batch behind that one was kept because it is small enough for the room that was left, or because its query had
    waited: of such a choice nothing can be said of the rest. Those before it would be so in any other order of
    themselves: each is among them with one chance (Ting 2022, adaptive thresholds that can be substituted).

    >>> three = Batches(np.zeros(3, np.int64), np.ones(3), np.ones(3), np.array([1, 0, 2]))
    >>> drawn_by_chance(three, np.zeros(3, np.int64), np.array([False, True, True])).tolist()
    [False, True, False]
    """
    tie = np.arange(len(batches)) if batches.tie is None else batches.tie
    keys = [tie, window] if batches.turn is None else [tie, batches.turn, window]
    order = np.lexsort(keys)
    left_out = np.cumsum(~kept[order])
    first = np.searchsorted(window[order], window[order])
    before = left_out[first] - ~kept[order][first]
    found = np.zeros(len(batches), np.bool_)
    found[order] = kept[order] & (left_out == before)
    return found

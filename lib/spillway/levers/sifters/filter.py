"""The filter: regions with their thresholds, small enough to be sent, and all that deciding a row takes (II-D).

It is plain values, packed: a few kilobytes at a hundred regions and some queries. Predicates are in it as spans and
boxes of keys, so that whoever sifts parses no SQL. Number 0 is the trivial filter, which keeps everything.

Sifting: which rows of a piece are dropped, by error diffusion without random numbers (IV-A.1).

The text keeps two counters a region and drops a row when the dropped fall behind the threshold. Here the same is done
over the order of (region, a seeded hash of `seq`, `seq`) within pieces of a fixed number of `seq`: what is kept is
carried on as one running remainder,

    remainder += 1 - d(region);   keep the row and take 1 off when it reaches 1

which begins at a hash of the piece's number. So, piece by piece and whatever order rows came in,

- of every region the rows kept are within one of (1 - d) of its rows, and so are those of all regions together within
  one of the sum: the remainder goes on from region to region;
- every row is kept with probability exactly 1 - d over seeds, so that 1/(1 - d) is its unbiased weight;
- two keys that take turns lose alike: in order of arrival, half of two of them would lose one altogether;
- recomputing a piece, on any machine, gives the same rows. A piece is cut by `seq`, so nothing but it is read.

Rows are also *marked*: a share of all rows (sigma), within one of it in every region, whatever the thresholds; since
thresholds are at most 1 - sigma, every marked row is among those kept. It is the sample that no filter works on (II-E).

>>> seq, regions = np.arange(1000), np.zeros(1000, np.int32)
>>> kept, marked = sifted(seq, regions, np.array([0.75]), 0.1, 7)
>>> int(kept.sum()), int(marked.sum()), bool(np.all(kept[marked]))
(250, 100, True)

Rows that no query asks for: they go before any other, wherever they lie.

The text drops by region, and a region that any query touches is dropped from as one: rows in it that no query wants
stay while others go. Who has the queries themselves can tell row by row. So rows that no query asks for make a region
of their own, which is worth nothing and held to no Delta; the others are cut among, and set for, those that are asked
for:

    u: the share of the rows that no query asks for;  most: the largest threshold there may be
    share of the rows that are asked for to drop:  max(0, (1 - z) - u most) / (1 - u)

Where there is room for all that is asked for, every query has all of its rows. That takes the queries in the filter,
which a few hundred boxes are and many thousands are not (`MOST_ASKED`); and it takes queries that mean what they say: a
log that is a sample of what people ask is better read by region (`unasked: by_region`).

A row is looked for among the boxes alone that reach into its region, those that cover most first. Keys are compared,
not places, so that a row is asked for exactly where a query's condition is true of it.

>>> tree = RegionTree.grown(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
>>> boxes, places = np.array([[[10, 30]], [[50, 51]]]), np.array([[[0.1, 0.3]], [[0.5, 0.51]]])
>>> of = AskedBoxes.of(tree, boxes, places)
>>> of.hold(np.array([[10, 29, 30, 50, 51]]), np.array([0, 0, 0, 1, 1])).tolist()
[True, True, False, True, False]
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from spillway.errors import Refused, RefusedElsewhere
from spillway.levers.sifters.boxes import Product, products_hold
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.regions import Axis, Layout, RegionTree
from spillway.sketches.hashing import mix64

PIECE_SEQS = 65_536
"""How many `seq` a piece is long: read whole to decide any row of it."""
_HASH_BITS = 8
_ORDER, _START, _MARK = 0x5163D1, 0x0F00D5, 0x3A2C11
"""What keeps the uses of one seed apart."""


def piece_of(seq: int, first_seq: int) -> tuple[int, int]:
    """The piece that a `seq` of a batch lies in: its first and last seq.

    >>> piece_of(70_000, 100)
    (65636, 131171)
    """
    begin = first_seq + (seq - first_seq) // PIECE_SEQS * PIECE_SEQS
    return begin, begin + PIECE_SEQS - 1


def sifted(
    seq: np.ndarray, regions: np.ndarray, thresholds: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of the rows of one piece, which are kept, and which are marked.

    `regions` -1: the row must be kept. `share`: of rows to be marked (sigma); `seed`: of the filter and the piece.
    """
    highest = float(np.max(thresholds, initial=0.0))
    if not 0.0 <= share <= 1.0 or highest > 1.0 - share + 1e-9:
        raise Refused(
            "thresholds",
            f"be at most {1.0 - share:.6g}, for a share of {share:g} of all rows is kept as sample",
            highest,
            "configure the regions with that limit",
        )
    kept, marked = np.zeros(len(seq), bool), np.zeros(len(seq), bool)
    keep = np.append(1.0 - np.asarray(thresholds, float), 1.0)  # the last: what must be kept
    regions = np.where(np.asarray(regions) < 0, len(keep) - 1, regions).astype(np.int32)
    _sift(np.asarray(seq, np.int64), regions, keep, share, np.uint64(seed & (2**64 - 1)), kept, marked)
    return kept, marked


def piece_seed(seed: int, batch_first_seq: int, piece_first_seq: int) -> int:
    """The seed of a piece: the filter's, and where it lies."""
    mixed = mix64(np.uint64(piece_first_seq), np.uint64(seed & (2**64 - 1)))
    return int(mix64(np.uint64(batch_first_seq), np.uint64(mixed)))


@njit(cache=True, nogil=True)
def seq_hashes(seq: np.ndarray, seed: np.uint64) -> np.ndarray:
    """A hash of every `seq`."""
    found = np.empty(len(seq), np.uint64)
    for row in range(len(seq)):
        found[row] = mix64(np.uint64(seq[row]), seed)
    return found


@njit(cache=True, nogil=True)
def _sift(
    seq: np.ndarray,
    regions: np.ndarray,
    keep: np.ndarray,
    share: float,
    seed: np.uint64,
    kept: np.ndarray,
    marked: np.ndarray,
) -> None:
    rows = len(seq)
    order_seed = mix64(np.uint64(_ORDER), seed)
    # counting sort by region and hash; rows of one bucket stay in order of seq
    buckets = np.empty(rows, np.int32)
    ends = np.zeros((len(keep) << _HASH_BITS) + 1, np.int32)
    for row in range(rows):
        part = np.int64(mix64(np.uint64(seq[row]), order_seed) >> np.uint64(64 - _HASH_BITS))
        bucket = (np.int64(regions[row]) << _HASH_BITS) | part
        buckets[row] = bucket
        ends[bucket + 1] += 1
    for at in range(len(ends) - 1):
        ends[at + 1] += ends[at]
    order = np.empty(rows, np.int32)
    for row in range(rows):
        order[ends[buckets[row]]] = row
        ends[buckets[row]] += 1
    whole = 1.0 / 18446744073709551616.0
    remainder = np.float64(mix64(np.uint64(_START), seed)) * whole
    of_marks = np.float64(mix64(np.uint64(_MARK), seed)) * whole
    for at in range(rows):
        row = order[at]
        kept_share = keep[regions[row]]
        if kept_share <= 0.0:
            continue
        if kept_share < 1.0:
            remainder += kept_share
            if remainder < 1.0:
                continue
            remainder -= 1.0
        kept[row] = True
        of_marks += share / kept_share
        if of_marks >= 1.0:
            of_marks -= 1.0
            marked[row] = True


MOST_ASKED = 1024
"""A filter holds so many boxes of queries at most: 32 KB of them over two dimensions, before it is packed."""


@dataclass(frozen=True)
class AskedBoxes:
    """The boxes that rows of every region are looked for in."""

    boxes: np.ndarray
    """Of keys: by box and dimension the first, and the one behind the last."""
    ends: np.ndarray
    """Where in `listed` the boxes of every region begin, and the last ones end."""
    listed: np.ndarray

    @staticmethod
    def of(tree: RegionTree, boxes: np.ndarray, places: np.ndarray) -> AskedBoxes:
        """Boxes of keys, and the same as boxes of places."""
        sides = places[:, :, 1] - places[:, :, 0]
        order = np.argsort(-np.prod(sides, axis=1), kind="stable")
        boxes, places = np.ascontiguousarray(boxes[order]), np.ascontiguousarray(places[order])
        ends, none = np.zeros(tree.count + 1, np.int64), np.empty(0, np.int64)
        size = _reaching(tree.bounds, places, tree.space, ends, none)
        listed = np.empty(size, np.int64)
        _reaching(tree.bounds, places, tree.space, ends, listed)
        return AskedBoxes(boxes, ends, listed)

    def hold(self, keys: np.ndarray, regions: np.ndarray) -> np.ndarray:
        """Which rows some box holds; keys by dimension and row, and the region of every row."""
        found = np.zeros(keys.shape[1], bool)
        _hold(keys, regions, self.boxes, self.ends, self.listed, found)
        return found


def hold_any(boxes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Which rows some box holds, without regions: of rows in order a box looks at those within its first side alone.

    >>> hold_any(np.array([[[10, 30]]]), np.array([[29, 9, 30, 10]])).tolist()
    [True, False, False, True]
    """
    order = np.argsort(keys[0], kind="stable")
    found = np.zeros(keys.shape[1], bool)
    _mark(np.ascontiguousarray(keys[:, order]), np.ascontiguousarray(boxes), found)
    held = np.empty_like(found)
    held[order] = found
    return held


def throttle_of_asked(throttle: float, unasked: float, most: float) -> float:
    """What share of the rows that are asked for there is room for, once others go as far as they may (`most`).

    >>> throttle_of_asked(0.5, 0.25, 1.0), throttle_of_asked(0.5, 0.75, 1.0), throttle_of_asked(0.5, 0.0, 1.0)
    (0.6666666666666667, 1.0, 0.5)
    >>> throttle_of_asked(0.25, 0.5, 0.75), throttle_of_asked(0.5, 1.0, 0.75)  # a part of the others stays as sample
    (0.25, 1.0)
    """
    if unasked >= 1.0:
        return 1.0
    return 1.0 - min(1.0, max(0.0, (1.0 - throttle) - unasked * most) / (1.0 - unasked))


@njit(cache=True, nogil=True)
def _reaching(
    bounds: np.ndarray, boxes: np.ndarray, space: np.ndarray, ends: np.ndarray, listed: np.ndarray
) -> int:
    """Fill `ends`, and `listed` as far as there is room, with the boxes that may hold rows of regions.

    Both ends count on both sides, and the line's ends reach as far as anything: one box too many costs time, one too
    few would cost rows.
    """
    found = 0
    for region in range(len(bounds)):
        ends[region] = found
        for box in range(len(boxes)):
            reaches = True
            for d in range(bounds.shape[1]):
                low, high = bounds[region, d, 0], bounds[region, d, 1]
                reaches = reaches and (boxes[box, d, 1] >= low or low <= space[d, 0])
                reaches = reaches and (boxes[box, d, 0] <= high or high >= space[d, 1])
            if reaches:
                if found < len(listed):
                    listed[found] = box
                found += 1
    ends[len(bounds)] = found
    return found


@njit(cache=True, nogil=True)
def _within(keys: np.ndarray, row: int, boxes: np.ndarray, box: int) -> bool:
    for d in range(keys.shape[0]):
        key = keys[d, row]
        if key < boxes[box, d, 0] or key >= boxes[box, d, 1]:
            return False
    return True


@njit(cache=True, nogil=True)
def _mark(keys: np.ndarray, boxes: np.ndarray, found: np.ndarray) -> None:
    for box in range(len(boxes)):
        first, last = np.searchsorted(keys[0], boxes[box, 0, 0]), np.searchsorted(keys[0], boxes[box, 0, 1])
        for row in range(first, last):
            if not found[row]:
                found[row] = _within(keys, row, boxes, box)


@njit(cache=True, nogil=True)
def _hold(
    keys: np.ndarray,
    regions: np.ndarray,
    boxes: np.ndarray,
    ends: np.ndarray,
    listed: np.ndarray,
    found: np.ndarray,
) -> None:
    for row in range(keys.shape[1]):
        region = regions[row]
        for at in range(ends[region], ends[region + 1]):
            if _within(keys, row, boxes, listed[at]):
                found[row] = True
                break


MUST_KEEP = -1
"""The region of rows that a rule keeps."""


@dataclass(frozen=True)
class SifterFilter:
    """What decides which rows go."""

    layout: Layout
    tree: RegionTree
    thresholds: np.ndarray
    """By region (d); the last of those that no query asks for, where queries are in the filter."""
    keep_dimensions: tuple[Dimension, ...] = ()
    keep: tuple[Product, ...] = ()
    share: float = 0.0
    """Of all rows, what is marked as sample (sigma)."""
    seed: int = 1
    asked: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 2), np.int64))
    """The boxes of all queries, of keys; none: rows that no query asks for go as their region does."""

    @property
    def count(self) -> int:
        """The number of regions, that of the rows which no query asks for among them."""
        return self.tree.count + self.tells_unasked

    @property
    def tells_unasked(self) -> bool:
        """Whether rows that no query asks for are a region of their own: the one behind those of the tree."""
        return len(self.asked) > 0

    @cached_property
    def _asked_by_region(self) -> AskedBoxes:
        return AskedBoxes.of(self.tree, self.asked, self.layout.boxes(self.asked))

    @property
    def columns(self) -> tuple[str, ...]:
        """The attributes that it reads."""
        return tuple(dict.fromkeys([*self.layout.names, *(one.name for one in self.keep_dimensions)]))

    @property
    def weights(self) -> np.ndarray:
        """By region, how many rows one that is kept stands for; the last: what must be kept."""
        keep = 1.0 - self.thresholds
        return np.append(np.divide(1.0, keep, out=np.zeros_like(keep), where=keep > 0), 1.0)

    def with_thresholds(self, thresholds: np.ndarray) -> SifterFilter:
        """The same regions with others."""
        return replace(self, thresholds=np.asarray(thresholds, float))

    def regions_of(self, rows: pa.Table) -> np.ndarray:
        """The region of every row; `MUST_KEEP` of what a rule keeps."""
        at = self.layout.keys(rows)
        found = self.tree.regions_of(self.layout.places(at))
        if self.tells_unasked:
            found[~self._asked_by_region.hold(at, found)] = self.tree.count
        if self.keep:
            keys = [one.keys_of(rows[one.name]) for one in self.keep_dimensions]
            found = np.where(products_hold(self.keep, keys), np.int32(MUST_KEEP), found)
        return found

    def decide(
        self, seq: np.ndarray, regions: np.ndarray, batch_first_seq: int, piece_first_seq: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of the rows of a piece, which are kept and which of them marked."""
        seed = piece_seed(self.seed, batch_first_seq, piece_first_seq)
        return sifted(seq, regions, self.thresholds, self.share, seed)

    def to_bytes(self) -> bytes:
        """The filter, packed."""
        told = {
            "lines": [line.to_dict() for line in self.layout.lines],
            "space": self.tree.space.tolist(),
            "axes": self.tree.axes.tolist(),
            "cuts": self.tree.cuts.tolist(),
            "children": self.tree.children.tolist(),
            "thresholds": self.thresholds.tolist(),
            "keep_dimensions": [asdict(one) for one in self.keep_dimensions],
            "keep": [sorted(one.items()) for one in self.keep],
            "share": self.share,
            "seed": self.seed,
            "asked": self.asked.tolist(),
        }
        return zlib.compress(json.dumps(told, separators=(",", ":")).encode(), 9)

    @staticmethod
    def from_bytes(packed: bytes, where: str = "") -> SifterFilter:
        """The filter that was packed."""
        try:
            told = json.loads(zlib.decompress(packed))
            return SifterFilter(
                Layout(tuple(Axis.from_dict(line) for line in told["lines"])),
                tree_from(told),
                np.array(told["thresholds"], float),
                tuple(_dimension(one) for one in told["keep_dimensions"]),
                tuple(
                    {int(place): tuple((a, b) for a, b in spans) for place, spans in one}
                    for one in told["keep"]
                ),
                float(told["share"]),
                int(told["seed"]),
                np.array(told.get("asked", []), np.int64).reshape(-1, len(told["lines"]), 2),
            )
        except (ValueError, KeyError, TypeError, zlib.error) as problem:
            raise RefusedElsewhere(
                "payload", "be a packed filter", packed[:16], "shed its batch again", where
            ) from problem


def tree_from(told: Mapping[str, Any]) -> RegionTree:
    """A tree from plain values."""
    return RegionTree(
        np.array(told["space"], float).reshape(-1, 2),
        np.array(told["axes"], np.int32),
        np.array(told["cuts"], float),
        np.array(told["children"], np.int32).reshape(-1, 2),
    )


def _dimension(told: Mapping[str, Any]) -> Dimension:
    return Dimension(**{**told, "words": tuple(told["words"])})

"""Decide which rows are dropped: the filter, its thresholds by region, and the selection of rows (II-D).

A filter (`SifterFilter`) is plain values in a compressed JSON document: a few kilobytes for a hundred regions and some
queries. It contains predicates as spans and boxes of keys, so that applying it parses no SQL. The filter number 0 is
the trivial filter, which keeps all rows.

Selecting rows: error diffusion instead of random numbers (IV-A.1).

Gedik, Wu and Yu (2008) keep two counters per region, and drop a row when the dropped share is behind the threshold.
Here rows are processed in pieces, each a fixed range of `seq`. Within a piece, rows are ordered by region, a seeded
hash of `seq`, and `seq`. One running remainder carries the error from row to row:

    remainder += 1 - d(region);   keep the row and subtract 1 when the remainder reaches 1

The remainder starts at a hash of the piece's number. So for every piece, regardless of the order of arrival:

- The number of kept rows of each region is within one of (1 - d) times its rows. The total over all regions is also
  within one of its sum, because the remainder continues from region to region.
- Over random seeds, each row is kept with probability exactly 1 - d, so 1/(1 - d) is an unbiased weight.
- If two keys alternate, both lose the same share. In order of arrival, d = 1/2 would drop all rows of one of them.
- Recomputing a piece on any machine keeps the same rows, because the decision depends on no row outside the piece.

A share of all rows (sigma) is also *marked*. In each region the number of marked rows is within one of sigma times its
rows, for any thresholds. Thresholds are at most 1 - sigma, so every marked row is kept. Marked rows are the
sample that the filter does not bias (II-E).

>>> seq, regions = np.arange(1000), np.zeros(1000, np.int32)
>>> kept, marked = sift_rows(seq, regions, np.array([0.75]), 0.1, 7)
>>> int(kept.sum()), int(marked.sum()), bool(np.all(kept[marked]))
(250, 100, True)

Rows that no query asks for: they are dropped before all other rows, in every region.

The paper drops by region. In a region that any query touches, it drops rows that queries ask for and rows that none
asks for at the same rate. But if the filter contains the queries, it can tell for each row whether a query asks for it.
So here the rows that no query asks for form a region of their own. This region has no worth and is exempt from the
fairness Delta. The other regions are built and configured for the remaining rows only:

    u: the share of the rows that no query asks for;  most: the largest allowed threshold
    share of the requested rows to drop:  max(0, (1 - z) - u most) / (1 - u)

If all requested rows fit, every query gets all of its rows. There are two conditions. The filter must contain the
queries, which is possible for a few hundred boxes but not for many thousands (`MOST_ASKED`). And the queries must be
complete: if they are only examples of the requests, such as a log, use `unqueried: by_region`.

A row is searched only among the boxes that reach into its region, largest boxes first. The search compares keys, not
places, so a row counts as requested exactly if a query's condition is true for it.

>>> tree = RegionTree.from_splits(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
>>> boxes, places = np.array([[[10, 30]], [[50, 51]]]), np.array([[[0.1, 0.3]], [[0.5, 0.51]]])
>>> of = QueryBoxIndex.of(tree, boxes, places)
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

from spillway.errors import InvalidExternalValue, InvalidValue
from spillway.levers.sifters.boxes import Product, products_contain
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.regions import Axis, Layout, RegionTree
from spillway.sketches.kernels import mix64

PIECE_SEQS = 65_536
"""The length of a piece in `seq`. A piece is read whole to decide any of its rows."""
_HASH_BITS = 8
_ORDER, _START, _MARK = 0x5163D1, 0x0F00D5, 0x3A2C11
"""Constants that derive independent hashes from one seed."""


def piece_of(seq: int, first_seq: int) -> tuple[int, int]:
    """Return the first and the last `seq` of the piece that contains a `seq` of a batch.

    >>> piece_of(70_000, 100)
    (65636, 131171)
    """
    begin = first_seq + (seq - first_seq) // PIECE_SEQS * PIECE_SEQS
    return begin, begin + PIECE_SEQS - 1


def sift_rows(
    seq: np.ndarray, regions: np.ndarray, thresholds: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of a piece whether it is kept, and whether it is marked.

    `regions`: the region of each row; -1: the row must be kept. `share`: the share of the rows to mark (sigma).
    `seed`: the seed of the filter and the piece (`piece_seed`).
    """
    highest = float(np.max(thresholds, initial=0.0))
    if not 0.0 <= share <= 1.0 or highest > 1.0 - share + 1e-9:
        raise InvalidValue(
            "thresholds",
            f"be at most {1.0 - share:.6g}, for a share of {share:g} of all rows is kept as sample",
            highest,
            "configure the regions with that limit",
        )
    kept, marked = np.zeros(len(seq), bool), np.zeros(len(seq), bool)
    keep = np.append(1.0 - np.asarray(thresholds, float), 1.0)  # the last entry: rows that must be kept
    regions = np.where(np.asarray(regions) < 0, len(keep) - 1, regions).astype(np.int32)
    _sift(np.asarray(seq, np.int64), regions, keep, share, np.uint64(seed & (2**64 - 1)), kept, marked)
    return kept, marked


def piece_seed(seed: int, batch_first_seq: int, piece_first_seq: int) -> int:
    """Return the seed of a piece: a hash of the filter's seed and the piece's position."""
    mixed = mix64(np.uint64(piece_first_seq), np.uint64(seed & (2**64 - 1)))
    return int(mix64(np.uint64(batch_first_seq), np.uint64(mixed)))


@njit(cache=True, nogil=True)
def seq_hashes(seq: np.ndarray, seed: np.uint64) -> np.ndarray:
    """Return a hash of each `seq`."""
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
"""The maximum number of query boxes in a filter: 32 kB for two dimensions, before compression."""


@dataclass(frozen=True)
class QueryBoxIndex:
    """The boxes of queries, indexed by the regions that they reach into."""

    boxes: np.ndarray
    """Boxes of keys: for each box and dimension the first key, and the key after the last."""
    ends: np.ndarray
    """The offset in `listed` at which the boxes of each region begin; the last entry is the end."""
    listed: np.ndarray

    @staticmethod
    def of(tree: RegionTree, boxes: np.ndarray, places: np.ndarray) -> QueryBoxIndex:
        """Build the index from the boxes as keys (`boxes`) and as places (`places`)."""
        sides = places[:, :, 1] - places[:, :, 0]
        order = np.argsort(-np.prod(sides, axis=1), kind="stable")
        boxes, places = np.ascontiguousarray(boxes[order]), np.ascontiguousarray(places[order])
        ends, none = np.zeros(tree.count + 1, np.int64), np.empty(0, np.int64)
        size = _reaching(tree.bounds, places, tree.space, ends, none)
        listed = np.empty(size, np.int64)
        _reaching(tree.bounds, places, tree.space, ends, listed)
        return QueryBoxIndex(boxes, ends, listed)

    def hold(self, keys: np.ndarray, regions: np.ndarray) -> np.ndarray:
        """Return for each row whether any box holds it; `keys` by dimension and row, `regions` by row."""
        found = np.zeros(keys.shape[1], bool)
        _hold(keys, regions, self.boxes, self.ends, self.listed, found)
        return found


def is_in_any_box(boxes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return for each row whether any box holds it, without an index of regions.

    Rows are sorted by the first dimension, so each box inspects only the rows within its first side.

    >>> is_in_any_box(np.array([[[10, 30]]]), np.array([[29, 9, 30, 10]])).tolist()
    [True, False, False, True]
    """
    order = np.argsort(keys[0], kind="stable")
    found = np.zeros(keys.shape[1], bool)
    _mark(np.ascontiguousarray(keys[:, order]), np.ascontiguousarray(boxes), found)
    held = np.empty_like(found)
    held[order] = found
    return held


def requested_throttle(throttle: float, unqueried: float, most: float) -> float:
    """Return the share of the requested rows that fits after up to the share `most` of the other rows is dropped.

    >>> requested_throttle(0.5, 0.25, 1.0), requested_throttle(0.5, 0.75, 1.0), requested_throttle(0.5, 0.0, 1.0)
    (0.6666666666666667, 1.0, 0.5)
    >>> requested_throttle(0.25, 0.5, 0.75), requested_throttle(0.5, 1.0, 0.75)  # a part of the others stays as sample
    (0.25, 1.0)
    """
    if unqueried >= 1.0:
        return 1.0
    return 1.0 - min(1.0, max(0.0, (1.0 - throttle) - unqueried * most) / (1.0 - unqueried))


@njit(cache=True, nogil=True)
def _reaching(
    bounds: np.ndarray, boxes: np.ndarray, space: np.ndarray, ends: np.ndarray, listed: np.ndarray
) -> int:
    """Fill `ends` and `listed` with the boxes that may hold rows of each region; return the size that `listed` needs.

    Bounds are compared inclusively, and the ends of a line extend to infinity: an extra box costs time, but a missing
    box would lose rows.
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
"""The region number of rows that a `keep` rule keeps."""


@dataclass(frozen=True)
class SifterFilter:
    """A filter: the regions, their thresholds, and the rules that decide which rows are dropped."""

    layout: Layout
    tree: RegionTree
    thresholds: np.ndarray
    """The threshold of each region (d). If the filter contains queries, the last is of rows that no query asks for."""
    keep_dimensions: tuple[Dimension, ...] = ()
    keep: tuple[Product, ...] = ()
    share: float = 0.0
    """The share of all rows that is marked as sample (sigma)."""
    seed: int = 1
    query_boxes: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 2), np.int64))
    """The boxes of all queries, as keys. If empty, rows that no query asks for are dropped as their region is."""

    @property
    def count(self) -> int:
        """Return the number of regions, including the region of the rows that no query asks for."""
        return self.tree.count + self.has_unrequested_region

    @property
    def has_unrequested_region(self) -> bool:
        """Return whether rows that no query asks for are a region of their own, numbered after those of the tree."""
        return len(self.query_boxes) > 0

    @cached_property
    def _asked_by_region(self) -> QueryBoxIndex:
        return QueryBoxIndex.of(self.tree, self.query_boxes, self.layout.boxes(self.query_boxes))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the attributes that the filter reads."""
        return tuple(dict.fromkeys([*self.layout.names, *(one.name for one in self.keep_dimensions)]))

    @property
    def weights(self) -> np.ndarray:
        """Return the weight of a kept row by region: 1 / (1 - d); the last entry is for rows that must be kept."""
        keep = 1.0 - self.thresholds
        return np.append(np.divide(1.0, keep, out=np.zeros_like(keep), where=keep > 0), 1.0)

    def with_thresholds(self, thresholds: np.ndarray) -> SifterFilter:
        """Return the same regions with other thresholds."""
        return replace(self, thresholds=np.asarray(thresholds, float))

    def regions_of(self, rows: pa.Table) -> np.ndarray:
        """Return the region of each row; `MUST_KEEP` for a row that a rule keeps."""
        at = self.layout.keys(rows)
        found = self.tree.regions_of(self.layout.places(at))
        if self.has_unrequested_region:
            found[~self._asked_by_region.hold(at, found)] = self.tree.count
        if self.keep:
            keys = [one.keys_of(rows[one.name]) for one in self.keep_dimensions]
            found = np.where(products_contain(self.keep, keys), np.int32(MUST_KEEP), found)
        return found

    def decide(
        self, seq: np.ndarray, regions: np.ndarray, batch_first_seq: int, piece_first_seq: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return for each row of a piece whether it is kept, and whether it is marked."""
        seed = piece_seed(self.seed, batch_first_seq, piece_first_seq)
        return sift_rows(seq, regions, self.thresholds, self.share, seed)

    def to_bytes(self) -> bytes:
        """Serialise the filter as compressed JSON."""
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
            "asked": self.query_boxes.tolist(),
        }
        return zlib.compress(json.dumps(told, separators=(",", ":")).encode(), 9)

    @staticmethod
    def from_bytes(packed: bytes, where: str = "") -> SifterFilter:
        """Read a filter that `to_bytes` wrote."""
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
            raise InvalidExternalValue(
                "payload", "be a packed filter", packed[:16], "shed its batch again", where
            ) from problem


def tree_from(told: Mapping[str, Any]) -> RegionTree:
    """Return a region tree from plain values."""
    return RegionTree(
        np.array(told["space"], float).reshape(-1, 2),
        np.array(told["axes"], np.int32),
        np.array(told["cuts"], float),
        np.array(told["children"], np.int32).reshape(-1, 2),
    )


def _dimension(told: Mapping[str, Any]) -> Dimension:
    return Dimension(**{**told, "words": tuple(told["words"])})

"""The filter: regions with their thresholds, small enough to be sent, and all that deciding a row takes (II-D).

It is plain values, packed: a few kilobytes at a hundred regions and some queries. Predicates are in it as spans and
boxes of keys, so that whoever sifts parses no SQL. Number 0 is the trivial filter, which keeps everything.
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

from spillway.errors import RefusedElsewhere
from spillway.levers.sifters.boxes import Product, products_hold
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.layout import Axis, Layout
from spillway.levers.sifters.regions import RegionTree
from spillway.levers.sifters.sift import piece_seed, sifted
from spillway.levers.sifters.unasked import AskedBoxes

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

"""Ranges and quantiles: one count-min table a level of the dyadic tree over the values' order.

A value is mapped to one of 2^B cells that keep its order; level l counts the cells' first l bits. Any range of cells
is the disjoint union of at most two nodes a level, so its count is a sum of at most 2 B mean-corrected point
estimates, and a quantile is a descent from the root. Levels of at most w nodes are counted exactly.

The order code of a real number is the top B bits of its IEEE image made monotone (sign flipped, negatives inverted):
no range has to be known beforehand, days merge, and a cell is 2^(12 - B) of the value wide, relatively. With B = 32
that is one millionth. Nulls and NaN have no order: they are counted apart.

The text names these uses of CMM (4.1, 4.5) and leaves them open; estimates and intervals are ours: each level is
a `CountMin` that chooses its estimator and knows its noise, levels have independent hashes, so the nodes' intervals
add in quadrature.

>>> sketch = Dyadic(DyadicParameters(width=256, depth=3, bits=32)).update(np.arange(1.0, 101.0))
>>> sketch.quantile(0.5).estimate, sketch.between(11.0, 20.0).estimate
(50.0, 10.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spillway.errors import Refused
from spillway.sketches import binary
from spillway.sketches.answers import Answer
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.forms import ArrayForm, checked_numbers, checked_parameters
from spillway.sketches.hashing import check_seed, row_seeds
from spillway.sketches.types import Floats, Integers, Keys, require_same

METHOD = "dyadic_cmm"
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class DyadicParameters:
    """`width` (w), `depth` (d) a level, `bits` (B) of order kept, and the hash seed."""

    width: int
    depth: int
    bits: int = 32
    seed: int = 1

    def __post_init__(self) -> None:
        if not 16 <= self.width < 1 << 31:
            raise Refused("width", "lie from 16 to 2^31 - 1", self.width, "give it more memory or less")
        if not 1 <= self.depth <= 64:
            raise Refused("depth", "lie from 1 to 64", self.depth, "3 rows a level do")
        if not 12 <= self.bits <= 62:
            raise Refused("bits", "lie from 12 to 62", self.bits, "32 bits keep one millionth of a value")
        check_seed(self.seed)

    @property
    def exact_bits(self) -> int:
        """Levels down to this one are counted exactly, one counter a node."""
        return min(int(self.width).bit_length() - 1, self.bits)

    @property
    def memory_bytes(self) -> int:
        return 8 * ((1 << self.exact_bits) + (self.bits - self.exact_bits) * self.depth * self.width)


def order_code(values: Floats, bits: int) -> Keys:
    """The cell of each value: a monotone map of the reals to 0 .. 2^bits - 1."""
    image = (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    code = np.where(image & _SIGN, ~image, image | _SIGN)
    return code >> np.uint64(64 - bits)


def cell_edges(code: int, bits: int) -> tuple[float, float]:
    """The least and the greatest value of a cell."""
    shift = 64 - bits
    edges = []
    for image in (code << shift, ((code + 1) << shift) - 1):
        raw = image ^ (1 << 63) if image >> 63 else ~image & ((1 << 64) - 1)
        edges.append(float(np.array([raw], dtype=np.uint64).view(np.float64)[0]))
    return edges[0], edges[1]


class Dyadic(binary.StoredSketch):
    """Counts over an ordered attribute."""

    kind = "quantiles"

    def __init__(self, parameters: DyadicParameters) -> None:
        self.parameters = parameters
        count = parameters.bits - parameters.exact_bits
        seeds = row_seeds(parameters.seed, count, purpose=3)
        self.levels = [
            CountMin(CountMinParameters(parameters.width, parameters.depth, int(seed))) for seed in seeds
        ]
        self.exact: Integers = np.zeros(1 << parameters.exact_bits, dtype=np.int64)
        self.total = 0
        self.unordered = 0

    def update(self, values: object, valid: object = None) -> Dyadic:
        """Add values; those not `valid`, and NaN, are counted in `unordered` only."""
        numbers = np.asarray(values, dtype=np.float64)
        good = ~np.isnan(numbers)
        if valid is not None:
            good &= np.asarray(valid, dtype=np.bool_)
        p = self.parameters
        codes = order_code(numbers[good], p.bits)
        np.add.at(self.exact, codes >> np.uint64(p.bits - p.exact_bits), 1)
        for level, counts in enumerate(self.levels, start=p.exact_bits + 1):
            counts.update(codes >> np.uint64(p.bits - level))
        self.total += codes.size
        self.unordered += numbers.size - codes.size
        return self

    def merge(self, other: Dyadic) -> Dyadic:
        """The sketch of both streams together."""
        require_same(self.kind, self.parameters, other.parameters)
        merged = Dyadic(self.parameters)
        merged.context = self.shared_context(other)
        merged.exact = self.exact + other.exact
        merged.levels = [mine.merge(theirs) for mine, theirs in zip(self.levels, other.levels, strict=True)]
        merged.total = self.total + other.total
        merged.unordered = self.unordered + other.unordered
        return merged

    def _node(self, level: int, prefix: int, confidence: float) -> tuple[float, float]:
        """The count of one node and how far it may be off."""
        p = self.parameters
        if level <= p.exact_bits:
            span = p.exact_bits - level
            return float(self.exact[prefix << span : (prefix + 1) << span].sum()), 0.0
        key = np.array([prefix], dtype=np.uint64)
        found = self.levels[level - p.exact_bits - 1].point(key, "auto", confidence)
        middle = float(found.estimate[0])
        return middle, max(float(found.high[0]) - middle, middle - float(found.low[0]))

    def _rank(self, code: int, confidence: float) -> tuple[float, float]:
        """How many values lie in cells below `code`, and how far that may be off, squared."""
        bits = self.parameters.bits
        if code >= 1 << bits:
            return float(self.total), 0.0
        count = reach_squared = 0.0
        for level in range(1, bits + 1):
            prefix = code >> (bits - level)
            if prefix & 1:
                node, reach = self._node(level, prefix - 1, confidence)
                count += node
                reach_squared += reach * reach
        return min(count, float(self.total)), reach_squared

    def between(self, low: float, high: float, confidence: float = 0.95) -> Answer:
        """How many values lie from `low` to `high`, both included, to the width of a cell."""
        if not low <= high:
            raise Refused("range", "have its low end first", (low, high), "swap the ends; NaN has no order")
        bits = self.parameters.bits
        first, last = (int(order_code(np.array([edge]), bits)[0]) for edge in (low, high))
        above, reach_above = self._rank(last + 1, confidence)
        below, reach_below = self._rank(first, confidence)
        reach = (reach_above + reach_below) ** 0.5
        estimate = min(max(above - below, 0.0), float(self.total))
        return Answer(
            estimate, max(estimate - reach, 0.0), min(estimate + reach, float(self.total)), confidence, METHOD
        )

    def _descend(self, rank: float, confidence: float) -> tuple[int, float]:
        """The cell in which the `rank`-th value lies (1-based), and how far the rank may be off."""
        bits = self.parameters.bits
        prefix, before, here, reach_squared = 0, 0.0, float(self.total), 0.0
        for level in range(1, bits + 1):
            node, reach = self._node(level, prefix << 1, confidence)
            # a node's estimate must not promise more than its parent has left
            left = min(node, here)
            reach_squared += min(reach, here) ** 2
            if rank <= before + left:
                prefix, here = prefix << 1, left
            else:
                prefix, before, here = (prefix << 1) | 1, before + left, here - left
        return prefix, reach_squared**0.5

    def quantile(self, share: float, confidence: float = 0.95) -> Answer:
        """The least value (to its cell) with at least `share` of the values at or below it."""
        if not 0.0 <= share <= 1.0:
            raise Refused("share", "lie from 0 to 1", share, "write 0.5 for the median")
        if self.total == 0:
            raise Refused(
                "stream", "have ordered values", f"{self.unordered} nulls or NaN", "sketch some values"
            )
        rank = max(float(np.ceil(share * self.total)), 1.0)
        code, reach = self._descend(rank, confidence)
        low_code, _ = self._descend(max(rank - reach, 1.0), confidence)
        high_code, _ = self._descend(min(rank + reach, float(self.total)), confidence)
        bits = self.parameters.bits
        edges = cell_edges(code, bits)
        # numbers of few digits are the edges of cells nearer to zero
        estimate = edges[0] if edges[0] >= 0 else edges[1]
        low, high = cell_edges(low_code, bits)[0], cell_edges(high_code, bits)[1]
        return Answer(estimate, low, high, confidence, METHOD)

    @property
    def shape(self) -> dict[str, Any]:
        return asdict(self.parameters)

    def scalars(self) -> dict[str, int]:
        return {"total": self.total, "unordered": self.unordered}

    def arrays(self) -> dict[str, Any]:
        return {"exact": self.exact, "tables": np.stack([counts.table for counts in self.levels])}

    @classmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        parameters = checked_parameters(DyadicParameters, shape)
        checked_numbers(scalars, {"total": 0, "unordered": 0})
        levels = parameters.bits - parameters.exact_bits
        return {
            "exact": ArrayForm("int64", (1 << parameters.exact_bits,), 0),
            "tables": ArrayForm("int64", (levels, parameters.depth, parameters.width)),
        }

    @classmethod
    def restored(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Dyadic:
        sketch, stored = cls(checked_parameters(DyadicParameters, dict(shape))), arrays["tables"]
        total = int(scalars["total"])
        counters = {"total": total, "updates": total, "absolute": total}
        sketch.levels = [
            CountMin.restored(counts.shape, counters, {"table": table})
            for counts, table in zip(sketch.levels, stored, strict=True)
        ]
        sketch.exact = arrays["exact"]
        sketch.total, sketch.unordered = total, int(scalars["unordered"])
        return sketch

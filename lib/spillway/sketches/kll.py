"""KLL quantile sketches in the format of Apache DataSketches, which Spark's `kll_sketch_*` functions read as well.

A sketch has items in levels. An item of level h represents 2^h values (Karnin, Lang, Liberty 2016). DataSketches states
a rank error of at most 2.296 / k^0.9723 of N with 99 % confidence, and 2.446 / k^0.9433 for a range.

Difference from DataSketches: its algorithm compacts a stream while it passes, by random choices that cannot be seeded.
So the same rows would give other bytes on every run. Here a batch is available as a whole. Its values are sorted, and
every item is the middle one of 2^h neighbours. This has no random choice. The rank error is at most 2^h / 2 <= N / k.
This is less than half of the bound of DataSketches at this k, and the sketch has a third of the bytes. The answers
state the bound of DataSketches, which holds for its own sketches as well.

Merging takes the union of the items and loses nothing. `narrowed` compacts the result. Slices have the same boundaries
on every machine, so the bytes are the same.

Floats are stored as doubles. Integers, dates (days since 1970) and timestamps (microseconds since 1970) are stored as
64-bit integers. NaN and null have no order and are not counted.

>>> sketch = Kll(KllParameters(k=8, integers=True)).update(np.arange(100))
>>> sketch.compacted_to(8).quantiles([0.0, 0.5, 1.0]).tolist(), sketch.compacted_to(8).n
([0, 55, 99], 100)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.errors import InvalidValue
from spillway.sketches.binary import LibrarySketch
from spillway.sketches.payload_checks import REBUILD, refuse_malformed
from spillway.sketches.types import Floats, Integers, require_same

LEAST_K, MOST_K = 8, 65535
_M = 8
_FRONT = struct.Struct("<BBBBHBB")
_WHOLE = struct.Struct("<QHBB")
_EMPTY, _SINGLE, _SORTED = 1, 4, 2
_INTEGERS = 1
_TYPES = {2: "integer", 3: "timestamp", 4: "date", 5: "boolean", 6: "double"}
"""Codes for the type of the values, in a byte that DataSketches does not use; `_INTEGERS` means any 64-bit integer."""
_SETTLE = 1 << 22
OrderedItems = npt.NDArray[Any]


@dataclass(frozen=True)
class KllParameters:
    """`k`, which is about the number of items, and whether these are 64-bit integers or doubles."""

    k: int
    integers: bool = False

    def __post_init__(self) -> None:
        if not LEAST_K <= self.k <= MOST_K:
            raise InvalidValue("k", f"lie from {LEAST_K} to {MOST_K}", self.k, "give it more memory or less")

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<i8" if self.integers else "<f8")


def rank_error(k: int, of_range: bool = False) -> float:
    """Return the bound of DataSketches for the error of a rank, or of a range, as a share of N with 99 % confidence.

    >>> round(100 * rank_error(200), 2), round(100 * rank_error(200, of_range=True), 2)
    (1.33, 1.65)
    """
    return 2.446 / k**0.9433 if of_range else 2.296 / k**0.9723


class Kll(LibrarySketch):
    """Items in ascending order, each with its weight: the number of values that it represents."""

    kind = "quantiles"
    family = 15

    def __init__(self, parameters: KllParameters) -> None:
        self.parameters = parameters
        self._items: OrderedItems = np.empty(0, parameters.dtype)
        self._weights: Integers = np.empty(0, np.int64)
        self._pending: list[OrderedItems] = []
        self.least: Any = None
        self.greatest: Any = None
        self.blurred = 0
        """The number of values in compacted sketches. Only these values contribute to the rank error."""

    def update(self, values: object) -> Kll:
        """Add values; NaN is ignored."""
        given = np.asarray(values)
        if given.dtype.kind == "f":
            given = given[~np.isnan(given)] + 0.0
        if given.size:
            self._pending.append(given.astype(self.parameters.dtype))
            if sum(chunk.size for chunk in self._pending) > _SETTLE:
                self._settle()
                self._compact(16 * self.parameters.k)
        return self

    @property
    def n(self) -> int:
        """N, the number of values that were added."""
        self._settle()
        return int(self._weights.sum())

    @property
    def items(self) -> OrderedItems:
        """The items in ascending order."""
        self._settle()
        return self._items

    @property
    def weights(self) -> Integers:
        """The number of values that each item represents."""
        self._settle()
        return self._weights

    def _settle(self) -> None:
        if self._pending:
            fresh = np.concatenate(self._pending)
            self._pending = []
            fresh.sort()
            # merge into the sorted items, which is much faster than to sort both together
            places = np.searchsorted(self._items, fresh, side="right") + np.arange(fresh.size)
            size = self._items.size + fresh.size
            old = np.ones(size, np.bool_)
            old[places] = False
            items, weights = np.empty(size, self.parameters.dtype), np.ones(size, np.int64)
            items[places], items[old], weights[old] = fresh, self._items, self._weights
            self._items, self._weights = items, weights
            self._reach(fresh[0], fresh[-1])

    def _take(self, items: OrderedItems, weights: Integers, least: Any, greatest: Any) -> None:
        items, weights = np.concatenate([self._items, items]), np.concatenate([self._weights, weights])
        order = np.argsort(items, kind="stable")
        self._items, self._weights = items[order], weights[order]
        self._reach(least, greatest)

    def _reach(self, least: Any, greatest: Any) -> None:
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def _compact(self, most: int) -> None:
        """Keep the middle values of at most `most` blocks of 2^h neighbours, and of smaller blocks of the remainder."""
        n = int(self._weights.sum())
        if self._items.size <= most:
            return
        height = max((n // most).bit_length() - 1, 0)
        height += (n >> height) > most
        # whole blocks first, then the remainder in blocks of descending powers of two
        sizes = [np.full(n >> height, 1 << height)]
        sizes += [np.array([1 << low]) for low in reversed(range(height)) if n >> low & 1]
        weights = np.concatenate(sizes).astype(np.int64)
        middles = np.cumsum(weights) - weights + (weights - 1) // 2
        self._items = self._items[np.searchsorted(np.cumsum(self._weights), middles, side="right")]
        self._weights = weights
        self.blurred = n

    def compacted_to(self, k: int) -> Kll:
        """Return the sketch compacted to at most about `k` items."""
        found = Kll(KllParameters(k, self.parameters.integers))
        found.context = self.context
        if self.n:
            found._take(self.items, self.weights, self.least, self.greatest)
            found.blurred = self.blurred
            found._compact(k)
        return found

    def merge(self, other: Kll) -> Kll:
        """Return the sketch of both, with all items of both; `narrowed` reduces its size."""
        require_same(self.kind, self.parameters.integers, other.parameters.integers)
        found = Kll(KllParameters(min(self.parameters.k, other.parameters.k), self.parameters.integers))
        # old payloads, and those of DataSketches, do not state the type of their values
        found.context = (
            self.shared_context(other) if self._type and other._type else self.context or other.context
        )
        for one in (self, other):
            if one.n:
                found._take(one.items, one.weights, one.least, one.greatest)
        found.blurred = self.blurred + other.blurred
        return found

    def error(self, of_range: bool = False) -> float:
        """Return the error bound of a rank, or of a range, as a number of values."""
        return rank_error(self.parameters.k, of_range) * self.blurred if self.n else 0.0

    def ranks(self, values: Sequence[Any], inclusive: bool = True) -> Integers:
        """Return the number of values at or below each of `values` (only below if not `inclusive`)."""
        before = np.concatenate([[0], np.cumsum(self.weights)])
        found: Integers = before[np.searchsorted(self.items, values, side="right" if inclusive else "left")]
        return found

    def quantiles(self, shares: Sequence[float]) -> OrderedItems:
        """Return, for each share, the least value with at least this share of all values at or below it."""
        if not self.n:
            raise InvalidValue("stream", "have ordered values", "nulls or NaN only", "sketch some values")
        ranks = np.clip(np.ceil(np.asarray(shares, np.float64) * self.n), 1, self.n)
        return self.at_ranks(ranks)

    def at_ranks(self, ranks: Floats | Integers) -> OrderedItems:
        """Return the values at the given ranks, from 1 to N; ranks 1 and N are exact."""
        places = np.searchsorted(np.cumsum(self.weights), ranks, side="left")
        found = self.items[np.minimum(places, self.items.size - 1)]
        found = np.where(np.asarray(ranks) <= 1, self.least, found)
        return np.where(np.asarray(ranks) >= self.n, self.greatest, found).astype(self.parameters.dtype)

    @property
    def shape(self) -> dict[str, Any]:
        return {"k": self.parameters.k, "types": list(self.context.get("types", ()))}

    def to_bytes(self) -> bytes:
        """Return the sketch in the format that DataSketches and Spark read."""
        p, n = self.parameters, self.n
        kinds = {kind: mark for mark, kind in _TYPES.items()}
        marked = kinds.get(self._type, _INTEGERS if p.integers else 0)
        if n == 0:
            return _FRONT.pack(2, 1, Kll.family, _EMPTY, p.k, _M, marked)
        if n == 1:
            return _FRONT.pack(2, 2, Kll.family, _SINGLE, p.k, _M, marked) + self.items.tobytes()
        whole = self if self._fits() else self.compacted_to(p.k)
        heights = np.log2(whole.weights).astype(np.int64)
        count = int(heights.max()) + 1
        levels = [whole.items[heights == level] for level in range(count)]
        room = _capacity(p.k, count)
        starts = np.cumsum([room - whole.items.size, *map(len, levels[:-1])]).astype("<u4")
        ends = np.array([self.least, self.greatest], p.dtype)
        front = _FRONT.pack(5, 1, Kll.family, _SORTED, p.k, _M, marked) + _WHOLE.pack(n, p.k, count, 0)
        return front + starts.tobytes() + ends.tobytes() + b"".join(level.tobytes() for level in levels)

    def _fits(self) -> bool:
        """Return whether all weights are powers of two and the items do not exceed the capacity of their levels."""
        powers = bool((self.weights & (self.weights - 1) == 0).all())
        count = int(self.weights.max()).bit_length()
        return powers and self.items.size <= _capacity(self.parameters.k, count)

    @classmethod
    def from_native(cls, payload: bytes, types: Sequence[str] = ()) -> Kll:
        """Read a sketch from bytes of DataSketches or of this module; the latter state the type if `types` is empty."""
        with refuse_malformed():
            if len(payload) < _FRONT.size:
                raise _bad("be a whole sketch", f"{len(payload)} bytes")
            told = tuple(types[:1]) or tuple(_TYPES[mark] for mark in (payload[7],) if mark in _TYPES)
            found = cls._read(payload, told[0] != "double" if told else payload[7] == _INTEGERS)
            found.context = {"attributes": [], "types": list(told)} if told else {}
            return found

    @property
    def _type(self) -> str:
        """The type of the values; "" if it is not known."""
        return next(iter(self.context.get("types", ())), "")

    @classmethod
    def _read(cls, payload: bytes, integers: bool) -> Kll:
        preamble, version, family, flags, k, m, _ = _FRONT.unpack_from(payload)
        if family != Kll.family or (preamble, version) not in ((2, 1), (2, 2), (5, 1)) or m != _M:
            raise _bad("begin as a KLL sketch does", payload[: _FRONT.size].hex())
        sketch, at = cls(KllParameters(k, integers)), _FRONT.size
        if flags & _EMPTY:
            return sketch._of_all(payload, at)
        if version == 2:
            sketch.update(np.frombuffer(payload, sketch.parameters.dtype, 1, at))
            return sketch._of_all(payload, at + 8)
        n, _, count, _ = _WHOLE.unpack_from(payload, at)
        at += _WHOLE.size
        if not 1 <= count <= 62 or n < 2:
            raise _bad("have 1 to 62 levels", (count, n))
        starts = np.frombuffer(payload, "<u4", count, at).astype(np.int64)
        at += 4 * count
        ends = np.frombuffer(payload, sketch.parameters.dtype, 2, at)
        edges = np.append(starts, _capacity(k, count))
        sizes = np.diff(edges)
        if (sizes < 0).any() or len(payload) != at + 16 + 8 * int(sizes.sum()):
            raise _bad("hold as many items as its levels say", (sizes.tolist(), len(payload)))
        items = np.frombuffer(payload, sketch.parameters.dtype, int(sizes.sum()), at + 16)
        weights = np.repeat(np.int64(1) << np.arange(count), sizes)
        inside = items.size and ends[0] <= items.min() and items.max() <= ends[1]
        if int(weights.sum()) != n or not inside:
            raise _bad(f"stand for {n} values from {ends[0]} to {ends[1]}", int(weights.sum()))
        sketch._take(items, weights, ends[0], ends[1])
        sketch.blurred = n if count > 1 else 0
        return sketch

    def _of_all(self, payload: bytes, read: int) -> Kll:
        if len(payload) != read:
            raise _bad(f"end after {read} bytes", len(payload))
        return self


def _bad(rule: str, got: object) -> InvalidValue:
    return InvalidValue("payload", rule, got, REBUILD)


def _capacity(k: int, levels: int) -> int:
    """Return the capacity in items as DataSketches computes it: for each level k (2/3)^depth, at least 8."""
    return sum(max(_M, _level_capacity(k, depth)) for depth in range(levels))


def _level_capacity(k: int, depth: int) -> int:
    if depth > 30:
        half = depth // 2
        return _level_capacity(_level_capacity(k, half), depth - half)
    return (((k << 1) << depth) // 3**depth + 1) >> 1

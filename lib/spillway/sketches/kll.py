"""Quantiles in the format of Apache DataSketches' KLL, which Spark's `kll_sketch_*` functions read too.

A sketch holds items in levels; an item of level h stands for 2^h values (Karnin, Lang, Liberty 2016). Its rank error is
at most 2.296 / k^0.9723 of N with 99 % confidence, that of a range 2.446 / k^0.9433, as the library states it.

Where we differ: the library compacts a stream as it passes, by coin flips that cannot be seeded, so that the same rows
would give other bytes on every run. A batch is at hand as a whole, so its values are sorted, and every item is the
middle of 2^h neighbours: no coin, a rank error of at most 2^h / 2 <= N / k, less than half of what the library states
at this k, and a third of its bytes. What we state stays the library's, which holds for its own sketches as well.
Merging unites the items, which loses nothing; `narrowed` compacts once more. Pieces are cut alike on every machine,
so the bytes are the same.

Numbers are doubles; integers, dates (days) and moments (microseconds since 1970) 64-bit integers. NaN and null have no
order, and are not counted.

>>> sketch = Kll(KllParameters(k=8, integers=True)).update(np.arange(100))
>>> sketch.narrowed(8).quantiles([0.0, 0.5, 1.0]).tolist(), sketch.narrowed(8).n
([0, 55, 99], 100)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.errors import Refused
from spillway.sketches.binary import LibrarySketch
from spillway.sketches.forms import REBUILD, contained
from spillway.sketches.types import Floats, Integers, require_same

LEAST_K, MOST_K = 8, 65535
_M = 8
_FRONT = struct.Struct("<BBBBHBB")
_WHOLE = struct.Struct("<QHBB")
_EMPTY, _SINGLE, _SORTED = 1, 4, 2
_INTEGERS = 1
_TYPES = {2: "integer", 3: "timestamp", 4: "date", 5: "boolean", 6: "double"}
"""In a byte that the library leaves unused: of which type the values were, or only that they are 64-bit integers."""
_SETTLE = 1 << 22
OrderedItems = npt.NDArray[Any]


@dataclass(frozen=True)
class KllParameters:
    """`k`, about the items that are kept, and whether they are 64-bit integers rather than doubles."""

    k: int
    integers: bool = False

    def __post_init__(self) -> None:
        if not LEAST_K <= self.k <= MOST_K:
            raise Refused("k", f"lie from {LEAST_K} to {MOST_K}", self.k, "give it more memory or less")

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<i8" if self.integers else "<f8")


def rank_error(k: int, of_range: bool = False) -> float:
    """What the library states: the share of N by which a rank (or a count between two) is off, at 99 % confidence.

    >>> round(100 * rank_error(200), 2), round(100 * rank_error(200, of_range=True), 2)
    (1.33, 1.65)
    """
    return 2.446 / k**0.9433 if of_range else 2.296 / k**0.9723


class Kll(LibrarySketch):
    """Items that rise, each with the values it stands for."""

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
        """Of how many values items stand for more than one."""

    def update(self, values: object) -> Kll:
        """Take values in; NaN is left out."""
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
        """N, the values seen."""
        self._settle()
        return int(self._weights.sum())

    @property
    def items(self) -> OrderedItems:
        """What is kept, rising."""
        self._settle()
        return self._items

    @property
    def weights(self) -> Integers:
        """How many values each item stands for."""
        self._settle()
        return self._weights

    def _settle(self) -> None:
        if self._pending:
            fresh = np.concatenate(self._pending)
            self._pending = []
            fresh.sort()
            # among what is kept, which rises too: far quicker than to sort both together
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
        """Keep the middles of blocks of 2^h neighbours, at most `most` of them, and of what is left over."""
        n = int(self._weights.sum())
        if self._items.size <= most:
            return
        height = max((n // most).bit_length() - 1, 0)
        height += (n >> height) > most
        # whole blocks first, then the rest in blocks of falling powers of two
        sizes = [np.full(n >> height, 1 << height)]
        sizes += [np.array([1 << low]) for low in reversed(range(height)) if n >> low & 1]
        weights = np.concatenate(sizes).astype(np.int64)
        middles = np.cumsum(weights) - weights + (weights - 1) // 2
        self._items = self._items[np.searchsorted(np.cumsum(self._weights), middles, side="right")]
        self._weights = weights
        self.blurred = n

    def narrowed(self, k: int) -> Kll:
        """The same with at most about `k` items."""
        found = Kll(KllParameters(k, self.parameters.integers))
        found.context = self.context
        if self.n:
            found._take(self.items, self.weights, self.least, self.greatest)
            found.blurred = self.blurred
            found._compact(k)
        return found

    def merge(self, other: Kll) -> Kll:
        """The sketch of both together: their items united, none lost; `narrowed` makes it small again."""
        require_same(self.kind, self.parameters.integers, other.parameters.integers)
        found = Kll(KllParameters(min(self.parameters.k, other.parameters.k), self.parameters.integers))
        # bytes of old, and the library's, do not say of what they are
        found.context = (
            self.shared_context(other) if self._type and other._type else self.context or other.context
        )
        for one in (self, other):
            if one.n:
                found._take(one.items, one.weights, one.least, one.greatest)
        found.blurred = self.blurred + other.blurred
        return found

    def error(self, of_range: bool = False) -> float:
        """By how many values a rank (or the count between two) may be off."""
        return rank_error(self.parameters.k, of_range) * self.blurred if self.n else 0.0

    def ranks(self, values: Sequence[Any], inclusive: bool = True) -> Integers:
        """How many values lie at or below each (below, where not `inclusive`)."""
        before = np.concatenate([[0], np.cumsum(self.weights)])
        found: Integers = before[np.searchsorted(self.items, values, side="right" if inclusive else "left")]
        return found

    def quantiles(self, shares: Sequence[float]) -> OrderedItems:
        """The least value with at least each share of all at or below it."""
        if not self.n:
            raise Refused("stream", "have ordered values", "nulls or NaN only", "sketch some values")
        ranks = np.clip(np.ceil(np.asarray(shares, np.float64) * self.n), 1, self.n)
        return self.at_ranks(ranks)

    def at_ranks(self, ranks: Floats | Integers) -> OrderedItems:
        """The values of ranks 1 to N; the ends are exact."""
        places = np.searchsorted(np.cumsum(self.weights), ranks, side="left")
        found = self.items[np.minimum(places, self.items.size - 1)]
        found = np.where(np.asarray(ranks) <= 1, self.least, found)
        return np.where(np.asarray(ranks) >= self.n, self.greatest, found).astype(self.parameters.dtype)

    @property
    def shape(self) -> dict[str, Any]:
        return {"k": self.parameters.k, "types": list(self.context.get("types", ()))}

    def to_bytes(self) -> bytes:
        """The bytes that DataSketches and Spark read."""
        p, n = self.parameters, self.n
        kinds = {kind: mark for mark, kind in _TYPES.items()}
        marked = kinds.get(self._type, _INTEGERS if p.integers else 0)
        if n == 0:
            return _FRONT.pack(2, 1, Kll.family, _EMPTY, p.k, _M, marked)
        if n == 1:
            return _FRONT.pack(2, 2, Kll.family, _SINGLE, p.k, _M, marked) + self.items.tobytes()
        whole = self if self._fits() else self.narrowed(p.k)
        heights = np.log2(whole.weights).astype(np.int64)
        count = int(heights.max()) + 1
        levels = [whole.items[heights == level] for level in range(count)]
        room = _capacity(p.k, count)
        starts = np.cumsum([room - whole.items.size, *map(len, levels[:-1])]).astype("<u4")
        ends = np.array([self.least, self.greatest], p.dtype)
        front = _FRONT.pack(5, 1, Kll.family, _SORTED, p.k, _M, marked) + _WHOLE.pack(n, p.k, count, 0)
        return front + starts.tobytes() + ends.tobytes() + b"".join(level.tobytes() for level in levels)

    def _fits(self) -> bool:
        """Whether weights are powers of two and all items have room in their levels."""
        powers = bool((self.weights & (self.weights - 1) == 0).all())
        count = int(self.weights.max()).bit_length()
        return powers and self.items.size <= _capacity(self.parameters.k, count)

    @classmethod
    def from_native(cls, payload: bytes, types: Sequence[str] = ()) -> Kll:
        """A sketch from the library's bytes, its own or ours; without types, ours tell of what type they are."""
        with contained():
            if len(payload) < _FRONT.size:
                raise _bad("be a whole sketch", f"{len(payload)} bytes")
            told = tuple(types[:1]) or tuple(_TYPES[mark] for mark in (payload[7],) if mark in _TYPES)
            found = cls._read(payload, told[0] != "double" if told else payload[7] == _INTEGERS)
            found.context = {"attributes": [], "types": list(told)} if told else {}
            return found

    @property
    def _type(self) -> str:
        """Of which type the values were; "" where that is not known."""
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


def _bad(rule: str, got: object) -> Refused:
    return Refused("payload", rule, got, REBUILD)


def _capacity(k: int, levels: int) -> int:
    """The items that a sketch of so many levels has room for, as the library computes it: k (2/3)^depth, at least 8."""
    return sum(max(_M, _level_capacity(k, depth)) for depth in range(levels))


def _level_capacity(k: int, depth: int) -> int:
    if depth > 30:
        half = depth // 2
        return _level_capacity(_level_capacity(k, half), depth - half)
    return (((k << 1) << depth) // 3**depth + 1) >> 1

"""Implement the stable Bloom filter: duplicates in an endless stream in constant space (chapter 3, Algorithm 1).

For each element, in order: probe its K cells, a duplicate when none is 0; decrement P cells, one start drawn at
random and its P - 1 neighbours; set the K cells to Max. The share of zeros settles, and with it the rate of false
positives, which 3.12 bounds at all times; old elements fade, which is where false negatives come from.

Cells of b bits lie in b bit planes of 64 cells a word (word w, plane j at w*b + j), so that the memory asked for is
the memory used and neighbours are decremented 64 at a time: with n = nonzero & mask, plane 0 ^= n, and the borrow
n & ~plane ripples upward. The random start of element number i is mix64(i, seed): no state but the count, so that a
replay decrements the same cells.

Where we differ: the filter may be cut in shards by key hash. Shards are a parameter of the filter, not of the cluster:
each is a filter of its own over its keys in stream order, and 3.12 holds in each, since m hardly enters it. Filters
depend on order, so two of them do not merge.

>>> filter = StableBloom(choose(memory_bits=8192, false_positive_rate=0.01, seed=1))
>>> filter.observe(np.array([5, 6, 5], dtype=np.uint64)).tolist()
[False, False, True]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from numba import njit

from evidence.sketches import stable_bloom_theory as theory
from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.hashing import as_keys, check_seed, row_seeds
from spillway.sketches.kernels import mix64, xxhash64_key
from spillway.sketches.payload_checks import ArrayForm, checked_numbers, checked_parameters
from spillway.sketches.types import Booleans, Keys

TESTING_GAP = 200.0
_BLOCK = 64


@dataclass(frozen=True)
class StableBloomParameters:
    """`cells` (m) of `bits` (d, Max = 2^d - 1), `hashes` (K), `decrements` (P), seed, and `shards`."""

    cells: int
    bits: int
    hashes: int
    decrements: int
    seed: int = 1
    shards: int = 1

    def __post_init__(self) -> None:
        if self.shards < 1 or not 64 <= self.cells < 1 << 40 or self.cells % (64 * self.shards):
            raise InvalidValue(
                "cells",
                f"be a multiple of 64 for each of {self.shards} shards",
                self.cells,
                "words hold 64 cells",
            )
        if not 1 <= self.bits <= 8:
            raise InvalidValue("bits", "lie from 1 to 8", self.bits, "the text uses 1, 2 and 3")
        per_shard = self.cells // self.shards
        if not 1 <= self.hashes < per_shard:
            raise InvalidValue("hashes", f"lie from 1 to {per_shard - 1}", self.hashes, "10 are plenty")
        if not 0 <= self.decrements <= per_shard:
            raise InvalidValue(
                "decrements", f"lie from 0 to {per_shard}", self.decrements, "give it more cells"
            )
        check_seed(self.seed)

    @property
    def top(self) -> int:
        """The value Max to which a cell is set."""
        return (1 << self.bits) - 1

    @property
    def memory_bits(self) -> int:
        return self.cells * self.bits

    @property
    def false_positive_bound(self) -> float:
        """The bound FPS (3.12), the same in every shard."""
        return theory.false_positive_bound(self.cells // self.shards, self.hashes, self.decrements, self.top)


def choose(
    memory_bits: int,
    false_positive_rate: float,
    gaps: Sequence[tuple[float, float]] | None = None,
    seed: int = 1,
    shards: int = 1,
) -> StableBloomParameters:
    """Return K (up to 10) and Max (1, 3 or 7) with the fewest expected false negatives, and P so that FPS holds
    (3.4.1).

    `gaps` are (elements between two occurrences, weight) pairs; without them Max is 1, as the thesis advises, and K is
    chosen at its testing gap of 200. The gap a shard sees is shorter by the number of shards.

    >>> choose(10**6, 0.1).hashes, choose(10**6, 0.01).hashes
    (2, 3)
    """
    if not 0.0 < false_positive_rate < 1.0:
        raise InvalidValue(
            "false_positive_rate", "lie between 0 and 1", false_positive_rate, "write 0.01 for 1 %"
        )
    known = [(gap / shards, weight) for gap, weight in gaps] if gaps else [(TESTING_GAP / shards, 1.0)]
    best: tuple[float, StableBloomParameters] | None = None
    least_bits = 1 << 62
    for bits in (1, 2, 3) if gaps else (1,):
        per_shard = memory_bits // (bits * shards) // 64 * 64
        top = (1 << bits) - 1
        for hashes in range(1, 11):
            floor = theory.decrements_for(false_positive_rate, top, hashes, 1 << 40) + 1
            smallest = max(-(-2 * max(floor, hashes) // 64) * 64, 64)
            least_bits = min(least_bits, smallest * bits * shards)
            if per_shard < smallest:
                continue
            decrements = theory.decrements_for(false_positive_rate, top, hashes, per_shard)
            missed = theory.expected_false_negatives(known, per_shard, hashes, decrements, top)
            # ties (all gaps far beyond the filter's reach) go to the cheaper filter, which comes first
            if best is None or missed < best[0] - 1e-12:
                best = (
                    missed,
                    StableBloomParameters(per_shard * shards, bits, hashes, decrements, seed, shards),
                )
    if best is None:
        raise InvalidValue(
            "memory",
            f"be at least {least_bits} bits for a false positive rate of {false_positive_rate} in {shards} shards",
            f"{memory_bits} bits",
            "give it that much, or accept more false positives",
        )
    return best[1]


@njit(cache=True)
def step(cells: npt.NDArray[np.uint8], probed: Keys, decremented: Keys, top: int) -> bool:
    """Apply Algorithm 1 to one element on plain cells, with its cells and decrements given: the definition."""
    duplicate = True
    for index in range(probed.size):
        if cells[probed[index]] == 0:
            duplicate = False
    for index in range(decremented.size):
        if cells[decremented[index]] >= 1:
            cells[decremented[index]] -= 1
    for index in range(probed.size):
        cells[probed[index]] = top
    return duplicate


@njit(cache=True)
def draws(
    key: np.uint64, element: np.uint64, shard: int, seeds: Keys, hashes: int, cells: int, probed: Keys
) -> np.int64:
    """Return the K cells of `key` (in `probed`) and the start of the decrement, all within one shard of `cells`."""
    words = np.uint64(cells // 64)
    for index in range(hashes):
        mixed = mix64(key, seeds[index])
        word = ((mixed >> np.uint64(32)) * words) >> np.uint64(32)
        probed[index] = (word << np.uint64(6)) | (mixed & np.uint64(63))
    mixed = mix64(element, seeds[hashes] + np.uint64(shard))
    word = ((mixed >> np.uint64(32)) * words) >> np.uint64(32)
    return np.int64((word << np.uint64(6)) | (mixed & np.uint64(63)))


@njit(cache=True)
def shard_of_key(key: np.uint64, shards: np.uint64) -> np.int64:
    """Return the shard of a key by its xxhash64, which Spark can compute too; the cells use other hashes."""
    return np.int64(((xxhash64_key(key) >> np.uint64(32)) * shards) >> np.uint64(32))


@njit(cache=True)
def shards_of(keys: Keys, shards: np.uint64) -> Keys:
    found = np.empty(keys.size, dtype=np.uint64)
    for index in range(keys.size):
        found[index] = shard_of_key(keys[index], shards)
    return found


@njit(cache=True)
def _observe(
    words: Keys, elements: Keys, seeds: Keys, keys: Keys, cells: int, bits: int, hashes: int, decrements: int,
    shards: int, duplicates: Booleans,
) -> None:  # fmt: skip
    one, low_six = np.uint64(1), np.uint64(63)
    every = np.uint64(0xFFFFFFFFFFFFFFFF)
    words_per_shard = cells // 64
    probed = np.empty((_BLOCK, hashes), dtype=np.uint64)
    shard_of, start_of = np.empty(_BLOCK, dtype=np.int64), np.empty(_BLOCK, dtype=np.int64)
    for first in range(0, keys.size, _BLOCK):
        block = min(_BLOCK, keys.size - first)
        # where elements go does not depend on the cells: a block's hashes first keep the memory busy after
        for index in range(block):
            key = keys[first + index]
            shard = shard_of_key(key, np.uint64(shards)) if shards > 1 else 0
            shard_of[index] = shard
            start_of[index] = draws(key, elements[shard], shard, seeds, hashes, cells, probed[index])
            elements[shard] += one
        for index in range(block):
            base = shard_of[index] * words_per_shard * bits
            duplicate = one
            for probe in range(hashes):
                at = base + np.int64(probed[index, probe] >> np.uint64(6)) * bits
                nonzero = words[at]
                for plane in range(1, bits):
                    nonzero |= words[at + plane]
                # no branch on the outcome: it is as good as random
                duplicate &= nonzero >> (probed[index, probe] & low_six)
            duplicates[first + index] = duplicate == one
            left = decrements
            word, bit = start_of[index] >> 6, start_of[index] & 63
            while left > 0:
                take = min(64 - bit, left)
                mask = (every >> np.uint64(64 - take)) << np.uint64(bit)
                at = base + word * bits
                if bits == 1:
                    words[at] &= ~mask
                else:
                    borrow = words[at]
                    for plane in range(1, bits):
                        borrow |= words[at + plane]
                    borrow &= mask
                    for plane in range(bits):
                        old = words[at + plane]
                        words[at + plane] = old ^ borrow
                        borrow &= ~old
                left -= take
                bit = 0
                word = word + 1 if word + 1 < words_per_shard else 0
            for probe in range(hashes):
                at = base + np.int64(probed[index, probe] >> np.uint64(6)) * bits
                mask = one << (probed[index, probe] & low_six)
                for plane in range(bits):
                    words[at + plane] |= mask


class StableBloom(binary.CounterSketch):
    """A filter with the number of elements of each shard: its whole state."""

    kind = "stable_bloom"

    def __init__(self, parameters: StableBloomParameters) -> None:
        self.parameters = parameters
        self.seeds = row_seeds(parameters.seed, parameters.hashes + 1, purpose=4)
        self.words: Keys = np.zeros(parameters.cells // 64 * parameters.bits, dtype=np.uint64)
        self.elements: Keys = np.zeros(parameters.shards, dtype=np.uint64)

    def observe(self, keys: object) -> Booleans:
        """Add the elements in order; return True for each that is reported as a duplicate."""
        hashed = as_keys(keys)
        duplicates = np.empty(hashed.size, dtype=np.bool_)
        p = self.parameters
        _observe(
            self.words, self.elements, self.seeds, hashed, p.cells // p.shards, p.bits, p.hashes, p.decrements,
            p.shards, duplicates,
        )  # fmt: skip
        return duplicates

    def holds(self, keys: object) -> Booleans:
        """Return which keys would be reported as duplicates now; nothing is added."""
        copy = StableBloom(self.parameters)
        found = []
        for key in as_keys(keys):
            copy.words[:], copy.elements[:] = self.words, self.elements
            found.append(bool(copy.observe(np.array([key], dtype=np.uint64))[0]))
        return np.array(found, dtype=np.bool_)

    def shard_of(self, keys: object) -> Keys:
        """Return the shard of each key; elements of one shard must be observed in stream order."""
        shards = np.uint64(self.parameters.shards)
        return shards_of(as_keys(keys), shards)

    def cells(self) -> npt.NDArray[np.uint8]:
        """Return the values of the cells, unpacked."""
        planes = self.words.reshape(-1, self.parameters.bits)
        values = np.zeros((planes.shape[0], 64), dtype=np.uint8)
        for plane in range(self.parameters.bits):
            column = np.ascontiguousarray(planes[:, plane]).astype("<u8").view(np.uint8)
            values |= np.unpackbits(column.reshape(-1, 8), axis=1, bitorder="little") << np.uint8(plane)
        return values.ravel()

    def zero_share(self) -> float:
        """The share of zero cells, which settles at the stable point."""
        return float((self.cells() == 0).mean())

    def merge(self, other: StableBloom) -> NoReturn:
        raise InvalidValue(
            "stable_bloom",
            "not be merged: its cells depend on the order of the stream",
            f"{self.parameters} and {other.parameters}",
            "continue one filter over both streams, or shard it by key",
        )

    def absorb_shards(self, other: StableBloom, shards: Sequence[int]) -> None:
        """Take over the named shards of `other`, which worked on them elsewhere."""
        if other.parameters != self.parameters:
            raise InvalidValue(
                "shards", f"come from a filter of {self.parameters}", other.parameters, "use one filter"
            )
        mine = self.words.reshape(self.parameters.shards, -1)
        theirs = other.words.reshape(self.parameters.shards, -1)
        for shard in shards:
            mine[shard] = theirs[shard]
            self.elements[shard] = other.elements[shard]

    @property
    def shape(self) -> dict[str, Any]:
        return asdict(self.parameters)

    def scalars(self) -> dict[str, Any]:
        return {}

    def arrays(self) -> dict[str, Any]:
        return {"words": self.words, "elements": self.elements}

    @classmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        parameters = checked_parameters(StableBloomParameters, shape)
        checked_numbers(scalars, {})
        words = parameters.cells // 64 * parameters.bits
        return {"words": ArrayForm("uint64", (words,)), "elements": ArrayForm("uint64", (parameters.shards,))}

    @classmethod
    def restore(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> StableBloom:
        sketch = cls(checked_parameters(StableBloomParameters, dict(shape)))
        sketch.words, sketch.elements = arrays["words"], arrays["elements"]
        return sketch

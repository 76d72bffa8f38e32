"""Alternating Bloom filters: detect duplicates in an endless stream in constant space (A2 Bloom filter, Yoon 2010).

There are two Bloom filters, and one of them is active. A key is looked up in both.

- If the key is in the active filter, it is a duplicate.
- If it is only in the other filter, it is a duplicate, and is added to the active filter.
- If it is in neither filter, it is new, and is added to the active filter.

After `capacity` keys were added to the active filter, the other filter is cleared and becomes the active one. So:

- No key is forgotten within `capacity` elements: a key stays until that number of other keys was added after it.
- A new key is reported as a duplicate with a probability of at most 1 - (1 - f)^2, f = (1 - (1 - 1/h)^(K n))^K, for
  filters of h cells, K hashes and n = `capacity`.

Compared with a stable Bloom filter of equal size (`evidence.sketches.stable_bloom`; Deng 2007, chapter 3), it misses
fewer duplicates, without more false positives, on nearly every stream in Deng 2007. Within a distance that is known in
advance it misses none. So Spillway uses this filter.

The cells of both filters are adjacent in memory, so that one access probes both. The filter may be split into shards by
key hash. The shards are a parameter of the filter, not of the cluster, and each alternates on its own. The state
depends on the order of the stream, so two filters cannot be merged.

>>> filter = AlternatingBloom(parameters_for(within=1000, false_positive_rate=0.01))
>>> filter.observe(np.array([5, 6, 5], dtype=np.uint64)).tolist()
[False, False, True]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.hashing import as_keys, check_seed, row_seeds
from spillway.sketches.kernels import mix64, xxhash64_key
from spillway.sketches.payload_checks import REBUILD, ArrayForm, checked_numbers, checked_parameters
from spillway.sketches.types import Booleans, Integers, Keys

_HASHES_MAX = 16
_SIGMAS = 6.0
"""Standard deviations by which a shard's keys may exceed their expected number; once in 10^9 windows it is more."""


@dataclass(frozen=True)
class AlternatingBloomParameters:
    """`cells` (h) and `capacity` (n) of one filter of one shard, `hashes` (K), the seed, and the number of `shards`."""

    cells: int
    hashes: int
    capacity: int
    seed: int = 1
    shards: int = 1

    def __post_init__(self) -> None:
        if self.cells % 64 or not 64 <= self.cells < 1 << 40:
            raise InvalidValue("cells", "be a multiple of 64", self.cells, "words hold 64 cells")
        if not 1 <= self.hashes <= _HASHES_MAX:
            raise InvalidValue("hashes", f"lie from 1 to {_HASHES_MAX}", self.hashes, "7 to 10 are usual")
        if not 1 <= self.capacity < 1 << 40:
            raise InvalidValue("capacity", "be at least 1", self.capacity, "give it the window in rows")
        if not 1 <= self.shards <= 1024:
            raise InvalidValue("shards", "lie from 1 to 1024", self.shards, "as many as tasks work at a time")
        check_seed(self.seed)

    @property
    def memory_bits(self) -> int:
        return 2 * self.cells * self.shards

    @property
    def false_positive_bound(self) -> float:
        """The false positive rate when both filters are full."""
        full = _full_rate(self.cells, self.hashes, self.capacity)
        return 1.0 - (1.0 - full) ** 2


def _full_rate(cells: int, hashes: int, keys: float) -> float:
    """Return f, the false positive rate of one filter with this number of keys."""
    return float(-math.expm1(hashes * keys * math.log1p(-1.0 / cells))) ** hashes


def _hashes_and_bits(rate: float) -> tuple[int, float]:
    """Return K and the bits per key of a filter with the false positive rate `rate` when it is full."""
    best = min(range(1, _HASHES_MAX + 1), key=lambda k: -k / math.log1p(-(rate ** (1.0 / k))))
    return best, -best / math.log1p(-(rate ** (1.0 / best)))


def _one_filters_rate(false_positive_rate: float) -> float:
    if not 0.0 < false_positive_rate < 1.0:
        raise InvalidValue(
            "false_positive_rate", "lie between 0 and 1", false_positive_rate, "write 0.01 for 1 %"
        )
    return -math.expm1(0.5 * math.log1p(-false_positive_rate))


def parameters_for(
    within: int, false_positive_rate: float, seed: int = 1, shards: int = 1
) -> AlternatingBloomParameters:
    """Return the parameters of the smallest filter that forgets nothing within `within` elements.

    >>> found = parameters_for(1_000_000, 0.01)
    >>> found.hashes, round(found.memory_bits / 8 / 1024), found.false_positive_bound <= 0.01
    (8, 2693, True)
    """
    if within < 1:
        raise InvalidValue("within", "be at least 1", within, "say how many rows back a repeat may lie")
    hashes, bits = _hashes_and_bits(_one_filters_rate(false_positive_rate))
    part = within / shards
    capacity = within if shards == 1 else math.ceil(part + _SIGMAS * math.sqrt(part) + _SIGMAS)
    cells = max(-(-math.ceil(bits * capacity + hashes) // 64) * 64, 64)
    return AlternatingBloomParameters(cells, hashes, capacity, seed, shards)


def parameters_of_memory(
    memory_bits: int, false_positive_rate: float, seed: int = 1
) -> AlternatingBloomParameters:
    """Return the parameters of the filter with the largest capacity in `memory_bits` bits.

    >>> parameters_of_memory(1 << 20, 0.01).capacity
    47533
    """
    hashes, bits = _hashes_and_bits(_one_filters_rate(false_positive_rate))
    cells = memory_bits // 128 * 64
    return AlternatingBloomParameters(cells, hashes, max(int((cells - hashes) / bits), 1), seed)


@njit(cache=True)
def _shard_of(key: np.uint64, shards: np.uint64) -> np.int64:
    return np.int64(((xxhash64_key(key) >> np.uint64(32)) * shards) >> np.uint64(32))


@njit(cache=True)
def _shards_of(keys: Keys, shards: np.uint64) -> Integers:
    found = np.empty(keys.size, dtype=np.int64)
    for index in range(keys.size):
        found[index] = _shard_of(keys[index], shards)
    return found


@njit(cache=True)
def _observe(
    words: Keys, turns: Keys, seeds: Keys, keys: Keys, cells: int, hashes: int, capacity: int, shards: int,
    duplicates: Booleans, adds: bool,
) -> None:  # fmt: skip
    """Look up the keys, and add them if `adds`. `turns`: the active filter of each shard and its number of keys."""
    one, low_six, half = np.uint64(1), np.uint64(63), np.uint64(32)
    of_shard = cells // 64 * 2
    count = np.uint64(cells)
    probed = np.empty(hashes, dtype=np.int64)
    bits = np.empty(hashes, dtype=np.uint64)
    for index in range(keys.size):
        key = keys[index]
        shard = _shard_of(key, np.uint64(shards)) if shards > 1 else 0
        base, active = shard * of_shard, np.int64(turns[2 * shard])
        # enhanced double hashing: derives K hashes from two, and is as good as K independent hashes
        place, step = mix64(key, seeds[0]), mix64(key, seeds[1])
        mine, other = one, one
        for probe in range(hashes):
            cell = ((place >> half) * count) >> half
            at = base + np.int64(cell >> np.uint64(6)) * 2
            probed[probe], bits[probe] = at, cell & low_six
            mine &= words[at + active] >> bits[probe]
            other &= words[at + 1 - active] >> bits[probe]
            place += step
            step += np.uint64(probe + 1)
        duplicates[index] = (mine | other) == one
        if not adds or mine == one:
            continue
        if turns[2 * shard + 1] >= np.uint64(capacity):
            active = 1 - active
            for word in range(base + active, base + of_shard, 2):
                words[word] = np.uint64(0)
            turns[2 * shard], turns[2 * shard + 1] = np.uint64(active), np.uint64(0)
        for probe in range(hashes):
            words[probed[probe] + active] |= one << bits[probe]
        turns[2 * shard + 1] += one


class AlternatingBloom(binary.CounterSketch):
    """The two filters of every shard, and the active filter of each."""

    kind = "alternating_bloom"

    def __init__(self, parameters: AlternatingBloomParameters) -> None:
        self.parameters = parameters
        self.seeds = row_seeds(parameters.seed, 2, purpose=8)
        self.words: Keys = np.zeros(parameters.shards * parameters.cells // 64 * 2, dtype=np.uint64)
        self.turns: Keys = np.zeros(2 * parameters.shards, dtype=np.uint64)

    def observe(self, keys: object) -> Booleans:
        """Add the elements in order; return True for each that is reported as a duplicate."""
        return self._pass(keys, True)

    def holds(self, keys: object) -> Booleans:
        """Return which keys would be reported as duplicates now, without adding them."""
        return self._pass(keys, False)

    def _pass(self, keys: object, adds: bool) -> Booleans:
        hashed = as_keys(keys)
        duplicates = np.empty(hashed.size, dtype=np.bool_)
        p = self.parameters
        _observe(
            self.words, self.turns, self.seeds, hashed, p.cells, p.hashes, p.capacity, p.shards, duplicates, adds
        )  # fmt: skip
        return duplicates

    def shard_of(self, keys: object) -> Integers:
        """Return the shard of each key. Elements of a shard must be added in stream order; shards are independent."""
        return _shards_of(as_keys(keys), np.uint64(self.parameters.shards))

    def absorb_shards(self, other: AlternatingBloom, shards: Sequence[int]) -> None:
        """Copy the named shards from `other`, which was updated in another task."""
        if other.parameters != self.parameters:
            raise InvalidValue(
                "shards", f"come from a filter of {self.parameters}", other.parameters, "use one filter"
            )
        for mine, theirs in ((self.words, other.words), (self.turns, other.turns)):
            parts = mine.reshape(self.parameters.shards, -1), theirs.reshape(self.parameters.shards, -1)
            for shard in shards:
                parts[0][shard] = parts[1][shard]

    def merge(self, other: AlternatingBloom) -> NoReturn:
        raise InvalidValue(
            "alternating_bloom",
            "not be merged: what it holds depends on the order of the stream",
            f"{self.parameters} and {other.parameters}",
            "continue one filter over both streams, or shard it by key",
        )

    @property
    def shape(self) -> dict[str, Any]:
        return asdict(self.parameters)

    def scalars(self) -> dict[str, Any]:
        return {}

    def arrays(self) -> dict[str, Any]:
        return {"words": self.words, "turns": self.turns}

    @classmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        parameters = checked_parameters(AlternatingBloomParameters, shape)
        checked_numbers(scalars, {})
        words = parameters.shards * parameters.cells // 64 * 2
        return {
            "words": ArrayForm("uint64", (words,)),
            "turns": ArrayForm("uint64", (2 * parameters.shards,)),
        }

    @classmethod
    def restore(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> AlternatingBloom:
        sketch = cls(checked_parameters(AlternatingBloomParameters, dict(shape)))
        sketch.words, sketch.turns = arrays["words"], arrays["turns"]
        active, put_in = sketch.turns[::2], sketch.turns[1::2]
        if (active > 1).any() or (put_in > sketch.parameters.capacity).any():
            rule = f"name one of two filters, with at most {sketch.parameters.capacity} keys"
            raise InvalidValue("turns", rule, sketch.turns.tolist()[:8], REBUILD)
        return sketch

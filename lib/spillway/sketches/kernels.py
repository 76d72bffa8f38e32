"""Compiled kernels: the hash functions of `hashing` for one key, and loops that add keys to a table of counters.

They are a module of their own, so that a query of a stored sketch loads no compiler.

>>> import numpy as np
>>> from spillway.sketches.hashing import mix
>>> keys = np.array([1, 2**63], dtype=np.uint64)
>>> [int(mix64(key, np.uint64(5))) for key in keys] == mix(keys, np.uint64(5)).tolist()
True
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.sketches.hashing import bucket_of_mixed, mix
from spillway.sketches.types import Integers, Keys

mix64 = njit(cache=True)(mix)


_reduce = njit(cache=True)(bucket_of_mixed)


@njit(cache=True)
def bucket(key: np.uint64, seed: np.uint64, width: np.uint64) -> np.uint64:
    """Return the bucket of `key` among `width` (w, below 2^32) buckets."""
    return _reduce(mix64(key, seed), width)


@njit(cache=True)
def spark_bucket(key: np.uint64, factor: np.uint64, width: np.uint64) -> np.uint64:
    """Return the bucket of a bigint in Spark's own `count_min_sketch`. `factor`: Spark's hashA of the row."""
    product = np.int64(key * factor)
    product += product >> np.int64(32)
    return np.uint64(product & np.int64(0x7FFFFFFF)) % width


@njit(cache=True)
def xxhash64_key(key: np.uint64) -> np.uint64:
    """Return Spark's `xxhash64` of one bigint; compiled."""
    prime1, prime2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
    word = key * prime2
    word = ((word << np.uint64(31)) | (word >> np.uint64(33))) * prime1
    state = (np.uint64(0x27D4EB2F165667C5) + np.uint64(50)) ^ word
    state = ((state << np.uint64(27)) | (state >> np.uint64(37))) * prime1 + np.uint64(0x85EBCA77C2B2AE63)
    state = (state ^ (state >> np.uint64(33))) * prime2
    state = (state ^ (state >> np.uint64(29))) * np.uint64(0x165667B19E3779F9)
    return state ^ (state >> np.uint64(32))


@njit(cache=True)
def column(key: np.uint64, seed: np.uint64, width: np.uint64, spark: bool) -> np.uint64:
    """Return the column of `key` in the row with this seed."""
    return spark_bucket(key, seed, width) if spark else bucket(key, seed, width)


@njit(cache=True)
def add(table: Integers, seeds: Keys, keys: Keys, weights: Integers, spark: bool) -> None:
    width = np.uint64(table.shape[1])
    weighted = weights.size > 0
    # blocks keep the keys and one row of counters in the CPU cache; the sums do not depend on the order
    for start in range(0, keys.size, 4096):
        stop = min(keys.size, start + 4096)
        for row in range(table.shape[0]):
            counters = table[row]
            seed = seeds[row]
            if weighted:
                for index in range(start, stop):
                    counters[column(keys[index], seed, width, spark)] += weights[index]
            elif spark:
                for index in range(start, stop):
                    counters[spark_bucket(keys[index], seed, width)] += 1
            else:
                for index in range(start, stop):
                    counters[bucket(keys[index], seed, width)] += 1


@njit(cache=True)
def add_conservatively(table: Integers, seeds: Keys, keys: Keys, weights: Integers, spark: bool) -> None:
    depth = table.shape[0]
    width = np.uint64(table.shape[1])
    columns = np.empty(depth, dtype=np.uint64)
    for index in range(keys.size):
        weight = weights[index] if weights.size > 0 else 1
        least = np.int64(9223372036854775807)
        for row in range(depth):
            columns[row] = column(keys[index], seeds[row], width, spark)
            least = min(least, table[row, columns[row]])
        for row in range(depth):
            table[row, columns[row]] = max(table[row, columns[row]], least + weight)


@njit(cache=True)
def _find(slots: Keys, used: Integers, key: np.uint64) -> np.int64:
    mask = np.uint64(slots.size - 1)
    at = mix64(key, np.uint64(0x243F6A8885A308D3)) & mask
    while used[at] != 0 and slots[at] != key:
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@njit(cache=True)
def _minimum(table: Integers, seeds: Keys, key: np.uint64, spark: bool) -> np.int64:
    width = np.uint64(table.shape[1])
    least = np.int64(9223372036854775807)
    for row in range(table.shape[0]):
        least = min(least, table[row, column(key, seeds[row], width, spark)])
    return least


@njit(cache=True)
def track(
    table: Integers, seeds: Keys, keys: Keys, weights: Integers, conservative: bool, total: int, share: float,
    candidates: Keys, spark: bool,
) -> tuple[Keys, int]:  # fmt: skip
    """Add the keys one by one and track heavy keys (see `heavy_hitters`); return the candidates and the new total."""
    width = np.uint64(table.shape[1])
    depth = table.shape[0]
    capacity = 1024
    while capacity < 4 * candidates.size:
        capacity *= 2
    slots = np.zeros(capacity, dtype=np.uint64)
    used = np.zeros(capacity, dtype=np.int64)
    held = candidates.size
    for index in range(candidates.size):
        at = _find(slots, used, candidates[index])
        slots[at] = candidates[index]
        used[at] = 1
    columns = np.empty(depth, dtype=np.uint64)
    for index in range(keys.size):
        key = keys[index]
        weight = int(weights[index]) if weights.size > 0 else 1
        least = np.int64(9223372036854775807)
        for row in range(depth):
            columns[row] = column(key, seeds[row], width, spark)
            least = min(least, table[row, columns[row]])
        for row in range(depth):
            count = table[row, columns[row]]
            table[row, columns[row]] = max(count, least + weight) if conservative else count + weight
        total += weight
        if least + weight < share * total:
            continue
        at = _find(slots, used, key)
        if used[at] != 0:
            continue
        slots[at] = key
        used[at] = 1
        held += 1
        if 2 * held > capacity:
            # prune by the rule; grow only if the survivors still fill the hash table
            old_slots, old_used = slots, used
            survivors = np.empty(held, dtype=np.uint64)
            kept = 0
            for position in range(capacity):
                if (
                    old_used[position] != 0
                    and _minimum(table, seeds, old_slots[position], spark) >= share * total
                ):
                    survivors[kept] = old_slots[position]
                    kept += 1
            while 4 * kept > capacity:
                capacity *= 2
            slots = np.zeros(capacity, dtype=np.uint64)
            used = np.zeros(capacity, dtype=np.int64)
            for position in range(kept):
                at = _find(slots, used, survivors[position])
                slots[at] = survivors[position]
                used[at] = 1
            held = kept
    final = np.empty(held, dtype=np.uint64)
    kept = 0
    for position in range(capacity):
        if used[position] != 0 and _minimum(table, seeds, slots[position], spark) >= share * total:
            final[kept] = slots[position]
            kept += 1
    return np.sort(final[:kept]), total

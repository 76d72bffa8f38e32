"""Implement FP-buffering, the baseline of the stable Bloom filter (3.5.2).

A buffer holds the last `capacity` distinct elements and evicts the least recently used one. An element in the buffer is
a duplicate. Another element is reported as a duplicate with probability q, which gives buffering the same false
positive rate as the filter. So their false negatives can be compared at equal bits: 64 per buffered element on the
thesis's real data, 32 on its synthetic data. The space of the hash table and of the list is not counted, which favours
buffering.

>>> LruBuffer(capacity=2).observe(np.array([1, 2, 1, 3, 2], dtype=np.uint64)).tolist()
[False, False, True, False, False]
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.sketches.hashing import as_keys, row_seeds
from spillway.sketches.kernels import mix64
from spillway.sketches.types import Booleans, Integers, Keys

_HEAD, _TAIL, _USED = 0, 1, 2


@njit(cache=True)
def _observe(
    keys: Keys, held: Keys, heads: Integers, chain: Integers, newer: Integers, older: Integers, state: Integers,
    found: Booleans,
) -> None:  # fmt: skip
    mask = np.uint64(heads.size - 1)
    seed = np.uint64(0xA5A5A5A5)
    for index in range(keys.size):
        key = keys[index]
        place = mix64(key, seed) & mask
        slot = heads[place]
        while slot >= 0 and held[slot] != key:
            slot = chain[slot]
        found[index] = slot >= 0
        if slot >= 0:
            if state[_HEAD] == slot:
                continue
            after, before = newer[slot], older[slot]
            older[after] = before
            if before >= 0:
                newer[before] = after
            else:
                state[_TAIL] = after
        else:
            if state[_USED] < held.size:
                slot = state[_USED]
                state[_USED] += 1
            else:
                slot = state[_TAIL]
                after = newer[slot]
                state[_TAIL] = after
                if after >= 0:
                    older[after] = -1
                else:
                    state[_HEAD] = -1
                gone = mix64(held[slot], seed) & mask
                if heads[gone] == slot:
                    heads[gone] = chain[slot]
                else:
                    link = heads[gone]
                    while chain[link] != slot:
                        link = chain[link]
                    chain[link] = chain[slot]
            held[slot] = key
            chain[slot] = heads[place]
            heads[place] = slot
        newer[slot] = -1
        older[slot] = state[_HEAD]
        if state[_HEAD] >= 0:
            newer[state[_HEAD]] = slot
        else:
            state[_TAIL] = slot
        state[_HEAD] = slot


class LruBuffer:
    """The last `capacity` distinct elements."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InvalidValue("capacity", "be at least 1", capacity, "give it the bits of one element")
        self.held: Keys = np.zeros(capacity, dtype=np.uint64)
        slots = 1 << max(int(2 * capacity - 1).bit_length(), 1)
        self._heads = np.full(slots, -1, dtype=np.int64)
        self._chain = np.full(capacity, -1, dtype=np.int64)
        self._newer = np.full(capacity, -1, dtype=np.int64)
        self._older = np.full(capacity, -1, dtype=np.int64)
        self._state = np.array([-1, -1, 0], dtype=np.int64)

    def observe(self, keys: object) -> Booleans:
        """Add the elements in order; return True for each that the buffer still holds."""
        hashed = as_keys(keys)
        found = np.empty(hashed.size, dtype=np.bool_)
        _observe(hashed, self.held, self._heads, self._chain, self._newer, self._older, self._state, found)
        return found


def with_false_positives(found: Booleans, rate: float, seed: int = 1) -> Booleans:
    """Return the verdicts of FP-buffering: found, or else reported as a duplicate with probability `rate` (q)."""
    if not 0.0 <= rate <= 1.0:
        raise InvalidValue("rate", "lie from 0 to 1", rate, "give the filter's false positive rate")
    (start,) = row_seeds(seed, 1, purpose=5)
    coins = np.random.Generator(np.random.PCG64(int(start))).random(found.size)
    return found | (coins < rate)

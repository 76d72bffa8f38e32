"""Super-values: subsets of a record's attributes, tagged, concatenated and fingerprinted (5.2.4, step 1).

A subset's fingerprint is mix64(sum of mix64(value, seed of its attribute), tag): the sum of 64-bit mixes stands for the
concatenation, since two different subsets of values collide with probability 2^-64.

>>> subsets(3, 2).tolist()
[[0, 1], [0, 2], [1, 2]]
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numba import njit

from spillway.sketches.mixing import mix64
from spillway.sketches.types import Integers, Keys


def subsets(attributes: int, k: int) -> Integers:
    """All k-subsets of the attributes, in lexicographic order."""
    return np.array(list(combinations(range(attributes), k)), dtype=np.int64).reshape(-1, k)


@njit(cache=True)
def draw_subsets(ordinal: np.uint64, seed: np.uint64, order: Integers, count: int) -> None:
    """Bring `count` subsets drawn without replacement to the front of `order` (Fisher and Yates, begun only)."""
    state = mix64(ordinal, seed)
    for place in range(count):
        state += np.uint64(0x9E3779B97F4A7C15)
        drawn = mix64(state, np.uint64(0)) >> np.uint64(32)
        other = place + np.int64((drawn * np.uint64(order.size - place)) >> np.uint64(32))
        order[place], order[other] = order[other], order[place]


@njit(cache=True)
def draw_super_values(
    records: Keys, ordinals: Keys, chosen: Integers, count: int, seeds: Keys, draw_seed: np.uint64
) -> Keys:
    """`count` super-values of each record; all of them when count is the number of subsets."""
    total, k = chosen.shape
    found = np.empty(records.shape[0] * count, dtype=np.uint64)
    order = np.empty(total, dtype=np.int64)
    mixed = np.empty(records.shape[1], dtype=np.uint64)
    for row in range(records.shape[0]):
        for attribute in range(records.shape[1]):
            mixed[attribute] = mix64(records[row, attribute], seeds[attribute])
        for subset in range(total):
            order[subset] = subset
        if count < total:
            draw_subsets(ordinals[row], draw_seed, order, count)
        for place in range(count):
            subset = order[place]
            whole = np.uint64(0)
            for member in range(k):
                whole += mixed[chosen[subset, member]]
            tag = seeds[records.shape[1]] + np.uint64(subset)
            found[row * count + place] = mix64(whole, mix64(tag, np.uint64(k)))
    return found

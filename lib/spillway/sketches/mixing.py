"""The hashes of `hashing`, compiled, as kernels take them: one key at a time.

>>> import numpy as np
>>> from spillway.sketches.hashing import mixed
>>> keys = np.array([1, 2**63], dtype=np.uint64)
>>> [int(mix64(key, np.uint64(5))) for key in keys] == mixed(keys, np.uint64(5)).tolist()
True
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.sketches.hashing import mixed, reduced

mix64 = njit(cache=True)(mixed)
_reduce = njit(cache=True)(reduced)


@njit(cache=True)
def bucket(key: np.uint64, seed: np.uint64, width: np.uint64) -> np.uint64:
    """The bucket of `key` among `width` (w, below 2^32)."""
    return _reduce(mix64(key, seed), width)


@njit(cache=True)
def spark_bucket(key: np.uint64, factor: np.uint64, width: np.uint64) -> np.uint64:
    """The bucket that Spark's own `count_min_sketch` gives a bigint, `factor` being its hashA of the row."""
    product = np.int64(key * factor)
    product += product >> np.int64(32)
    return np.uint64(product & np.int64(0x7FFFFFFF)) % width


@njit(cache=True)
def xxhash64_key(key: np.uint64) -> np.uint64:
    """Spark's `xxhash64` of one bigint, compiled."""
    prime1, prime2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
    word = key * prime2
    word = ((word << np.uint64(31)) | (word >> np.uint64(33))) * prime1
    state = (np.uint64(0x27D4EB2F165667C5) + np.uint64(50)) ^ word
    state = ((state << np.uint64(27)) | (state >> np.uint64(37))) * prime1 + np.uint64(0x85EBCA77C2B2AE63)
    state = (state ^ (state >> np.uint64(33))) * prime2
    state = (state ^ (state >> np.uint64(29))) * np.uint64(0x165667B19E3779F9)
    return state ^ (state >> np.uint64(32))

"""Hash functions: one 64-bit key per tuple (`column_keys`), which each row of a sketch mixes with its own seed.

A key is `xxhash64(header ^ nulls, value, value, ...)`, chained as Spark chains its columns. `header` is a hash of the
seed and of the attributes' types. `nulls` is a bit mask of the attributes that are null. So 1, '1' and 1.0 have
different keys. A null has its own key, and a null in one attribute differs from a null in another. Two seeds give two
independent keys. Spark's `xxhash64` alone does not do this: it skips nulls, ignores types of equal bytes and has one
seed. `fingerprint` computes for one key exactly what `column_keys` computes for whole columns.

In a sketch, row i uses mix64(key, s_i), which is the finaliser of splitmix64 (a bijection). floor(h * w / 2^32) reduces
its upper 32 bits h to a bucket. The analysis in Deng 2007 assumes pairwise independent hashes (point queries) or 4-wise
independent hashes (self-join sizes). In practice, mixing is stronger than both, and the tests compare the variances
with the exact ones.

Nothing in this module is compiled, so that a query loads no compiler. `kernels` has the same functions, compiled for
one key.

>>> fingerprint(["JFK", None], ["string", "integer"], seed=7) == fingerprint([None, "JFK"], ["integer", "string"], 7)
False
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Sequence

import numpy as np

from spillway.errors import InvalidValue
from spillway.sketches.types import Integers, Keys

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_SPARK_SEED = 42
KEY_VERSION = 1
KEY_TYPES = ("string", "boolean", "integer", "double", "timestamp", "date")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def mix(keys: Keys, seed: np.uint64 | Keys) -> Keys:
    """Return mix64 of the keys: a seeded bijection of 64 bits in which every input bit affects every output bit.

    `mix64` is the compiled form for one key.
    """
    z = keys ^ seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bucket_of_mixed(hashes: Keys, width: np.uint64) -> Keys:
    """Return the bucket of each mixed key among `width` (w, below 2^32) buckets."""
    return ((hashes >> np.uint64(32)) * width) >> np.uint64(32)


def spark_buckets(keys: Keys, factors: Keys, width: int) -> Integers:
    """Return `spark_bucket` of the keys in the row of each factor, without compiled code.

    >>> from spillway.sketches.kernels import spark_bucket
    >>> keys, factors = np.array([7, 2**63], dtype=np.uint64), spark_factors(1, 2)
    >>> bool(spark_buckets(keys, factors, 100)[1, 0] == spark_bucket(keys[0], factors[1], np.uint64(100)))
    True
    """
    product = (factors[:, None] * keys[None, :]).view(np.int64)
    found: Integers = ((product + (product >> 32)) & 0x7FFFFFFF) % width
    return found


def spark_factors(seed: int, count: int) -> Keys:
    """Return Spark's hashA of each row: java.util.Random(seed).nextInt(2^31 - 1), computed as in Java."""
    state = (seed ^ 0x5DEECE66D) & ((1 << 48) - 1)
    factors: list[int] = []
    while len(factors) < count:
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        drawn = state >> 17
        # nextInt rejects a draw that would favour small numbers: one of 2^31
        if drawn != (1 << 31) - 1:
            factors.append(drawn)
    return np.array(factors, dtype=np.uint64)


def row_seeds(seed: int, count: int, purpose: int = 0) -> Keys:
    """Return `count` independent seeds from one; `purpose` makes two uses of the same seed independent.

    >>> len(set(row_seeds(1, 4).tolist() + row_seeds(1, 4, purpose=1).tolist() + row_seeds(2, 4).tolist()))
    12
    """
    one, other = np.array([check_seed(seed)], np.uint64), np.array([purpose], np.uint64)
    start = mix(one, np.uint64(0x5B1C3D7F9A2E4C68)) ^ mix(other, np.uint64(0x6A09E667F3BCC909))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mix(start + steps, np.uint64(0))


def check_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MASK:
        raise InvalidValue("seed", "be an integer from 0 to 2^64 - 1", seed, "state a seed such as 1")
    return seed


def as_keys(keys: object) -> Keys:
    """Return the keys as an array of unsigned 64-bit integers for the kernels; signed integers keep their bits."""
    array = np.asarray(keys)
    if array.size == 0:
        return np.empty(0, dtype=np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidValue(
            "keys",
            "be a one-dimensional array of 64-bit hashes",
            f"{array.dtype} of shape {array.shape}",
            "hash the values first (column_keys.keys_of, or hashing.fingerprint for one)",
        )
    if array.dtype == np.int64:
        return np.ascontiguousarray(array).view(np.uint64)
    return np.ascontiguousarray(array, dtype=np.uint64)


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _finish(value: int) -> int:
    value = ((value ^ (value >> 33)) * _P2) & _MASK
    value = ((value ^ (value >> 29)) * _P3) & _MASK
    return value ^ (value >> 32)


def xxhash64_int(value: int, seed: int = _SPARK_SEED) -> int:
    """Return Spark's hash of a boolean or a date."""
    state = ((seed + _P5 + 4) & _MASK) ^ (((value & 0xFFFFFFFF) * _P1) & _MASK)
    return _finish((_rotate(state, 23) * _P2 + _P3) & _MASK)


def xxhash64_long(value: int, seed: int = _SPARK_SEED) -> int:
    """Return Spark's hash of a bigint, a timestamp, or the bits of a double."""
    state = ((seed + _P5 + 8) & _MASK) ^ ((_rotate(((value & _MASK) * _P2) & _MASK, 31) * _P1) & _MASK)
    return _finish((_rotate(state, 27) * _P1 + _P4) & _MASK)


def xxhash64_bytes(data: bytes, seed: int = _SPARK_SEED) -> int:
    """Return XXH64 of some bytes, as Spark hashes a string.

    >>> hex(xxhash64_bytes(b"", 0))
    '0xef46db3751d8e999'
    """
    length, at = len(data), 0
    if length >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while at <= length - 32:
            for lane, word in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[lane] = (_rotate((lanes[lane] + word * _P2) & _MASK, 31) * _P1) & _MASK
            at += 32
        state = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            state ^= (_rotate((lane * _P2) & _MASK, 31) * _P1) & _MASK
            state = (state * _P1 + _P4) & _MASK
    else:
        state = (seed + _P5) & _MASK
    state = (state + length) & _MASK
    while at <= length - 8:
        (word,) = struct.unpack_from("<Q", data, at)
        state ^= (_rotate((word * _P2) & _MASK, 31) * _P1) & _MASK
        state = (_rotate(state, 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= length - 4:
        (word,) = struct.unpack_from("<I", data, at)
        state ^= (word * _P1) & _MASK
        state = (_rotate(state, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        state ^= (byte * _P5) & _MASK
        state = (_rotate(state, 11) * _P1) & _MASK
    return _finish(state)


def key_header(types: Sequence[str], seed: int) -> int:
    """Return the first value of the hash chain: a signed 64-bit hash of seed, version and types."""
    for position, kind in enumerate(types):
        if kind not in KEY_TYPES:
            raise InvalidValue(
                f"types[{position}]", f"be one of {', '.join(KEY_TYPES)}", kind, "cast the column"
            )
    if not 1 <= len(types) <= 63:
        raise InvalidValue("attributes", "be 1 to 63 in number", len(types), "name fewer attributes")
    text = f"spillway.key.{KEY_VERSION}|{check_seed(seed)}|{'|'.join(types)}"
    value = xxhash64_bytes(text.encode())
    return value - (1 << 64) if value >> 63 else value


def are_hashed(types: Sequence[str]) -> bool:
    """Return whether a count of distinct keys uses the hashes of keys of these types, not their values."""
    return len(types) > 1 or types[0] == "double"


def _hash_value(value: object, kind: str, state: int, position: int) -> int:
    wrong = InvalidValue(
        f"key[{position}]", f"be a {kind}", value, "give the key with the attribute's own type"
    )
    if kind == "string" and isinstance(value, str):
        return xxhash64_bytes(value.encode(), state)
    if kind == "boolean" and isinstance(value, bool | np.bool_):
        return xxhash64_int(int(value), state)
    if kind == "integer" and isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not -(1 << 63) <= int(value) < 1 << 63:
            raise wrong
        return xxhash64_long(int(value), state)
    if kind == "double" and isinstance(value, int | float | np.floating) and not isinstance(value, bool):
        number = float(value)
        # Spark gives all NaNs the same hash, and hashes -0.0 as 0.0
        number = float("nan") if number != number else number + 0.0
        return xxhash64_long(struct.unpack("<q", struct.pack("<d", number))[0], state)
    if kind == "date" and isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return xxhash64_int((value - _EPOCH.date()).days, state)
    if kind == "timestamp" and isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return xxhash64_long((moment - _EPOCH) // datetime.timedelta(microseconds=1), state)
    raise wrong


def fingerprint(values: Sequence[object], types: Sequence[str], seed: int) -> int:
    """Return the 64-bit key of the values of one row, the same as `column_keys` computes.

    >>> fingerprint([1], ["integer"], 0) == fingerprint([1.0], ["double"], 0)
    False
    """
    if len(values) != len(types):
        raise InvalidValue("key", f"have {len(types)} values", list(values), "give one value per attribute")
    nulls = sum(1 << position for position, value in enumerate(values) if value is None)
    state = xxhash64_long(key_header(types, seed) ^ nulls)
    for position, (value, kind) in enumerate(zip(values, types, strict=True)):
        if value is not None:
            state = _hash_value(value, kind, state, position)
    return state

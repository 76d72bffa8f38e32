"""Compute the keys of whole Arrow columns: `hashing.fingerprint` of every row, compiled.

The keys are a chained xxhash64, as Spark computes it for columns, so Spark SQL can compute the same keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spillway.sketches.hashing import are_hashed, key_header
from spillway.sketches.types import Keys
from spillway.sketches.values import order_values

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
_SPARK_SEED = 42
_NAN = np.float64("nan")
_EMPTY_TEXT = -1


def keys_of(rows: pa.Table, attributes: Sequence[str], types: Sequence[str], seed: int) -> Keys:
    """Return the 64-bit key of every row.

    >>> from spillway.sketches.hashing import fingerprint
    >>> rows = pa.table({"site": ["JFK", None], "at": [7, 8]})
    >>> keys = keys_of(rows, ["site", "at"], ["string", "integer"], seed=3)
    >>> keys.tolist() == [fingerprint([s, a], ["string", "integer"], 3) for s, a in (("JFK", 7), (None, 8))]
    True
    """
    columns = [rows[name].combine_chunks() for name in attributes]
    present = [np.asarray(column.is_valid()) for column in columns]
    links = np.full(rows.num_rows, key_header(types, seed), np.int64)
    for place, valid in enumerate(present):
        links ^= np.where(valid, 0, np.int64(1) << np.int64(place))
    keys = np.full(rows.num_rows, _SPARK_SEED, np.uint64)
    _hash_longs(keys, links.view(np.uint64), np.ones(rows.num_rows, np.bool_))
    for column, valid, kind in zip(columns, present, types, strict=True):
        if kind == "string":
            _hash_texts(keys, *_text_buffers(column), valid)
        elif kind in ("boolean", "date"):
            whole = pc.cast(pc.cast(column, pa.int32()), pa.int64())
            _hash_ints(keys, np.asarray(pc.fill_null(whole, 0)).view(np.uint64), valid)
        else:
            _hash_longs(keys, _long_bits(column, kind), valid)
    return keys


def distinct_keys(rows: pa.Table, attributes: Sequence[str], types: Sequence[str], seed: int) -> list[Any]:
    """Return the distinct keys of the rows without nulls: single texts and integers unchanged, other keys as hashes.

    DataSketches ignores an empty text, as Spark's function does. Here an empty text counts as a value: it is replaced
    by the number -1. No text has the eight bytes of this number, because 0xFF does not occur in UTF-8.

    >>> distinct_keys(pa.table({"site": ["JFK", None, "JFK", ""]}), ["site"], ["string"], 1)
    ['JFK', -1]
    """
    rows = rows.select(list(attributes)).drop_null()
    if are_hashed(types):
        return np.unique(keys_of(rows, attributes, types, seed).view(np.int64)).tolist()
    column = rows[attributes[0]]
    if types[0] == "string":
        return [text or _EMPTY_TEXT for text in column.unique().to_pylist()]
    return np.unique(order_values(column, types[0])).tolist()


def _long_bits(column: pa.Array, kind: str) -> Keys:
    if kind == "timestamp" and pa.types.is_timestamp(column.type):
        # equal times have equal keys, in any unit
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if kind != "double":
        return np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).view(np.uint64)
    # as in Spark: all NaNs are equal, and -0.0 equals 0.0
    numbers = np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0)) + 0.0
    return np.where(np.isnan(numbers), _NAN, numbers).view(np.uint64)


def _text_buffers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of all texts, and their offsets: the begin of each text and the end of the last."""
    texts: Any = column.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), edges


@njit(cache=True)
def _rotated(value, bits):  # type: ignore[no-untyped-def]
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@njit(cache=True)
def _finished(value):  # type: ignore[no-untyped-def]
    value = (value ^ (value >> np.uint64(33))) * _P2
    value = (value ^ (value >> np.uint64(29))) * _P3
    return value ^ (value >> np.uint64(32))


@njit(cache=True)
def _hash_longs(keys, values, valid):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        if valid[i]:
            state = (keys[i] + _P5 + np.uint64(8)) ^ (_rotated(values[i] * _P2, 31) * _P1)
            keys[i] = _finished(_rotated(state, 27) * _P1 + _P4)


@njit(cache=True)
def _hash_ints(keys, values, valid):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        if valid[i]:
            state = (keys[i] + _P5 + np.uint64(4)) ^ ((values[i] & np.uint64(0xFFFFFFFF)) * _P1)
            keys[i] = _finished(_rotated(state, 23) * _P2 + _P3)


@njit(cache=True)
def _word(data, at, size):  # type: ignore[no-untyped-def]
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@njit(cache=True)
def _hash_texts(keys, data, edges, valid):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        if valid[i]:
            keys[i] = _hash_text(data, edges[i], edges[i + 1], keys[i])


@njit(cache=True)
def _hash_text(data, at, end, seed):  # type: ignore[no-untyped-def]
    length = np.uint64(end - at)
    if end - at >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at <= end - 32:
            a = _rotated(a + _word(data, at, 8) * _P2, 31) * _P1
            b = _rotated(b + _word(data, at + 8, 8) * _P2, 31) * _P1
            c = _rotated(c + _word(data, at + 16, 8) * _P2, 31) * _P1
            d = _rotated(d + _word(data, at + 24, 8) * _P2, 31) * _P1
            at += 32
        state = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
        for lane in (a, b, c, d):
            state = (state ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    else:
        state = seed + _P5
    state += length
    while at <= end - 8:
        state = _rotated(state ^ (_rotated(_word(data, at, 8) * _P2, 31) * _P1), 27) * _P1 + _P4
        at += 8
    if at <= end - 4:
        state = _rotated(state ^ (_word(data, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        state = _rotated(state ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    return _finished(state)

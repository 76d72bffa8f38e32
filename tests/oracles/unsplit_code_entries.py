"""The kernel `code_entries` as one function, before it was split (issue 26): an oracle for one release, bit for bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

INPUTS = 6
LIMIT = 255
REGION = 64 + 41 * 8 + 64  # contexts of one number: length, top bits by length, bits further down
_UNKNOWN = np.uint32(32768 << 8)
_LOW, _HIGH, _AT, _CODE_VALUE = 0, 1, 2, 3
_MASK = 0xFFFFFFFF
# squash at -2048, -1920, ..., 2048: 4096 / (1 + exp(-x / 256)), with room kept at both ends
_CURVE = np.fromstring(
    "1 2 3 6 10 16 27 45 73 120 194 310 488 747 1101 1546 2047 2549 2994 3348 3607 3785 3901 3975 4022 4050 "
    "4068 4079 4085 4089 4092 4093 4094",
    np.int64,
    sep=" ",
)


def _squash_table() -> np.ndarray:
    at = np.arange(-2047, 2048) + 2048
    low, part = at >> 7, at & 127
    return (_CURVE[low] * (128 - part) + _CURVE[low + 1] * part + 64) >> 7


def _stretch_table(squashed: np.ndarray) -> np.ndarray:
    return np.searchsorted(squashed, np.arange(4096)).clip(0, 4094) - 2047


SQUASH = _squash_table()
STRETCHED = _stretch_table(SQUASH)
RATE = (65536 / (np.arange(LIMIT + 1) + 1.5)).astype(np.int64)


class Coder(NamedTuple):
    """The arrays of one pass: registers, bytes, a probability (<< 8) and a count per context, and mixing weights."""

    state: np.ndarray
    buffer: np.ndarray
    counters: np.ndarray
    weights: np.ndarray

    @staticmethod
    def _fresh(buffer: np.ndarray, contexts: int, mixers: int) -> Coder:
        return Coder(
            np.array([0, _MASK, 0, 0], np.int64),
            buffer,
            np.full(contexts, _UNKNOWN, np.uint32),
            np.full((mixers, INPUTS), 65536 // 4, np.int64),
        )

    @staticmethod
    def writing(mixers: int, contexts: int = INPUTS, room: int = 1 << 10) -> Coder:
        """Return a coder for encoding; `room` is the size of the buffer, which must hold all bytes written."""
        return Coder._fresh(np.zeros(room, np.uint8), contexts, mixers)

    @staticmethod
    def reading(block: bytes, mixers: int, contexts: int = INPUTS) -> Coder:
        """Return a coder for decoding."""
        coder = Coder._fresh(np.frombuffer(block + bytes(8), np.uint8).copy(), contexts, mixers)
        for _ in range(4):
            coder.state[_CODE_VALUE] = (coder.state[_CODE_VALUE] << 8) | int(coder.buffer[coder.state[_AT]])
            coder.state[_AT] += 1
        return coder


@njit(cache=True)
def _learn(counters, at, target):  # type: ignore[no-untyped-def]
    both = np.int64(counters[at])
    n = both & 255
    chance = both >> 8
    chance += ((target - chance) * RATE[np.uint32(n)]) >> 16
    counters[at] = (chance << 8) | (n + 1 if n < LIMIT else n)


@njit(cache=True)
def code_bit(decode, bit, state, buffer, counters, weights, c0, c1, c2, c3, c4, c5, mixer):  # type: ignore[no-untyped-def]
    """Code one bit in six contexts and return it."""
    w = weights[np.uint32(mixer)]
    i0, i1, i2, i3 = np.uint32(c0), np.uint32(c1), np.uint32(c2), np.uint32(c3)
    i4, i5 = np.uint32(c4), np.uint32(c5)
    s0 = STRETCHED[counters[i0] >> np.uint32(12)]
    s1 = STRETCHED[counters[i1] >> np.uint32(12)]
    s2 = STRETCHED[counters[i2] >> np.uint32(12)]
    s3 = STRETCHED[counters[i3] >> np.uint32(12)]
    s4 = STRETCHED[counters[i4] >> np.uint32(12)]
    s5 = STRETCHED[counters[i5] >> np.uint32(12)]
    dot = s0 * w[0] + s1 * w[1] + s2 * w[2] + s3 * w[3] + s4 * w[4] + s5 * w[5]
    dot = min(max(dot >> 16, -2047), 2047)
    p = SQUASH[np.uint32(dot + 2047)]
    low = state[_LOW]
    high = state[_HIGH]
    spread = high - low
    middle = low + ((spread >> 12) * p) + (((spread & 4095) * p) >> 12)
    if decode:
        bit = 1 if state[_CODE_VALUE] <= middle else 0
    if bit == 1:
        high = middle
    else:
        low = middle + 1
    while (low ^ high) & 0xFF000000 == 0:
        at = np.uint64(state[_AT])
        if decode:
            byte = np.int64(buffer[at]) if at < np.uint64(len(buffer)) else 0
            state[_CODE_VALUE] = ((state[_CODE_VALUE] << 8) & _MASK) | byte
        else:
            buffer[at] = high >> 24
        state[_AT] += 1
        low = (low << 8) & _MASK
        high = ((high << 8) & _MASK) | 255
    state[_LOW] = low
    state[_HIGH] = high
    miss = ((bit << 12) - p) * 10
    w[0] += (s0 * miss + 8192) >> 14
    w[1] += (s1 * miss + 8192) >> 14
    w[2] += (s2 * miss + 8192) >> 14
    w[3] += (s3 * miss + 8192) >> 14
    w[4] += (s4 * miss + 8192) >> 14
    w[5] += (s5 * miss + 8192) >> 14
    target = 65535 if bit == 1 else 0
    _learn(counters, i0, target)
    _learn(counters, i1, target)
    _learn(counters, i2, target)
    _learn(counters, i3, target)
    _learn(counters, i4, target)
    _learn(counters, i5, target)
    return bit


@njit(cache=True)
def code_number(decode, number, state, buffer, counters, weights, base, d0, d1, d2, d3, d4, mixer):  # type: ignore[no-untyped-def]
    """Code a uint64: its bit length in unary, then the bits below the top one.

    Uses REGION contexts from `base` on for each of d0..d4 (indices of whole regions) and mixers from
    `mixer` to `mixer` + 2.
    """
    length = 0
    rest = number
    while rest > np.uint64(0):
        rest >>= np.uint64(1)
        length += 1
    at = 0
    while at < 64:
        more = 1 if at < length else 0
        more = code_bit(
            decode, more, state, buffer, counters, weights,
            base + at, base + d0 * REGION + at, base + d1 * REGION + at, base + d2 * REGION + at,
            base + d3 * REGION + at, base + d4 * REGION + at, mixer,
        )  # fmt: skip
        if more == 0:
            break
        at += 1
    length = at
    if length <= 1:
        return np.uint64(length)
    result = np.uint64(1)
    prefix = 1
    for i in range(length - 2, -1, -1):
        bit = np.int64((number >> np.uint64(i)) & np.uint64(1))
        if prefix < 8:
            slot = 64 + (min(length, 40) * 8 + prefix)
            which = mixer + 1
        else:
            slot = 64 + 41 * 8 + i
            which = mixer + 2
        bit = code_bit(
            decode, bit, state, buffer, counters, weights,
            base + slot, base + d0 * REGION + slot, base + d1 * REGION + slot, base + d2 * REGION + slot,
            base + d3 * REGION + slot, base + d4 * REGION + slot, which,
        )  # fmt: skip
        if prefix < 8:
            prefix = prefix * 2 + bit
        result = (result << np.uint64(1)) | np.uint64(bit)
    return result


def finish(state: np.ndarray, buffer: np.ndarray) -> bytes:
    """Return the bytes written, with an end from which they can be decoded."""
    tail = (int(state[_HIGH]) >> 24) & 0xFF
    return bytes(buffer[: int(state[_AT])].tobytes() + bytes([tail, 0, 0, 0])).rstrip(b"\0")


PLACES = 512
DEPTH = 64
_FLAG = 0
_FLAG_PLACE = _FLAG + 64 + 32
_FLAG_WAY = _FLAG_PLACE + PLACES * 2
_FLAG_AGE = _FLAG_WAY + 64
_FLAG_SIZE = _FLAG_AGE + 32 * 8
_KIND = _FLAG_SIZE + 3 * 9 * 8
_SIGN = _KIND + 64 + 64 * 2
_SIGN_PLACE = _SIGN + 32 + 9 + 4
_SIGN_PAIR = _SIGN_PLACE + PLACES * 4
_STEP = _SIGN_PAIR + 27 + 3 * 9
_STEP_REGIONS = 1 + 9 + 9 + 64 + 81 + 8
_VALUE = _STEP + _STEP_REGIONS * REGION
_VALUE_REGIONS = 1 + DEPTH + 8 + 64 + DEPTH + 256
_INDEX = _VALUE + _VALUE_REGIONS * REGION
_INDEX_TREES = 1 + 64 + 64 + 16 + 256 + 256
MIXERS = 16
_MIX_FLAG, _MIX_KIND, _MIX_SIGN, _MIX_STEP, _MIX_VALUE, _MIX_INDEX = 0, 4, 5, 6, 9, 12
LITERAL, EMPTY, NOT_A_NUMBER, POSITIVE, NEGATIVE = 0, 1, 2, 3, 4


def contexts_needed(index_bits: int) -> int:
    """Return the number of contexts of a block; those for indices take time to clear and are left out if unused."""
    return _INDEX + (_INDEX_TREES << index_bits if index_bits else 0)


@njit(cache=True)
def _size_class(value):  # type: ignore[no-untyped-def]
    size = 0
    rest = abs(value)
    while rest > 0 and size < 60:
        rest >>= 1
        size += 1
    return size


@njit(cache=True)
def _zigzag(value):  # type: ignore[no-untyped-def]
    """Return -1, 1, -2, 2, ... as 1, 2, 3, 4, ..., over all of int64."""
    return (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)


@njit(cache=True)
def _unzigzag(value):  # type: ignore[no-untyped-def]
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@njit(cache=True)
def code_entries(  # type: ignore[no-untyped-def]
    decode, key, offsets, is_step, steps, marks, wholes, index_bits, state, buffer, counters, weights,
):  # fmt: skip
    """Code all entries of rows with these keys; decoding fills offsets, is_step, steps, marks, wholes.

    Returns the number of entries coded. If the last rows are missing, decoding gives the entries of the others. `marks`
    distinguishes numbers, null, NaN and infinities. `wholes` are whole numbers, or indices into a list of distinct
    values if `index_bits` > 0. If `buffer` is too small, the result is -1.
    """
    span = len(key)
    keys = key.max() + 1 if span else 0
    past = np.zeros(keys, np.int64)  # per key, a bit for each of its last rows: had an entry
    age = np.zeros(keys, np.int64)  # per key, rows since its newest entry, at most 255
    entry_at = np.full(keys, -1, np.int64)  # per key, its newest entry
    whole_at = np.full(keys, -1, np.int64)  # per key, its newest entry that is a whole number
    older_whole = np.zeros(keys, np.int64)  # per key, the whole number before that
    size_at = np.zeros(keys, np.int64)  # per key, the size of its newest difference of whole numbers
    way_at = np.zeros(keys, np.int64)  # per key, the direction of the step before its newest entry
    newest_size = 0
    row_past = 0
    e = 0
    newest = -1
    newest_whole = -1
    total = len(offsets)
    for o in range(span):
        if e >= total:
            break
        phase = key[o]
        f = past[phase]
        f1 = f & 1
        g1 = row_past & 1
        mine = entry_at[phase]
        rounds = age[phase]
        gap = 0
        while gap < 7 and rounds >> gap > 0:
            gap += 1
        way = 0
        c_last = 0
        if mine >= 0 and is_step[mine]:
            way = 1 if steps[mine] < 0 else 2
            c_last = min(_size_class(steps[mine]), 8)
        side = 0
        if g1 == 1 and is_step[newest]:
            side = 1 if steps[newest] < 0 else 2
        place = phase % PLACES
        bit = 1 if e < total and not decode and offsets[e] == o else 0
        bit = code_bit(
            decode, bit, state, buffer, counters, weights,
            _FLAG + ((f & 15) | (row_past & 3) << 4),
            _FLAG + 64 + ((row_past & 15) | f1 << 4),
            _FLAG_PLACE + place * 2 + f1,
            _FLAG_WAY + ((gap * 3 + way) if g1 == 0 else 24 + gap * 3 + side),
            _FLAG_AGE + min(rounds, 31) * 8 + (f & 7),
            _FLAG_SIZE + (way * 9 + c_last) * 8 + gap,
            _MIX_FLAG + (f1 | g1 << 1),
        )  # fmt: skip
        past[phase] = (f << 1 | bit) & 15
        row_past = (row_past << 1 | bit) & 15
        if bit == 0:
            age[phase] = min(rounds + 1, 255)
            continue
        mine_whole = whole_at[phase]
        c_before = size_at[phase]
        if not decode and state[2] + 64 > len(buffer):
            return -1
        if decode and e >= total:
            return -1
        age[phase] = 1
        if decode:
            offsets[e] = o
        was = 0
        if mine >= 0:
            was = 1 + (1 if is_step[mine] else 0) + (2 if marks[mine] != LITERAL else 0)
        # kind: step, number, or one of the others; one bit each
        what = 0
        if not decode:
            what = 1 if is_step[e] else 0
        what = code_bit(
            decode, what, state, buffer, counters, weights,
            _KIND + was, _KIND + 8 + was * 2 + g1, _KIND + 24, _KIND + 25 + side,
            _KIND + 64 + place % 64, _KIND + 128 + was * 8 + gap, _MIX_KIND,
        )  # fmt: skip
        is_step[e] = what == 1
        if what == 1:
            beside = steps[newest] if g1 == 1 and is_step[newest] else 0
            c_beside = min(_size_class(beside), 8)
            size = np.uint64(0)
            if not decode:
                size = np.uint64(abs(steps[e]))
            size = code_number(
                decode, size, state, buffer, counters, weights,
                _STEP, 1 + c_last, 10 + c_beside, 19 + place % 64, 83 + c_last * 9 + c_beside, 164 + gap, _MIX_STEP,
            )  # fmt: skip
            value = np.int64(size)
            if size > np.uint64(0):
                sign = 1 if steps[e] < 0 and not decode else 0
                near = min(gap, 5)
                sign = code_bit(
                    decode, sign, state, buffer, counters, weights,
                    _SIGN + way * 8 + near, _SIGN + 32 + side * 3 + way, _SIGN + 41 + min(_size_class(value), 3),
                    _SIGN_PLACE + place * 4 + side, _SIGN_PAIR + (way_at[phase] * 3 + way) * 3 + side,
                    _SIGN_PAIR + 27 + way * 9 + c_last, _MIX_SIGN,
                )  # fmt: skip
                if sign == 1:
                    value = -value
            if decode:
                steps[e] = value
        else:
            mark = np.int64(marks[e]) if not decode else 0
            got = 0
            for m in range(4):
                more = 1 if mark > m else 0
                more = code_bit(
                    decode, more, state, buffer, counters, weights,
                    _KIND + 32 + m, _KIND + 36 + m * 4 + min(was, 3), _KIND + 52 + m, _KIND + 56 + m * 2 + g1,
                    _KIND + 52 + m, _KIND + 32 + m, _MIX_KIND + 11,
                )  # fmt: skip
                if more == 0:
                    break
                got = m + 1
            marks[e] = got
            if got == LITERAL:
                before = (
                    wholes[mine_whole]
                    if mine_whole >= 0
                    else (wholes[newest_whole] if newest_whole >= 0 else 0)
                )
                if index_bits > 0:
                    beside_value = wholes[newest_whole] if newest_whole >= 0 else 0
                    number = wholes[e] if not decode else 0
                    node = 1
                    tree = 1 << index_bits
                    for b in range(index_bits - 1, -1, -1):
                        one = (number >> b) & 1
                        one = code_bit(
                            decode, one, state, buffer, counters, weights,
                            _INDEX + node, _INDEX + (1 + before % 64) * tree + node,
                            _INDEX + (65 + beside_value % 64) * tree + node,
                            _INDEX + (129 + place % 16) * tree + node,
                            _INDEX + (145 + (before * 37 + older_whole[phase]) % 256) * tree + node,
                            _INDEX + (401 + (before * 37 + beside_value) % 256) * tree + node,
                            _MIX_INDEX + min(index_bits - 1 - b, 2),
                        )  # fmt: skip
                        node = node * 2 + one
                    value = np.int64(node - (1 << index_bits))
                else:
                    coded = np.uint64(0)
                    if not decode:
                        coded = _zigzag(wholes[e] - before)
                    coded = code_number(
                        decode, coded, state, buffer, counters, weights,
                        _VALUE, 1 + c_before, 1 + DEPTH + gap, 9 + DEPTH + place % 64, 73 + DEPTH + newest_size,
                        73 + 2 * DEPTH + c_before // 4 * 16 + newest_size // 4, _MIX_VALUE,
                    )  # fmt: skip
                    value = before + _unzigzag(coded)
                if decode:
                    wholes[e] = value
                newest_size = min(_size_class(value - before), DEPTH - 2) + 1
                if mine_whole >= 0:
                    size_at[phase] = newest_size
                    older_whole[phase] = wholes[mine_whole]
                whole_at[phase] = e
                newest_whole = e
        way_at[phase] = way
        entry_at[phase] = e
        newest = e
        e += 1
    return e

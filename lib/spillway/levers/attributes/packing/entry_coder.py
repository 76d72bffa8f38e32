"""Code the body of a synopsis block by an adaptive binary arithmetic coder with mixed contexts.

*Entries* (`code_entries`): the body says which rows of a span have an entry, and what each entry is. The flag "has an
entry" is coded in the context of the key's last rows and of the last rows of any key. So are the size and sign of
steps, and the differences between a whole value and the key's whole value before. Both ends know the key of every row,
so keys may arrive in any order. Without keys, all rows have the same key. Whole values are whole numbers here
(`whole_numbers` converts reals).

*Coder* (`code_bit`): every bit is predicted from several contexts at once, and takes -log2 p bits (arithmetic coding by
Rissanen and Langdon; mixing in the logistic domain by Mahoney, PAQ). A context is a counter with a 16-bit probability.
It adapts at the rate 1/(n + 1.5), later at about 1/LIMIT. The probabilities are stretched, ln(p / (1 - p)), weighted,
summed and squashed back. The weights move along the gradient of the coding cost. All arithmetic is in integers, so
every machine decodes what any other encoded.

Encoding and decoding run the same statements (`code_bit` with `decode` on or off), as `walking` does. Numbers are coded
as bit length, then mantissa. The top mantissa bits have contexts of their own.

>>> coder, flips = Coder.writing(1), np.array([0, 0, 1, 0, 0, 0, 0, 0] * 50)
>>> for flip in flips:
...     _ = code_bit(False, flip, coder, (0, 1, 2, 3, 4, 5), 0)
>>> block = finish(coder.state, coder.buffer)
>>> back = Coder.reading(block, 1)
>>> [int(code_bit(True, 0, back, (0, 1, 2, 3, 4, 5), 0)) for _ in flips] == flips.tolist(), len(block) < 50
(True, True)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

inner = njit(cache=True, _nrt=False)
"""Compile a function that allocates nothing: numba then counts no references to the arrays that it gets."""
inlined = njit(cache=True, _nrt=False, forceinline=True)
"""The same, for a function that LLVM would not inline but should: what it takes would be copied at each call."""
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


@inner
def _learn(counters, at, target):  # type: ignore[no-untyped-def]
    both = np.int64(counters[at])
    n = both & 255
    chance = both >> 8
    chance += ((target - chance) * RATE[np.uint32(n)]) >> 16
    counters[at] = (chance << 8) | (n + 1 if n < LIMIT else n)


@inner
def code_bit(decode, bit, coder, contexts, mixer):  # type: ignore[no-untyped-def]
    """Code one bit in six contexts and return it."""
    state, buffer, counters = coder.state, coder.buffer, coder.counters
    w = coder.weights[np.uint32(mixer)]
    i0, i1, i2 = np.uint32(contexts[0]), np.uint32(contexts[1]), np.uint32(contexts[2])
    i3, i4, i5 = np.uint32(contexts[3]), np.uint32(contexts[4]), np.uint32(contexts[5])
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


@inner
def _in_regions(base, regions, at):  # type: ignore[no-untyped-def]
    """Return the contexts of one bit of a number: context `at` of its six regions."""
    d0, d1, d2, d3, d4 = regions
    first = base + at
    return (
        first, first + d0 * REGION, first + d1 * REGION, first + d2 * REGION, first + d3 * REGION, first + d4 * REGION,
    )  # fmt: skip


@inner
def code_number(decode, number, coder, base, regions, mixer):  # type: ignore[no-untyped-def]
    """Code a uint64: its bit length in unary, then the bits below the top one.

    Uses REGION contexts from `base` on for itself and for each of the five `regions` (indices of whole regions), and
    the mixers from `mixer` to `mixer` + 2.
    """
    length = 0
    rest = number
    while rest > np.uint64(0):
        rest >>= np.uint64(1)
        length += 1
    at = 0
    while at < 64:
        more = 1 if at < length else 0
        if code_bit(decode, more, coder, _in_regions(base, regions, at), mixer) == 0:
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
        bit = code_bit(decode, bit, coder, _in_regions(base, regions, slot), which)
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
_FLAG_DIRECTION = _FLAG_PLACE + PLACES * 2
_FLAG_AGE = _FLAG_DIRECTION + 64
_FLAG_SIZE = _FLAG_AGE + 32 * 8
_FORM = _FLAG_SIZE + 3 * 9 * 8
_SIGN = _FORM + 64 + 64 * 2
_SIGN_PLACE = _SIGN + 32 + 9 + 4
_SIGN_PAIR = _SIGN_PLACE + PLACES * 4
_STEP = _SIGN_PAIR + 27 + 3 * 9
_STEP_REGIONS = 1 + 9 + 9 + 64 + 81 + 8
_VALUE = _STEP + _STEP_REGIONS * REGION
_VALUE_REGIONS = 1 + DEPTH + 8 + 64 + DEPTH + 256
_INDEX = _VALUE + _VALUE_REGIONS * REGION
_INDEX_TREES = 1 + 64 + 64 + 16 + 256 + 256
MIXERS = 16
_MIX_FLAG, _MIX_FORM, _MIX_SIGN, _MIX_STEP, _MIX_VALUE, _MIX_INDEX = 0, 4, 5, 6, 9, 12
LITERAL, EMPTY, NOT_A_NUMBER, POSITIVE, NEGATIVE = 0, 1, 2, 3, 4


def contexts_needed(index_bits: int) -> int:
    """Return the number of contexts of a block; those for indices take time to clear and are left out if unused."""
    return _INDEX + (_INDEX_TREES << index_bits if index_bits else 0)


@inner
def _size_class(value):  # type: ignore[no-untyped-def]
    size = 0
    rest = abs(value)
    while rest > 0 and size < 60:
        rest >>= 1
        size += 1
    return size


@inner
def _zigzag(value):  # type: ignore[no-untyped-def]
    """Return -1, 1, -2, 2, ... as 1, 2, 3, 4, ..., over all of int64."""
    return (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)


@inner
def _unzigzag(value):  # type: ignore[no-untyped-def]
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


class EntryArrays(NamedTuple):
    """Entries as the coder reads or fills them."""

    offsets: np.ndarray
    """The row of each entry, ascending."""
    is_step: np.ndarray
    steps: np.ndarray
    marks: np.ndarray
    """Numbers (LITERAL), null, NaN or infinities."""
    wholes: np.ndarray
    """Whole numbers, or indices into a list of distinct values."""


PAST = np.dtype(
    [
        ("flags", "i8"),
        ("age", "i8"),
        ("form", "i8"),
        ("direction", "i8"),
        ("direction_before", "i8"),
        ("size", "i8"),
        ("has_whole", "i8"),
        ("whole", "i8"),
        ("whole_before", "i8"),
        ("difference", "i8"),
    ]
)
"""What is known of a key's rows so far; all zeros at first. See `Context`; and of whole numbers:

`has_whole` is 1 if there is any. `whole` is the newest, `whole_before` the one before it, and `difference` the size of
the newest difference between two.
"""


class Context(NamedTuple):
    """What both ends know before a row is coded. Directions are 0 (no step), 1 (down) or 2 (up)."""

    place: int
    """The key, modulo PLACES."""
    flags: int
    row_flags: int
    """A bit for each of the last four rows, of the key and of any key: had an entry."""
    age: int
    gap: int
    """Rows since the key's newest entry, at most 255, and the bit length of this number, at most 7."""
    form: int
    """Of the key's newest entry: 0 if there is none, 1 for numbers, 2 for steps, 3 for the others."""
    direction: int
    direction_before: int
    """Of the key's newest entry, and of the one before."""
    size: int
    """Of the key's newest entry, if it is a step."""
    near_step: int
    near_direction: int
    """The step of the row before, of any key, and its direction."""


@inner
def _direction_of(step):  # type: ignore[no-untyped-def]
    return 1 if step < 0 else 2


@inlined
def _context_of(key, past, row_flags, newest_is_step, newest_step):  # type: ignore[no-untyped-def]
    gap = 0
    while gap < 7 and past.age >> gap > 0:
        gap += 1
    near_step, near_direction = 0, 0
    if row_flags & 1 == 1 and newest_is_step:
        near_step, near_direction = newest_step, _direction_of(newest_step)
    return Context(
        key % PLACES, past.flags, row_flags, past.age, gap, past.form, past.direction, past.direction_before,
        past.size, near_step, near_direction,
    )  # fmt: skip


@inlined
def _code_flag(decode, flag, context, coder):  # type: ignore[no-untyped-def]
    """Code whether a row has an entry."""
    flags, row_flags, gap = context.flags, context.row_flags, context.gap
    f1, g1 = flags & 1, row_flags & 1
    near = gap * 3 + context.direction if g1 == 0 else 24 + gap * 3 + context.near_direction
    contexts = (
        _FLAG + ((flags & 15) | (row_flags & 3) << 4),
        _FLAG + 64 + ((row_flags & 15) | f1 << 4),
        _FLAG_PLACE + context.place * 2 + f1,
        _FLAG_DIRECTION + near,
        _FLAG_AGE + min(context.age, 31) * 8 + (flags & 7),
        _FLAG_SIZE + (context.direction * 9 + context.size) * 8 + gap,
    )
    return code_bit(decode, flag, coder, contexts, _MIX_FLAG + (f1 | g1 << 1))


@inlined
def _code_is_step(decode, is_step, context, coder):  # type: ignore[no-untyped-def]
    form, g1 = context.form, context.row_flags & 1
    contexts = (
        _FORM + form, _FORM + 8 + form * 2 + g1, _FORM + 24, _FORM + 25 + context.near_direction,
        _FORM + 64 + context.place % 64, _FORM + 128 + form * 8 + context.gap,
    )  # fmt: skip
    return code_bit(decode, 1 if is_step else 0, coder, contexts, _MIX_FORM) == 1


@inner
def _code_step(decode, step, context, coder):  # type: ignore[no-untyped-def]
    """Code the size of a step, then its sign."""
    direction, gap, size, place = context.direction, context.gap, context.size, context.place
    near = min(_size_class(context.near_step), 8)
    regions = (1 + size, 10 + near, 19 + place % 64, 83 + size * 9 + near, 164 + gap)
    value = np.int64(code_number(decode, np.uint64(abs(step)), coder, _STEP, regions, _MIX_STEP))
    if value == 0:
        return value
    pair = context.direction_before * 3 + direction
    contexts = (
        _SIGN + direction * 8 + min(gap, 5), _SIGN + 32 + context.near_direction * 3 + direction,
        _SIGN + 41 + min(_size_class(value), 3), _SIGN_PLACE + place * 4 + context.near_direction,
        _SIGN_PAIR + pair * 3 + context.near_direction, _SIGN_PAIR + 27 + direction * 9 + size,
    )  # fmt: skip
    negative = code_bit(decode, 1 if step < 0 else 0, coder, contexts, _MIX_SIGN)
    return -value if negative == 1 else value


@inner
def _code_mark(decode, mark, context, coder):  # type: ignore[no-untyped-def]
    """Code a mark in unary."""
    form, g1 = context.form, context.row_flags & 1
    for m in range(4):
        contexts = (
            _FORM + 32 + m, _FORM + 36 + m * 4 + form, _FORM + 52 + m, _FORM + 56 + m * 2 + g1, _FORM + 52 + m,
            _FORM + 32 + m,
        )  # fmt: skip
        if code_bit(decode, 1 if mark > m else 0, coder, contexts, _MIX_FORM + 11) == 0:
            return m
    return 4


@inlined
def _code_index(decode, number, index_bits, before, near, before_that, context, coder):  # type: ignore[no-untyped-def]
    """Code an index, from its top bit on, in the context of earlier indices: of the key, of any key, and of both."""
    node, tree = 1, 1 << index_bits
    for b in range(index_bits - 1, -1, -1):
        contexts = (
            _INDEX + node, _INDEX + (1 + before % 64) * tree + node, _INDEX + (65 + near % 64) * tree + node,
            _INDEX + (129 + context.place % 16) * tree + node,
            _INDEX + (145 + (before * 37 + before_that) % 256) * tree + node,
            _INDEX + (401 + (before * 37 + near) % 256) * tree + node,
        )  # fmt: skip
        mixer = _MIX_INDEX + min(index_bits - 1 - b, 2)
        node = node * 2 + code_bit(decode, (number >> b) & 1, coder, contexts, mixer)
    return np.int64(node - tree)


@inner
def _code_difference(decode, difference, sizes, context, coder):  # type: ignore[no-untyped-def]
    """Code the difference of two whole numbers, in the context of the sizes of the last ones: of the key and of any."""
    size, newest_size = sizes
    regions = (
        1 + size, 1 + DEPTH + context.gap, 9 + DEPTH + context.place % 64, 73 + DEPTH + newest_size,
        73 + 2 * DEPTH + size // 4 * 16 + newest_size // 4,
    )  # fmt: skip
    return _unzigzag(code_number(decode, _zigzag(difference), coder, _VALUE, regions, _MIX_VALUE))


@njit(cache=True)
def code_entries(decode, key, entries, index_bits, coder):  # type: ignore[no-untyped-def]
    """Code all entries of rows with these keys; decoding fills the `entries`.

    Returns the number of entries coded. If the last rows are missing, decoding gives the entries of the others. With
    `index_bits` > 0, `wholes` are indices into a list of distinct values. If the buffer is too small, the result is -1.
    """
    # an array that is read from a tuple is counted as one more reference, which is slow: read each once
    offsets, is_step, steps, marks, wholes = entries
    state, room = coder.state, len(coder.buffer)
    pasts = np.zeros(key.max() + 1 if len(key) else 0, PAST)
    e, row_flags, newest_difference, newest_whole, newest_is_step, newest_step = 0, 0, 0, 0, False, 0
    for o in range(len(key)):
        if e >= len(offsets):
            break
        past = pasts[key[o]]
        context = _context_of(key[o], past, row_flags, newest_is_step, newest_step)
        flag = _code_flag(decode, 1 if not decode and offsets[e] == o else 0, context, coder)
        past.flags = (past.flags << 1 | flag) & 15
        row_flags = (row_flags << 1 | flag) & 15
        if flag == 0:
            past.age = min(past.age + 1, 255)
            continue
        if not decode and state[_AT] + 64 > room:
            return -1
        offsets[e] = o
        is_step[e] = _code_is_step(decode, is_step[e], context, coder)
        past.age, past.direction_before, past.direction, past.size = 1, past.direction, 0, 0
        if is_step[e]:
            steps[e] = _code_step(decode, steps[e], context, coder)
            past.form, past.direction = 2, _direction_of(steps[e])
            past.size = min(_size_class(steps[e]), 8)
        else:
            marks[e] = _code_mark(decode, marks[e], context, coder)
            past.form = 1 if marks[e] == LITERAL else 3
            if marks[e] == LITERAL:
                before = past.whole if past.has_whole == 1 else newest_whole
                if index_bits > 0:
                    before_that = past.whole_before
                    whole = _code_index(
                        decode, wholes[e], index_bits, before, newest_whole, before_that, context, coder
                    )
                else:
                    sizes = (past.difference, newest_difference)
                    whole = before + _code_difference(decode, wholes[e] - before, sizes, context, coder)
                wholes[e] = whole
                newest_difference = min(_size_class(whole - before), DEPTH - 2) + 1
                if past.has_whole == 1:
                    past.difference, past.whole_before = newest_difference, before
                past.has_whole, past.whole, newest_whole = 1, whole, whole
        newest_is_step, newest_step = is_step[e], steps[e]
        e += 1
    return e


def in_order_of_appearance(key: np.ndarray) -> np.ndarray:
    """Return keys as 0, 1, 2, ... in order of first appearance; a prefix of the rows has the same codes.

    >>> in_order_of_appearance(np.array([7, 3, 7, 9])).tolist()
    [0, 1, 0, 2]
    """
    if not len(key):
        return np.zeros(0, np.int64)
    first = np.full(int(key.max()) + 1, -1, np.int64)
    return _ranked(np.ascontiguousarray(key, np.int64), first)


@njit(cache=True)
def _ranked(key, rank):  # type: ignore[no-untyped-def]
    found = np.empty(len(key), np.int64)
    seen = 0
    for i in range(len(key)):
        if rank[key[i]] < 0:
            rank[key[i]] = seen
            seen += 1
        found[i] = rank[key[i]]
    return found

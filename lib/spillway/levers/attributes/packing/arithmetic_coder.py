"""An adaptive binary arithmetic coder with mixed contexts: what makes a synopsis block small.

Every bit is predicted from several contexts at once and coded at the price of its surprise: -log2 p bits
(Rissanen & Langdon; the mixing in the logistic domain is Mahoney's, PAQ). A context is a counter of 16-bit
probability that adapts as 1/(n + 1.5), then at 1/LIMIT; `stretch` = ln(p / (1 - p)), weighted, summed,
squashed back, the weights moved along the gradient of the coding cost. All of it in integers, so that every
machine decodes what any machine encoded.

Encoding and decoding run the same statements (`code_bit` with `decode` on or off), as `walking` does.
Numbers are coded as bit length, then mantissa, the top mantissa bits in contexts of their own.

>>> coder, flips = Coder.writing(1), np.array([0, 0, 1, 0, 0, 0, 0, 0] * 50)
>>> for flip in flips:
...     _ = code_bit(False, flip, *coder, 0, 1, 2, 3, 4, 5, 0)
>>> block = finish(coder.state, coder.buffer)
>>> back = Coder.reading(block, 1)
>>> [int(code_bit(True, 0, *back, 0, 1, 2, 3, 4, 5, 0)) for _ in flips] == flips.tolist(), len(block) < 50
(True, True)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

INPUTS = 6
LIMIT = 255
REGION = 64 + 41 * 8 + 64  # contexts of one number: length, top bits by length, bits further down
_UNKNOWN = np.uint32(32768 << 8)
_LOW, _HIGH, _AT, _VALUE = 0, 1, 2, 3
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
    """The arrays one pass works on: registers, bytes, and per context a probability (<< 8) and a count."""

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
        """To encode with; `room` must hold all bytes written (see `grown`)."""
        return Coder._fresh(np.zeros(room, np.uint8), contexts, mixers)

    @staticmethod
    def reading(block: bytes, mixers: int, contexts: int = INPUTS) -> Coder:
        """To decode with."""
        coder = Coder._fresh(np.frombuffer(block + bytes(8), np.uint8).copy(), contexts, mixers)
        for _ in range(4):
            coder.state[_VALUE] = (coder.state[_VALUE] << 8) | int(coder.buffer[coder.state[_AT]])
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
    """Code one bit in six contexts; returns it."""
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
        bit = 1 if state[_VALUE] <= middle else 0
    if bit == 1:
        high = middle
    else:
        low = middle + 1
    while (low ^ high) & 0xFF000000 == 0:
        at = np.uint64(state[_AT])
        if decode:
            byte = np.int64(buffer[at]) if at < np.uint64(len(buffer)) else 0
            state[_VALUE] = ((state[_VALUE] << 8) & _MASK) | byte
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
    """The bytes written, ended so that they can be read back."""
    tail = (int(state[_HIGH]) >> 24) & 0xFF
    return bytes(buffer[: int(state[_AT])].tobytes() + bytes([tail, 0, 0, 0])).rstrip(b"\0")

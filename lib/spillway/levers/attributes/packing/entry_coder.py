"""The coded body of a block: which rows of a span have an entry, and what the entries say.

Rows are offsets of `seq` from the block's first. Row o of a stream with a cycle of P rows is the same key
as row o - P, so that what happened P, 2P, ... rows ago (and at the rows just before) is the context in
which the flag "has an entry" is coded; likewise the size and sign of steps and of the differences between a
whole value and the key's whole value before it. Where a stream gains, loses or skips a key the period only
fits worse for a while: it is a context, never a premise. Periods come in segments (`periods_of`).

Whole values are whole numbers here: see `packing` for how reals become such.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.attributes.packing.arithmetic_coder import REGION, code_bit, code_number

PHASES = 512
LONGEST_PERIOD = 1 << 20
DEPTH = 64
_FLAG = 0
_KIND = _FLAG + 64 + 32 * 2 + PHASES * 2 + 64
_SIGN = _KIND + 64
_STEP = _SIGN + 64 + 64 + PHASES * 4
_STEP_REGIONS = 1 + 9 + 9 + 64
_VALUE = _STEP + _STEP_REGIONS * REGION
_VALUE_REGIONS = 1 + DEPTH + DEPTH + 64
_INDEX = _VALUE + _VALUE_REGIONS * REGION
_TREE = 2048
CONTEXTS = _INDEX + _TREE * (1 + 64 + 64 + 16)
MIXERS = 16
_MIX_FLAG, _MIX_KIND, _MIX_SIGN, _MIX_STEP, _MIX_VALUE, _MIX_INDEX = 0, 4, 5, 6, 9, 12
LITERAL, EMPTY, NOT_A_NUMBER, POSITIVE, NEGATIVE = 0, 1, 2, 3, 4


def contexts_needed(indexed: bool) -> int:
    """How many contexts a block uses; those of indices cost time to clear and are left out when idle."""
    return CONTEXTS if indexed else _INDEX


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
    """-1, 1, -2, 2, ... as 1, 2, 3, 4, ..., over all of int64."""
    return (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)


@njit(cache=True)
def _unzigzag(value):  # type: ignore[no-untyped-def]
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@njit(cache=True)
def code_entries(  # type: ignore[no-untyped-def]
    decode, span, starts, periods, offsets, is_step, steps, marks, wholes, index_bits,
    state, buffer, counters, weights,
):  # fmt: skip
    """Code all entries of a span; decoding fills offsets, is_step, steps, marks, wholes. Returns their count.

    `marks` tells null, NaN and infinities from numbers; `wholes` are whole numbers (indices into a list of
    distinct values when `index_bits` > 0). `buffer` must hold what is written; when it runs short the result
    is -1.
    """
    period = periods[0]
    past = np.zeros(period, np.int64)  # per phase, a bit for each of its last rows: had an entry
    age = np.zeros(period, np.int64)  # per phase, rows since its newest entry, at most 255
    entry_at = np.full(period, -1, np.int64)  # per phase, its newest entry
    whole_at = np.full(period, -1, np.int64)  # per phase, its newest entry that is a whole number
    size_at = np.zeros(period, np.int64)  # per phase, the size of its newest difference of whole numbers
    segment = 0
    phase = 0
    row_past = 0
    e = 0
    newest = -1
    newest_whole = -1
    total = len(offsets)
    for o in range(span):
        if segment + 1 < len(starts) and o >= starts[segment + 1]:
            segment += 1
            shifts = np.zeros(periods[segment], np.int64)
            for j in range(max(0, o - periods[segment]), o):
                shifts[j % periods[segment]] = j % period
            phase = o % periods[segment]
            period = periods[segment]
            past, age, entry_at = past[shifts], age[shifts], entry_at[shifts]
            whole_at, size_at = whole_at[shifts], size_at[shifts]
        elif o > 0:
            phase += 1
            if phase == period:
                phase = 0
        f = past[phase]
        f1 = f & 1
        g1 = row_past & 1
        mine = entry_at[phase]
        rounds = age[phase]
        gap = 0
        while gap < 7 and rounds >> gap > 0:
            gap += 1
        way = 0
        if mine >= 0 and is_step[mine]:
            way = 1 if steps[mine] < 0 else 2
        side = 0
        if g1 == 1 and is_step[newest]:
            side = 1 if steps[newest] < 0 else 2
        place = phase % PHASES if phase >= PHASES else phase
        bit = 1 if e < total and not decode and offsets[e] == o else 0
        bit = code_bit(
            decode, bit, state, buffer, counters, weights,
            _FLAG + ((f & 15) | (row_past & 3) << 4),
            _FLAG + 64 + ((row_past & 15) | f1 << 4),
            _FLAG + 128 + place * 2 + f1,
            _FLAG + 128 + PHASES * 2 + ((gap * 3 + way) if g1 == 0 else 24 + gap * 3 + side),
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
        # kind: step, number, or one of the rest; a bit each
        what = 0
        if not decode:
            what = 1 if is_step[e] else 0
        what = code_bit(
            decode, what, state, buffer, counters, weights,
            _KIND + was, _KIND + 8 + was * 2 + g1, _KIND + 24, _KIND + 25 + side, _MIX_KIND,
        )  # fmt: skip
        is_step[e] = what == 1
        if what == 1:
            last = steps[mine] if mine >= 0 and is_step[mine] else 0
            beside = steps[newest] if g1 == 1 and is_step[newest] else 0
            c_last = min(_size_class(last), 8)
            c_beside = min(_size_class(beside), 8)
            size = np.uint64(0)
            if not decode:
                size = np.uint64(abs(steps[e]))
            size = code_number(
                decode, size, state, buffer, counters, weights,
                _STEP, 1 + c_last, 10 + c_beside, 19 + place % 64, _MIX_STEP,
            )  # fmt: skip
            value = np.int64(size)
            if size > np.uint64(0):
                sign = 1 if steps[e] < 0 and not decode else 0
                near = min(gap, 5)
                sign = code_bit(
                    decode, sign, state, buffer, counters, weights,
                    _SIGN + way * 8 + near, _SIGN + 32 + side * 3 + way, _SIGN + 64 + min(_size_class(value), 3),
                    _SIGN + 128 + place * 4 + side, _MIX_SIGN,
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
                    _MIX_KIND + 11,
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
                    for b in range(index_bits - 1, -1, -1):
                        one = (number >> b) & 1
                        one = code_bit(
                            decode, one, state, buffer, counters, weights,
                            _INDEX + node, _INDEX + _TREE * (1 + before % 64) + node,
                            _INDEX + _TREE * (65 + beside_value % 64) + node,
                            _INDEX + _TREE * (129 + place % 16) + node, _MIX_INDEX + min(index_bits - 1 - b, 2),
                        )  # fmt: skip
                        node = node * 2 + one
                    value = np.int64(node - (1 << index_bits))
                else:
                    coded = np.uint64(0)
                    if not decode:
                        coded = _zigzag(wholes[e] - before)
                    coded = code_number(
                        decode, coded, state, buffer, counters, weights,
                        _VALUE, 1 + c_before, 1 + DEPTH + min(gap, 7), 1 + 2 * DEPTH + place % 64, _MIX_VALUE,
                    )  # fmt: skip
                    value = before + _unzigzag(coded)
                if decode:
                    wholes[e] = value
                if mine_whole >= 0:
                    size_at[phase] = min(_size_class(value - before), DEPTH - 2) + 1
                whole_at[phase] = e
                newest_whole = e
        entry_at[phase] = e
        newest = e
        e += 1
    return e


@njit(cache=True)
def _usual_distances(key, seq, width):  # type: ignore[no-untyped-def]
    """Per `width` rows the distance that most rows have from their key's row before (majority vote)."""
    n = len(seq)
    last = np.full(key.max() + 1, -1, np.int64)
    usual = np.zeros((n + width - 1) // width, np.int64)
    vote = 0
    for i in range(n):
        if i % width == 0:
            vote = 0
        before = last[key[i]]
        last[key[i]] = i
        if before < 0:
            continue
        distance = seq[i] - seq[before]
        if vote == 0:
            usual[i // width] = distance
            vote = 1
        else:
            vote += 1 if usual[i // width] == distance else -1
    return usual


def periods_of(key: np.ndarray, seq: np.ndarray, cut: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Segments of the `seq` span with the usual distance between a key's rows in each: (starts, periods).

    >>> starts, periods = periods_of(np.array([0, 1] * 300 + [0, 1, 2] * 300), np.arange(1500))
    >>> starts.tolist(), periods.tolist()
    ([0, 512], [2, 3])
    """
    starts, periods = [0], [1]
    if len(seq):
        width = max(cut, 4 * (int(key.max()) + 1))
        for part, distance in enumerate(_usual_distances(key, seq, width).tolist()):
            if not 0 < distance <= LONGEST_PERIOD or distance == periods[-1]:
                continue
            if periods == [1]:
                periods[0] = distance
            else:
                starts.append(int(seq[part * width] - seq[0]))
                periods.append(distance)
    return np.array(starts, np.int64), np.array(periods, np.int64)

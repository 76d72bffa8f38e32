"""A synopsis block as bytes: the entries of one (stream, batch, frame, attribute).

Layout of version 1: the letters ``SP``, a version byte, a CRC-32 of the rest (little endian), an encoding
byte, a kind byte, the number of entries and the first `seq` (varints), then the body:
* encoding 0, *columns*: gaps, flags, steps and values as byte planes, compressed with zstd; for a few
  entries spread over a long span, and for patterns that repeat exactly;
* encoding 1, *coded*: the arithmetic coder of `entry_coding`; whole values as scaled decimals with a common
  divisor, or as the ordered bits of the float, each against the key's value before it;
* encoding 2, *coded with a list*: the same, with whole values as indices into a list of distinct values.
The smallest is kept (whether a list pays is tried on the first entries). `unpack` needs nothing but the
bytes, and the checksum tells corruption from data.

>>> from spillway.levers.attributes.columns import Column
>>> entries = Entries.of_values(np.array([70, 75, 90]), Column.real([1.5, None, 2.5]))
>>> again = unpack(pack(entries))
>>> again.seq.tolist(), again.values.to_list()
([70, 75, 90], [1.5, None, 2.5])
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spillway.errors import Refused
from spillway.levers.attributes.columns import KINDS, Column, Frame
from spillway.levers.attributes.packing import entry_coder as coding
from spillway.levers.attributes.packing.arithmetic_coder import Coder, finish
from spillway.levers.attributes.packing.entry_coder import MIXERS, code_entries, contexts_needed, periods_of
from spillway.levers.attributes.packing.whole_numbers import Reader, WholeForm, Writer
from spillway.levers.attributes.synopsis.entries import Entries

VERSION = 1
COLUMNS, CODED, LISTED = 0, 1, 2
LONGEST_SPAN = 1 << 26
LONGEST_LIST = 1024
TRIAL = 2048
_MAGIC = b"SP"
_HEAD = 7


def pack(entries: Entries, frame: Frame | None = None) -> bytes:
    """The entries as bytes, in the smallest encoding found. `frame`, the entries', only helps to find it."""
    bodies = []
    near = len(entries) and int(entries.seq[-1] - entries.seq[0]) < min(
        LONGEST_SPAN, 4096 * len(entries) + 65536
    )
    if near:
        periods = (np.zeros(1, np.int64), np.ones(1, np.int64))
        if frame is not None and len(frame):
            periods = _from_first_entry(*periods_of(frame.key, frame.seq), int(entries.seq[0] - frame.seq[0]))
        bodies.append(_Coded.of(entries).best(periods))
    bodies.append((COLUMNS, _columns(entries)))
    encoding, body = min(bodies, key=lambda pair: len(pair[1]))
    out = Writer()
    out.byte(encoding)
    out.byte(KINDS.index(entries.values.kind))
    out.number(len(entries))
    out.signed(int(entries.seq[0]) if len(entries) else 0)
    rest = out.data() + body
    return _MAGIC + bytes([VERSION]) + zlib.crc32(rest).to_bytes(4, "little") + rest


def unpack(block: bytes) -> Entries:
    """The entries of a block."""
    block = bytes(block)
    if len(block) < _HEAD or block[:2] != _MAGIC:
        raise Refused("block", f"start with {_MAGIC!r}", block[:2], "it is no synopsis block")
    if block[2] != VERSION:
        raise Refused("version", f"be {VERSION}", block[2], "read it with the release that wrote it")
    if zlib.crc32(block[_HEAD:]) != int.from_bytes(block[3:_HEAD], "little"):
        raise Refused("block", "match its checksum", "other bytes", "shed the batch again from raw")
    source = Reader(block, _HEAD)
    encoding, kind_code, n, first = source.byte(), source.byte(), source.number(), source.signed()
    if encoding not in (COLUMNS, CODED, LISTED) or kind_code >= len(KINDS):
        raise Refused("encoding", "be 0, 1 or 2", encoding, "shed the batch again from raw")
    if encoding == COLUMNS:
        return _from_columns(source, KINDS[kind_code], n, first)
    return _from_coded(source, KINDS[kind_code], n, first, listed=encoding == LISTED)


def _columns(entries: Entries) -> bytes:
    gaps = np.diff(entries.seq, prepend=entries.seq[:1])
    flags = entries.is_step.astype(np.uint8) | (entries.values.valid.astype(np.uint8) << 1)
    planes = [_shuffled(gaps), flags.tobytes(), _shuffled(entries.steps), _shuffled(entries.values.values)]
    plain = b"".join([*planes, json.dumps(list(entries.values.dictionary)).encode()])
    out = Writer()
    out.number(len(plain))
    return out.data() + bytes(pa.compress(plain, codec="zstd", asbytes=True))


def _from_columns(source: Reader, kind: str, n: int, first: int) -> Entries:
    size = source.number()
    plain = pa.decompress(source.rest(), decompressed_size=size, codec="zstd", asbytes=True)
    flags = np.frombuffer(plain, np.uint8, n, 8 * n)
    values = _unshuffled(plain, 17 * n, n).view("<f8" if kind == "real" else "<i8")
    column = Column(kind, values, (flags & 2) != 0, tuple(json.loads(plain[25 * n :])))
    seq = first + np.cumsum(_unshuffled(plain, 0, n).view("<i8"))
    return Entries(seq, (flags & 1) != 0, _unshuffled(plain, 9 * n, n).view("<i8").copy(), column)


def _shuffled(values: np.ndarray) -> bytes:
    little = np.ascontiguousarray(values, dtype="<f8" if values.dtype.kind == "f" else "<i8")
    return little.view(np.uint8).reshape(-1, 8).T.tobytes()


def _unshuffled(plain: bytes, at: int, n: int) -> np.ndarray:
    planes = np.frombuffer(plain, np.uint8, 8 * n, at).reshape(8, n)
    return np.ascontiguousarray(planes.T).reshape(-1)


def _from_first_entry(starts: np.ndarray, periods: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    inside = np.maximum(starts - shift, 0)
    kept = np.append(inside[1:] > 0, True)
    return inside[kept], periods[kept]


@dataclass(frozen=True, eq=False)
class _Coded:
    """Entries as the arrays that the coder takes."""

    entries: Entries
    marks: np.ndarray
    form: WholeForm
    wholes: np.ndarray
    distinct: np.ndarray

    @staticmethod
    def of(entries: Entries) -> _Coded:
        values = entries.values
        marks = np.where(values.valid | entries.is_step, coding.LITERAL, coding.EMPTY).astype(np.int64)
        if values.kind == "real":
            marks[np.isnan(values.values)] = coding.NOT_A_NUMBER
            marks[np.isposinf(values.values)] = coding.POSITIVE
            marks[np.isneginf(values.values)] = coding.NEGATIVE
        numbers = (marks == coding.LITERAL) & ~entries.is_step
        form = WholeForm.of(values.kind, values.values[numbers])
        wholes = np.zeros(len(entries), np.int64)
        wholes[numbers] = form.wholes(values.values[numbers])
        return _Coded(entries, marks, form, wholes, np.unique(wholes[numbers]))

    def best(self, periods: tuple[np.ndarray, np.ndarray]) -> tuple[int, bytes]:
        """Whole values as indices into a list of them, if they are few, or as they are: what is shorter at first.

        Tried on the first entries, as far as there are whole values among them; steps are coded alike in both.
        """
        if not 0 < len(self.distinct) <= min(LONGEST_LIST, len(self.entries) // 4 + 16):
            return CODED, self.body(periods, False)
        numbers = np.flatnonzero((self.marks == coding.LITERAL) & ~self.entries.is_step)
        most = min(TRIAL, int(numbers[-1]) + 1)
        short = most == len(self.entries)
        trial = self if short else _Coded.of(self.entries.take(np.arange(len(self.entries)) < most))
        plain, listed = trial.body(periods, False), trial.body(periods, True)
        encoding, found = (LISTED, listed) if len(listed) < len(plain) else (CODED, plain)
        return encoding, found if short else self.body(periods, encoding == LISTED)

    def body(self, periods: tuple[np.ndarray, np.ndarray], listed: bool) -> bytes:
        out = Writer()
        self.form.write(out)
        if self.entries.values.kind == "text":
            out.text(json.dumps(list(self.entries.values.dictionary)))
        starts, lengths = periods
        out.number(len(starts))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            out.number(start)
            out.number(length)
        wholes, index_bits = self.wholes, 0
        if listed:
            out.ascending(self.distinct)
            wholes = np.searchsorted(self.distinct, wholes).clip(0, len(self.distinct) - 1)
            index_bits = max(1, int(len(self.distinct) - 1).bit_length())
        seq, n = self.entries.seq, len(self.entries)
        span, room = int(seq[-1] - seq[0]) + 1, 4096 + 4 * n
        out.number(span)
        while True:
            coder = Coder.writing(MIXERS, contexts_needed(listed), room)
            written = code_entries(
                False, span, starts, lengths, seq - seq[0], self.entries.is_step.copy(), self.entries.steps.copy(),
                self.marks.copy(), wholes.copy(), index_bits, *coder,
            )  # fmt: skip
            if written == n:
                return out.data() + finish(coder.state, coder.buffer)
            room *= 4


def _from_coded(source: Reader, kind: str, n: int, first: int, listed: bool) -> Entries:
    form = WholeForm.read(source, kind)
    words = tuple(json.loads(source.text())) if kind == "text" else ()
    segments = [(source.number(), source.number()) for _ in range(source.number())]
    starts, lengths = (np.array(part, np.int64) for part in zip(*segments, strict=True))
    distinct = source.ascending() if listed else np.zeros(0, np.int64)
    index_bits = max(1, int(len(distinct) - 1).bit_length()) if listed else 0
    span = source.number()
    offsets, steps, marks, wholes = (np.zeros(n, np.int64) for _ in range(4))
    is_step = np.zeros(n, np.bool_)
    coder = Coder.reading(source.rest(), MIXERS, contexts_needed(listed))
    code_entries(True, span, starts, lengths, offsets, is_step, steps, marks, wholes, index_bits, *coder)
    numbers = (marks == coding.LITERAL) & ~is_step
    values = np.zeros(n, np.float64 if kind == "real" else np.int64)
    values[numbers] = form.values(distinct[wholes[numbers]] if listed else wholes[numbers])
    if kind == "real":
        values[marks == coding.NOT_A_NUMBER] = np.nan
        values[marks == coding.POSITIVE] = np.inf
        values[marks == coding.NEGATIVE] = -np.inf
    valid = (marks != coding.EMPTY) & ~is_step
    return Entries(first + offsets, is_step, steps, Column(kind, values, valid, words))

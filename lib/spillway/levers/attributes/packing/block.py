"""Pack the entries of one (stream, batch, frame, attribute) into a synopsis block of bytes, and unpack it.

Layout of version 2: the letters ``SP``, a version byte, a CRC-32 of the rest (little endian), an encoding byte, a kind
byte, the number of entries and the first `seq` (varints), then the body:

* encoding 0, *columns*: gaps, flags, steps and values as byte planes, compressed with zstd. It suits a few entries over
  a long span, and patterns that repeat exactly.
* encoding 1, *coded*: the arithmetic coder of `entry_coder`. Whole values are scaled decimals with a common divisor, or
  the ordered bits of the float, each as the difference from the key's value before.
* encoding 2, *coded with a list*: as 1, with whole values as indices into a list of distinct values.
* encodings 3 and 4, *keyed*: as 1 and 2, over the rows of the frame instead of all of `seq`, and in the context of each
  row's key. Both ends have the rows of the frame, so keys and gaps take no bytes, but `unpack` needs these rows. If the
  last rows are missing, it returns the entries of the others.

The smallest encoding is used; the first entries decide whether a list is smaller. The checksum detects corruption.

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
from spillway.levers.attributes.packing.entry_coder import (
    MIXERS,
    Coder,
    EntryArrays,
    code_entries,
    contexts_needed,
    finish,
    in_order_of_appearance,
)
from spillway.levers.attributes.packing.whole_numbers import Reader, WholeForm, Writer
from spillway.levers.attributes.synopsis.entries import Entries

VERSION = 2
COLUMNS, CODED, LISTED, KEYED, KEYED_LISTED = range(5)
LONGEST_SPAN = 1 << 26
LONGEST_LIST = 1024
TRIAL = 2048
_MAGIC = b"SP"
_HEAD = 7


def pack(entries: Entries, frame: Frame | None = None) -> bytes:
    """Return the entries as bytes in the smallest encoding. If `frame` is given, `unpack` needs its rows, too."""
    bodies = [(COLUMNS, _columns(entries))]
    if len(entries):
        rows = entries.seq - entries.seq[0]
        key = None
        if frame is not None:
            rows = np.searchsorted(frame.seq, entries.seq)
            key = _keys_from(frame, int(rows[0]))[: int(rows[-1] - rows[0]) + 1]
            rows = rows - rows[0]
        if 0 <= int(rows[-1]) < min(LONGEST_SPAN, 4096 * len(entries) + 65536):
            key = np.zeros(int(rows[-1]) + 1, np.int64) if key is None else key
            encoding, body = _Coded.of(entries, rows, key).best()
            bodies.insert(0, (encoding + (KEYED - CODED if frame is not None else 0), body))
    encoding, body = min(bodies, key=lambda pair: len(pair[1]))
    out = Writer()
    out.byte(encoding)
    out.byte(KINDS.index(entries.values.kind))
    out.number(len(entries))
    out.signed(int(entries.seq[0]) if len(entries) else 0)
    rest = out.data() + body
    return _MAGIC + bytes([VERSION]) + zlib.crc32(rest).to_bytes(4, "little") + rest


def unpack(block: bytes, frame: Frame | None = None) -> Entries:
    """Return the entries of a block; for a keyed block, those within the rows of `frame`."""
    block = bytes(block)
    if len(block) < _HEAD or block[:2] != _MAGIC:
        raise Refused("block", f"start with {_MAGIC!r}", block[:2], "it is no synopsis block")
    if block[2] != VERSION:
        raise Refused("version", f"be {VERSION}", block[2], "read it with the release that wrote it")
    if zlib.crc32(block[_HEAD:]) != int.from_bytes(block[3:_HEAD], "little"):
        raise Refused("block", "match its checksum", "other bytes", "shed the batch again from raw")
    source = Reader(block, _HEAD)
    encoding, kind_code, n, first = source.byte(), source.byte(), source.number(), source.signed()
    if encoding not in range(5) or kind_code >= len(KINDS):
        raise Refused("encoding", "be 0 to 4", encoding, "shed the batch again from raw")
    if encoding == COLUMNS:
        return _from_columns(source, KINDS[kind_code], n, first)
    if encoding in (CODED, LISTED):
        return _from_coded(source, KINDS[kind_code], n, encoding == LISTED, None, first)
    if frame is None:
        raise Refused("frame", "hold the rows that the block was packed with", None, "read the frame's rows")
    start = int(np.searchsorted(frame.seq, first))
    if start == len(frame):
        return Entries.none(KINDS[kind_code])
    if frame.seq[start] != first:
        raise Refused(
            "frame", f"hold the row of seq {first}", int(frame.seq[start]), "read all rows of the frame"
        )
    return _from_coded(source, KINDS[kind_code], n, encoding == KEYED_LISTED, frame, start)


def _keys_from(frame: Frame, start: int) -> np.ndarray:
    return in_order_of_appearance(frame.key[start:])


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


@dataclass(frozen=True, eq=False)
class _Coded:
    """Entries as arrays for the coder."""

    entries: Entries
    rows: np.ndarray
    key: np.ndarray
    marks: np.ndarray
    form: WholeForm
    wholes: np.ndarray
    distinct: np.ndarray

    @staticmethod
    def of(entries: Entries, rows: np.ndarray, key: np.ndarray) -> _Coded:
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
        return _Coded(entries, rows, key, marks, form, wholes, np.unique(wholes[numbers]))

    def best(self) -> tuple[int, bytes]:
        """Return the encoding and the body: whole values as they are, or as indices into a list if that is shorter.

        The list is tried only if there are few distinct values, and on the first entries up to the last whole value,
        because steps are coded equally in both.
        """
        if not 0 < len(self.distinct) <= min(LONGEST_LIST, len(self.entries) // 4 + 16):
            return CODED, self.body(False)
        numbers = np.flatnonzero((self.marks == coding.LITERAL) & ~self.entries.is_step)
        most = min(TRIAL, int(numbers[-1]) + 1)
        short = most == len(self.entries)
        trial = self
        if not short:
            first = self.entries.take(np.arange(len(self.entries)) < most)
            trial = _Coded.of(first, self.rows[:most], self.key[: int(self.rows[most - 1]) + 1])
        plain, listed = trial.body(False), trial.body(True)
        encoding, found = (LISTED, listed) if len(listed) < len(plain) else (CODED, plain)
        return encoding, found if short else self.body(encoding == LISTED)

    def body(self, listed: bool) -> bytes:
        out = Writer()
        self.form.write(out)
        if self.entries.values.kind == "text":
            out.text(json.dumps(list(self.entries.values.dictionary)))
        wholes, index_bits = self.wholes, 0
        if listed:
            out.ascending(self.distinct)
            wholes = np.searchsorted(self.distinct, wholes).clip(0, len(self.distinct) - 1)
            index_bits = max(1, int(len(self.distinct) - 1).bit_length())
        n = len(self.entries)
        room = 4096 + 4 * n
        out.number(len(self.key))
        while True:
            coder = Coder.writing(MIXERS, contexts_needed(index_bits), room)
            arrays = (self.rows, self.entries.is_step, self.entries.steps, self.marks, wholes)
            entries = EntryArrays(*(one.copy() for one in arrays))
            written = code_entries(False, self.key, entries, index_bits, coder)
            if written == n:
                return out.data() + finish(coder.state, coder.buffer)
            room *= 4


def _from_coded(source: Reader, kind: str, n: int, listed: bool, frame: Frame | None, first: int) -> Entries:
    """Return the entries of a coded body; `first` is the first row in the frame, or the first seq without a frame."""
    form = WholeForm.read(source, kind)
    words = tuple(json.loads(source.text())) if kind == "text" else ()
    distinct = source.ascending() if listed else np.zeros(0, np.int64)
    index_bits = max(1, int(len(distinct) - 1).bit_length()) if listed else 0
    span = source.number()
    key = np.zeros(span, np.int64) if frame is None else _keys_from(frame, first)[:span]
    entries = EntryArrays(
        np.zeros(n, np.int64), np.zeros(n, np.bool_), *(np.zeros(n, np.int64) for _ in range(3))
    )
    coder = Coder.reading(source.rest(), MIXERS, contexts_needed(index_bits))
    n = code_entries(True, key, entries, index_bits, coder)
    offsets, is_step, steps, marks, wholes = (one[:n] for one in entries)
    seq = first + offsets if frame is None else frame.seq[first + offsets]
    numbers = (marks == coding.LITERAL) & ~is_step
    values = np.zeros(n, np.float64 if kind == "real" else np.int64)
    values[numbers] = form.values(distinct[wholes[numbers]] if listed else wholes[numbers])
    if kind == "real":
        values[marks == coding.NOT_A_NUMBER] = np.nan
        values[marks == coding.POSITIVE] = np.inf
        values[marks == coding.NEGATIVE] = -np.inf
    valid = (marks != coding.EMPTY) & ~is_step
    return Entries(seq, is_step, steps, Column(kind, values, valid, words))

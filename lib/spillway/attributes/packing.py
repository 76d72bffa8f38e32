"""A synopsis block as bytes: the entries of one (stream, batch, frame, attribute).

Layout: the letters ``SP``, a format version, the kind, then sections. Version 1: a JSON header of lengths
and the columns gaps, flags, steps and values, compressed together. `unpack` needs nothing but the bytes;
a checksum tells corruption from data.

>>> from spillway.attributes.columns import Column
>>> entries = Entries.of_values(np.array([70, 75, 90]), Column.real([1.5, None, 2.5]))
>>> again = unpack(pack(entries))
>>> again.seq.tolist(), again.values.to_list()
([70, 75, 90], [1.5, None, 2.5])
"""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pyarrow as pa

from spillway.attributes.columns import KINDS, Column, Frame
from spillway.attributes.synopsis import Entries

VERSION = 1
_MAGIC = b"SP"
_HEAD = struct.Struct("<2sBBIqQI")


class PackingError(ValueError):
    """Bytes that are not a synopsis block, or not one this version reads."""


def pack(entries: Entries, frame: Frame | None = None) -> bytes:
    """The entries as bytes, the smallest encoding found. `frame` only helps to find it."""
    kind = entries.values.kind
    first = int(entries.seq[0]) if len(entries) else 0
    gaps = np.diff(entries.seq, prepend=first).astype("<i8")
    flags = entries.is_step.astype(np.uint8) | (entries.values.valid.astype(np.uint8) << 1)
    words = json.dumps(list(entries.values.dictionary)).encode()
    values = entries.values.values.astype("<f8" if kind == "real" else "<i8")
    columns = [_shuffled(gaps), flags.tobytes(), _shuffled(entries.steps), _shuffled(values), words]
    plain = b"".join(columns)
    body = pa.compress(plain, codec="zstd", asbytes=True)
    head = _HEAD.pack(_MAGIC, VERSION, KINDS.index(kind), len(entries), first, len(plain), zlib.crc32(body))
    return bytes(head + body)


def unpack(block: bytes) -> Entries:
    """The entries of a block."""
    if len(block) < _HEAD.size or block[:2] != _MAGIC:
        raise PackingError(f"`block` must start with {_MAGIC!r}, got {block[:2]!r}; it is no synopsis block")
    _, version, kind_code, n, first, size, check = _HEAD.unpack_from(block)
    if version != VERSION:
        raise PackingError(
            f"`version` must be {VERSION}, got {version}; read it with the release that wrote it"
        )
    body = block[_HEAD.size :]
    if zlib.crc32(body) != check:
        raise PackingError("`block` must match its checksum, got other bytes; shed the batch again from raw")
    plain = pa.decompress(body, decompressed_size=size, codec="zstd", asbytes=True)
    kind = KINDS[kind_code]
    gaps = _unshuffled(plain, 0, n).view("<i8")
    flags = np.frombuffer(plain, np.uint8, n, 8 * n)
    steps = _unshuffled(plain, 9 * n, n).view("<i8")
    values = _unshuffled(plain, 17 * n, n).view("<f8" if kind == "real" else "<i8")
    words = tuple(json.loads(plain[25 * n :]))
    column = Column(kind, values, (flags & 2) != 0, words)
    return Entries(first + np.cumsum(gaps), (flags & 1) != 0, steps, column)


def _shuffled(values: np.ndarray) -> bytes:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8).T.tobytes()


def _unshuffled(plain: bytes, at: int, n: int) -> np.ndarray:
    planes = np.frombuffer(plain, np.uint8, 8 * n, at).reshape(8, n)
    return np.ascontiguousarray(planes.T).reshape(-1)

"""The binary form of a sketch: versioned, self-describing, and refused when corrupt or foreign.

    "SPLWSKCH" | version u16 | header length u32 | header JSON | zlib(arrays, little-endian) | blake2b-16

The header names the kind, the parameters (seed included), the scalars, each array's name, type and shape, and the
context: what the keys are made of (attributes, types, key seed), so that bytes alone can be asked by value.
The digest covers all that precedes it, so a flipped bit, a cut file and a file of another program are told
apart and none of them becomes an answer.

>>> blob = to_payload("bloom", {"cells": 64}, {"elements": 3}, {"words": np.array([7], dtype=np.uint64)})
>>> read_payload(blob).arrays["words"].tolist(), read_payload(blob).kind
([7], 'bloom')
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from spillway.errors import Refused

MAGIC = b"SPLWSKCH"
FORMAT_VERSION = 1
_DIGEST_BYTES = 16
_FRONT = struct.Struct("<8sHI")
_TYPES = {"int64": "<i8", "uint64": "<u8", "uint8": "|u1", "float64": "<f8"}
_RAW_BYTES_MAX = 1 << 32


@dataclass(frozen=True)
class Packed:
    """What a payload holds, before a kernel makes a sketch of it."""

    kind: str
    parameters: Mapping[str, Any]
    scalars: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]
    context: Mapping[str, Any]


class StoredSketch(ABC):
    """What every sketch is: counters of one shape that merge with their like, and are written and read back.

    A kernel says what its `shape`, `scalars` and `arrays` are and how they become a sketch again; the bytes are
    made of these in one place. `context` is what the keys are made of, empty for bare hashes.
    """

    kind: ClassVar[str]
    context: Mapping[str, Any] = MappingProxyType({})

    @property
    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """The parameters, seed included: only sketches of equal shape merge."""

    @abstractmethod
    def scalars(self) -> dict[str, Any]:
        """Counters that are single numbers."""

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Counters that are arrays, in the order in which they are written."""

    @classmethod
    @abstractmethod
    def restored(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """A sketch from its stored parts; arrays of another shape than the parameters say are refused."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """The sketch of both streams together."""

    def to_bytes(self) -> bytes:
        return to_payload(self.kind, self.shape, self.scalars(), self.arrays(), self.context)

    @classmethod
    def from_bytes(cls, payload: bytes) -> Self:
        return cls.from_packed(read_payload(payload, cls.kind))

    @classmethod
    def from_packed(cls, packed: Packed) -> Self:
        sketch = cls.restored(packed.parameters, packed.scalars, packed.arrays)
        sketch.context = packed.context
        return sketch

    def digest(self) -> str:
        """Names this state, so that a batch can record which one it started from."""
        return digest(self.to_bytes())

    def shared_context(self, other: StoredSketch) -> Mapping[str, Any]:
        """The context of a merged sketch; sketches of different attributes do not merge."""
        if dict(self.context) != dict(other.context):
            raise Refused(
                "context", f"be {dict(self.context)} to be combined", dict(other.context), "ask one of them"
            )
        return self.context


def to_payload(
    kind: str,
    parameters: Mapping[str, Any],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    context: Mapping[str, Any] = MappingProxyType({}),
) -> bytes:
    """One sketch as bytes; equal sketches give equal bytes."""
    header = json.dumps(
        {
            "kind": kind,
            "parameters": dict(parameters),
            "scalars": dict(scalars),
            "context": dict(context),
            "arrays": [[name, str(array.dtype), list(array.shape)] for name, array in arrays.items()],
        },
        sort_keys=True,
        separators=(",", ":"),
    ).encode()
    raw = b"".join(array.astype(_TYPES[str(array.dtype)]).tobytes() for array in arrays.values())
    body = _FRONT.pack(MAGIC, FORMAT_VERSION, len(header)) + header + zlib.compress(raw, 1)
    return body + hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def digest(payload: bytes) -> str:
    """Names a payload: its own digest, as hexadecimal.

    >>> digest(to_payload("bloom", {}, {}, {})) == digest(to_payload("bloom", {}, {}, {}))
    True
    """
    return payload[-_DIGEST_BYTES:].hex()


def _bad(rule: str, got: object) -> Exception:
    return Refused("payload", rule, got, "rebuild the sketch of this batch from its rows")


def read_payload(payload: bytes, kind: str | None = None) -> Packed:
    """Read what `to_payload` wrote; anything else is refused with the reason."""
    if len(payload) < _FRONT.size + _DIGEST_BYTES:
        raise _bad("be a whole sketch", f"{len(payload)} bytes")
    magic, version, header_bytes = _FRONT.unpack_from(payload)
    if magic != MAGIC:
        raise _bad(f"begin with {MAGIC!r}", payload[: len(MAGIC)])
    if version != FORMAT_VERSION:
        raise Refused(
            "format version", f"be {FORMAT_VERSION}", version, "read it with the Spillway that wrote it"
        )
    body, told = payload[:-_DIGEST_BYTES], payload[-_DIGEST_BYTES:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != told:
        raise _bad("match its digest", f"{len(payload)} corrupt or cut bytes")
    header = json.loads(body[_FRONT.size : _FRONT.size + header_bytes])
    if kind is not None and header["kind"] != kind:
        raise Refused("kind", f"be {kind}", header["kind"], "ask the sketch for what it can answer")
    shapes = [(name, np.dtype(_TYPES[dtype]), tuple(shape)) for name, dtype, shape in header["arrays"]]
    total = sum(dtype.itemsize * math.prod(shape) for _, dtype, shape in shapes)
    if total > _RAW_BYTES_MAX:
        raise _bad(f"unpack to at most {_RAW_BYTES_MAX} bytes", total)
    raw = zlib.decompressobj().decompress(body[_FRONT.size + header_bytes :], total + 1)
    if len(raw) != total:
        raise _bad(f"hold {total} bytes of counters", len(raw))
    arrays: dict[str, npt.NDArray[Any]] = {}
    at = 0
    for name, dtype, shape in shapes:
        size = dtype.itemsize * math.prod(shape)
        native = dtype.newbyteorder("=")
        arrays[name] = np.frombuffer(raw, dtype, math.prod(shape), at).astype(native).reshape(shape)
        at += size
    return Packed(header["kind"], header["parameters"], header["scalars"], arrays, header["context"])

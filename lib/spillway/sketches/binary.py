"""The binary form of a sketch: versioned, self-describing, and refused when corrupt or foreign.

    "SPLWSKCH" | version u16 | header length u32 | header JSON | zlib(arrays, little-endian) | blake2b-16

The header names the kind, the parameters (seed included), the scalars, each array's name, type and shape, and the
context: what the keys are made of (attributes, types, key seed), so that bytes alone can be asked by value.
The digest covers all that precedes it, so a flipped bit, a cut file and a file of another program are told
apart and none of them becomes an answer.

>>> blob = pack("bloom", {"cells": 64}, {"elements": 3}, {"words": np.array([7], dtype=np.uint64)})
>>> unpack(blob).arrays["words"].tolist(), unpack(blob).kind
([7], 'bloom')
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.sketches.types import refuse

MAGIC = b"SPLWSKCH"
VERSION = 1
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


class Stored:
    """What every sketch keeps beside its counters: the context of its keys, empty for bare hashes."""

    context: Mapping[str, Any] = MappingProxyType({})

    def shared_context(self, other: Stored) -> Mapping[str, Any]:
        """The context of a merged sketch; sketches of different attributes do not merge."""
        if dict(self.context) != dict(other.context):
            raise refuse(
                "context", f"be {dict(self.context)} to be combined", dict(other.context), "ask one of them"
            )
        return self.context


def pack(
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
    body = _FRONT.pack(MAGIC, VERSION, len(header)) + header + zlib.compress(raw, 1)
    return body + hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def digest(payload: bytes) -> str:
    """Names a payload: its own digest, as hexadecimal.

    >>> digest(pack("bloom", {}, {}, {})) == digest(pack("bloom", {}, {}, {}))
    True
    """
    return payload[-_DIGEST_BYTES:].hex()


def _bad(rule: str, got: object) -> Exception:
    return refuse("payload", rule, got, "rebuild the sketch of this batch from its rows")


def unpack(payload: bytes, kind: str | None = None) -> Packed:
    """Read what `pack` wrote; anything else is refused with the reason."""
    if len(payload) < _FRONT.size + _DIGEST_BYTES:
        raise _bad("be a whole sketch", f"{len(payload)} bytes")
    magic, version, header_bytes = _FRONT.unpack_from(payload)
    if magic != MAGIC:
        raise _bad(f"begin with {MAGIC!r}", payload[: len(MAGIC)])
    if version != VERSION:
        raise refuse("format version", f"be {VERSION}", version, "read it with the Spillway that wrote it")
    body, digest = payload[:-_DIGEST_BYTES], payload[-_DIGEST_BYTES:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        raise _bad("match its digest", f"{len(payload)} corrupt or cut bytes")
    header = json.loads(body[_FRONT.size : _FRONT.size + header_bytes])
    if kind is not None and header["kind"] != kind:
        raise refuse("kind", f"be {kind}", header["kind"], "ask the sketch for what it can answer")
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

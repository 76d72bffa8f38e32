"""The binary form of a sketch: versioned, self-describing, and refused when corrupt or foreign.

    "SPLWSKCH" | version u16 | header length u32 | header JSON | zlib(arrays, little-endian) | blake2b-16

The header names the kind, the parameters (seed included), the scalars, each array's name, type and shape, and the
context: what the keys are made of (attributes, types, key seed), so that bytes alone can be asked by value.
The digest covers all that precedes it, so a flipped bit, a cut file and a file of another program are told
apart and none of them becomes an answer. A digest can be made by anybody, so it is not trusted further: the header is
held against what its kind demands (`forms`) before anything is unpacked, and asks for no more memory than its bytes
can hold.

>>> blob = to_payload("bloom", {"cells": 64}, {"elements": 3}, {"words": np.array([7], dtype=np.uint64)})
>>> header = read_header(blob)
>>> header.unpacked()["words"].tolist(), header.kind
([7], 'bloom')
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from spillway.errors import Refused
from spillway.sketches.forms import REBUILD, ArrayForm, contained

MAGIC = b"SPLWSKCH"
FORMAT_VERSION = 1
_DIGEST_BYTES = 16
_FRONT = struct.Struct("<8sHI")
_TYPES = {"int64": "<i8", "uint64": "<u8", "uint8": "|u1", "float64": "<f8"}
UNPACKED_BYTES_MAX = 1 << 30
"""A sketch in memory, at most; no contract's memory_kib comes near it."""
_UNPACKS_TO = 1032
"""zlib makes a byte of at most so many: who claims more lies."""
_HEADER_FIELDS = {"kind", "parameters", "scalars", "context", "arrays"}


@dataclass(frozen=True)
class Header:
    """What a payload says of itself, and its counters, not unpacked yet."""

    kind: str
    parameters: Mapping[str, Any]
    scalars: Mapping[str, Any]
    context: Mapping[str, Any]
    arrays: Mapping[str, tuple[str, tuple[int, ...]]]
    """By name, type and shape, in the order in which they lie."""
    packed: bytes = b""

    def unpacked(self, form: Mapping[str, ArrayForm] | None = None) -> dict[str, npt.NDArray[Any]]:
        """The arrays, when they are what `form` demands (None: any)."""
        if form is not None:
            if list(self.arrays) != list(form):
                raise _bad(f"hold {', '.join(form)}", ", ".join(self.arrays))
            for name, (dtype, shape) in self.arrays.items():
                if not form[name].admits(dtype, shape):
                    wanted = "one dimension" if form[name].shape is None else form[name].shape
                    raise Refused(name, f"be {form[name].dtype} of {wanted}", f"{dtype} of {shape}", REBUILD)
        sizes = {
            name: np.dtype(_TYPES[dtype]).itemsize * math.prod(shape)
            for name, (dtype, shape) in self.arrays.items()
        }
        total = sum(sizes.values())
        most = min(UNPACKED_BYTES_MAX, _UNPACKS_TO * len(self.packed))
        if total > most:
            raise _bad(f"unpack to at most {most} bytes", total)
        # a byte more than there should be tells of what was added
        raw = zlib.decompressobj().decompress(self.packed, total + 1)
        if len(raw) != total:
            raise _bad(f"hold {total} bytes of counters", f"{len(raw)} or more")
        found: dict[str, npt.NDArray[Any]] = {}
        at = 0
        for name, (dtype, shape) in self.arrays.items():
            stored = np.dtype(_TYPES[dtype])
            flat = np.frombuffer(raw, stored, math.prod(shape), at)
            found[name] = flat.astype(stored.newbyteorder("=")).reshape(shape)
            at += sizes[name]
        return found


class StoredSketch(ABC):
    """What every sketch is: a summary of one shape that unites with its like, and is written as bytes and read back.

    `context` is what the keys are made of, empty for bare hashes.
    """

    kind: ClassVar[str]
    context: Mapping[str, Any] = MappingProxyType({})

    @property
    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """The parameters, seed included: only sketches of equal shape merge."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """The sketch of both streams together."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """The payload."""

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


class CounterSketch(StoredSketch):
    """A sketch of numbers and arrays, written in the format above.

    A kernel says what its `shape`, `scalars` and `arrays` are and how they become a sketch again; the bytes are
    made of these in one place.
    """

    @abstractmethod
    def scalars(self) -> dict[str, Any]:
        """Counters that are single numbers."""

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Counters that are arrays, in the order in which they are written."""

    @classmethod
    @abstractmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        """The arrays that a payload of these parameters and scalars must hold; others than its own are refused."""

    @classmethod
    @abstractmethod
    def restored(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """A sketch from its stored parts, which are of its `form`; refused when they contradict each other."""

    def to_bytes(self) -> bytes:
        return to_payload(self.kind, self.shape, self.scalars(), self.arrays(), self.context)

    @classmethod
    def from_bytes(cls, payload: bytes) -> Self:
        return cls.from_header(read_header(payload, cls.kind))

    @classmethod
    def from_header(cls, header: Header) -> Self:
        """The sketch of a payload whose header was read."""
        with contained():
            form = cls.form(header.parameters, header.scalars)
            arrays = header.unpacked(form)
            for name, array in arrays.items():
                form[name].check(name, array)
            sketch = cls.restored(header.parameters, header.scalars, arrays)
        sketch.context = header.context
        return sketch


class LibrarySketch(StoredSketch):
    """A sketch whose bytes are those of Apache DataSketches: other readers know them, and they hold no context."""

    family: ClassVar[int]
    """The number by which the library tells its own kinds apart, third of the bytes."""

    @classmethod
    @abstractmethod
    def from_native(cls, payload: bytes, types: Sequence[str] = ()) -> Self:
        """A sketch from the library's bytes; anything else is one refusal. `types` are the attributes'."""


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
    """Names a payload: its own digest, as hexadecimal, or one made of it where the format has none.

    >>> digest(to_payload("bloom", {}, {}, {})) == digest(to_payload("bloom", {}, {}, {}))
    True
    >>> digest(b"of the library") == digest(b"on the library")
    False
    """
    if payload.startswith(MAGIC):
        return payload[-_DIGEST_BYTES:].hex()
    return hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).hexdigest()


def _bad(rule: str, got: object) -> Exception:
    return Refused("payload", rule, got, REBUILD)


def read_header(payload: bytes, kind: str | None = None) -> Header:
    """The header of what `to_payload` wrote; anything else is refused with the reason."""
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
    with contained():
        header = json.loads(body[_FRONT.size : _FRONT.size + header_bytes])
        if not isinstance(header, dict) or set(header) != _HEADER_FIELDS:
            raise _bad(f"have a header of {', '.join(sorted(_HEADER_FIELDS))}", str(header)[:100])
        if not isinstance(header["kind"], str):
            raise _bad("name its kind", str(header["kind"])[:100])
        if kind is not None and header["kind"] != kind:
            raise Refused("kind", f"be {kind}", header["kind"], "ask the sketch for what it can answer")
        for name in ("parameters", "scalars", "context"):
            if not isinstance(header[name], dict):
                raise _bad(f"have {name} by name", str(header[name])[:100])
        arrays = {}
        for name, dtype, shape in header["arrays"]:
            sized = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
            if dtype not in _TYPES or not sized or name in arrays:
                raise _bad("name each array once, with its type and shape", str([name, dtype, shape])[:100])
            arrays[name] = (dtype, tuple(shape))
    packed = body[_FRONT.size + header_bytes :]
    return Header(header["kind"], header["parameters"], header["scalars"], header["context"], arrays, packed)

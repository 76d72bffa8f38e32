"""The binary format of a sketch: versioned and self-describing. Corrupt or foreign bytes are refused.

    "SPLWSKCH" | version u16 | header length u32 | header JSON | zlib(arrays, little-endian) | blake2b-16

The header has the kind, the parameters (with the seed), the scalars, the name, type and shape of each array, and the
context. The context describes the keys (attributes, types, key seed), so that a payload alone can be queried by value.
The digest covers all bytes before it. So a flipped bit, a truncated file or a file of another program is detected, and
the error says which. An attacker can compute a valid digest, so the header is validated as well: it is compared with
the form that its kind requires (`payload_checks`) before anything is decompressed, and it must not claim more memory
than its bytes can decompress to.

>>> blob = to_payload("bloom", {"cells": 64}, {"elements": 3}, {"words": np.array([7], dtype=np.uint64)})
>>> header = read_header(blob)
>>> header.unpack()["words"].tolist(), header.kind
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

from spillway.errors import InvalidValue
from spillway.sketches.payload_checks import REBUILD, ArrayForm, refuse_malformed

MAGIC = b"SPLWSKCH"
FORMAT_VERSION = 1
_DIGEST_BYTES = 16
_FRONT = struct.Struct("<8sHI")
_TYPES = {"int64": "<i8", "uint64": "<u8", "uint8": "|u1", "float64": "<f8"}
UNPACKED_BYTES_MAX = 1 << 30
"""The maximum size of a sketch in memory; the `memory_kib` of real contracts are far below it."""
_UNPACKS_TO = 1032
"""The maximum compression ratio of zlib. A header that claims more is not valid."""
_HEADER_FIELDS = {"kind", "parameters", "scalars", "context", "arrays"}


@dataclass(frozen=True)
class Header:
    """The header of a payload, and its counters, which are still compressed."""

    kind: str
    parameters: Mapping[str, Any]
    scalars: Mapping[str, Any]
    context: Mapping[str, Any]
    arrays: Mapping[str, tuple[str, tuple[int, ...]]]
    """Type and shape of each array by its name, in the stored order."""
    packed: bytes = b""

    def unpack(self, form: Mapping[str, ArrayForm] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Decompress the arrays; raise `InvalidValue` if they differ from `form` (None: any form)."""
        if form is not None:
            if list(self.arrays) != list(form):
                raise _bad(f"hold {', '.join(form)}", ", ".join(self.arrays))
            for name, (dtype, shape) in self.arrays.items():
                if not form[name].admits(dtype, shape):
                    wanted = "one dimension" if form[name].shape is None else form[name].shape
                    raise InvalidValue(
                        name, f"be {form[name].dtype} of {wanted}", f"{dtype} of {shape}", REBUILD
                    )
        sizes = {
            name: np.dtype(_TYPES[dtype]).itemsize * math.prod(shape)
            for name, (dtype, shape) in self.arrays.items()
        }
        total = sum(sizes.values())
        most = min(UNPACKED_BYTES_MAX, _UNPACKS_TO * len(self.packed))
        if total > most:
            raise _bad(f"unpack to at most {most} bytes", total)
        # decompress one byte more than expected, to detect additional data
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
    """The base of all sketches: a summary that can be merged with others of its kind, and written as bytes.

    Filters that depend on the order of the stream are the exception: their `merge` refuses.
    `context` describes the keys; it is empty for bare hashes.
    """

    kind: ClassVar[str]
    context: Mapping[str, Any] = MappingProxyType({})

    @property
    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """The parameters, with the seed. Tables of counters can be merged only if these are equal."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Return the sketch of both streams together."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the payload."""

    def digest(self) -> str:
        """Return the digest of this state, so that a batch can record the state from which it started."""
        return digest(self.to_bytes())

    def shared_context(self, other: StoredSketch) -> Mapping[str, Any]:
        """Return the context of a merged sketch; raise `InvalidValue` if the contexts differ."""
        if dict(self.context) != dict(other.context):
            raise InvalidValue(
                "context", f"be {dict(self.context)} to be combined", dict(other.context), "ask one of them"
            )
        return self.context


class CounterSketch(StoredSketch):
    """A sketch of numbers and arrays, written in the format of this module.

    A subclass defines its `shape`, `scalars` and `arrays`, and how a sketch is restored from them. This class converts
    them to bytes.
    """

    @abstractmethod
    def scalars(self) -> dict[str, Any]:
        """Return the counters that are single numbers."""

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the counters that are arrays, in the order in which they are written."""

    @classmethod
    @abstractmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        """Return the form of the arrays for these parameters and scalars; refuse wrong parameters or scalars."""

    @classmethod
    @abstractmethod
    def restore(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Self:
        """Restore a sketch from its stored parts, which have its `form`; refuse parts that contradict each other."""

    def to_bytes(self) -> bytes:
        return to_payload(self.kind, self.shape, self.scalars(), self.arrays(), self.context)

    @classmethod
    def from_bytes(cls, payload: bytes) -> Self:
        return cls.from_header(read_header(payload, cls.kind))

    @classmethod
    def from_header(cls, header: Header) -> Self:
        """Return the sketch of a payload whose header was read."""
        with refuse_malformed():
            form = cls.form(header.parameters, header.scalars)
            arrays = header.unpack(form)
            for name, array in arrays.items():
                form[name].check(name, array)
            sketch = cls.restore(header.parameters, header.scalars, arrays)
        sketch.context = header.context
        return sketch


class LibrarySketch(StoredSketch):
    """A sketch in the format of Apache DataSketches, which other programs read. It has no context."""

    family: ClassVar[int]
    """The family ID, by which DataSketches distinguishes its kinds; the third byte of a payload."""

    @classmethod
    @abstractmethod
    def from_native(cls, payload: bytes, types: Sequence[str] = ()) -> Self:
        """Read a sketch from bytes of DataSketches; refuse any other bytes. `types`: the types of the attributes."""


def to_payload(
    kind: str,
    parameters: Mapping[str, Any],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    context: Mapping[str, Any] = MappingProxyType({}),
) -> bytes:
    """Return a sketch as bytes. Equal sketches give equal bytes."""
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
    """Return the digest of a payload in hexadecimal: its own, or a computed one if the format has none.

    >>> digest(to_payload("bloom", {}, {}, {})) == digest(to_payload("bloom", {}, {}, {}))
    True
    >>> digest(b"of the library") == digest(b"on the library")
    False
    """
    if payload.startswith(MAGIC):
        return payload[-_DIGEST_BYTES:].hex()
    return hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).hexdigest()


def _bad(rule: str, got: object) -> Exception:
    return InvalidValue("payload", rule, got, REBUILD)


def read_header(payload: bytes, kind: str | None = None) -> Header:
    """Return the header of a payload from `to_payload`; refuse any other bytes, with the reason."""
    if len(payload) < _FRONT.size + _DIGEST_BYTES:
        raise _bad("be a whole sketch", f"{len(payload)} bytes")
    magic, version, header_bytes = _FRONT.unpack_from(payload)
    if magic != MAGIC:
        raise _bad(f"begin with {MAGIC!r}", payload[: len(MAGIC)])
    if version != FORMAT_VERSION:
        raise InvalidValue(
            "format version", f"be {FORMAT_VERSION}", version, "read it with the Spillway that wrote it"
        )
    body, told = payload[:-_DIGEST_BYTES], payload[-_DIGEST_BYTES:]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != told:
        raise _bad("match its digest", f"{len(payload)} corrupt or cut bytes")
    with refuse_malformed():
        header = json.loads(body[_FRONT.size : _FRONT.size + header_bytes])
        if not isinstance(header, dict) or set(header) != _HEADER_FIELDS:
            raise _bad(f"have a header of {', '.join(sorted(_HEADER_FIELDS))}", str(header)[:100])
        if not isinstance(header["kind"], str):
            raise _bad("name its kind", str(header["kind"])[:100])
        if kind is not None and header["kind"] != kind:
            raise InvalidValue("kind", f"be {kind}", header["kind"], "ask the sketch for what it can answer")
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

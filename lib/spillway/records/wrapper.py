"""Decompress delivered files. gzip and zstd wrappers are recognised by their first bytes, not by the file name.

A wrapped file is decompressed as a stream, in bounded memory. A file that is truncated, damaged, followed by other
bytes, wrapped twice, or larger inside than `max_decompressed_size` allows is refused as a whole. No part of it is
accepted: otherwise the accepted records would arrive a second time when the complete file, which has other bytes, is
delivered. Damage is detected if the wrapper has a checksum. gzip always has one, zstd only if the sender wrote one.

>>> import gzip
>>> open_decompressed(pa.BufferReader(gzip.compress(b"a,b"))).read(10)
b'a,b'
>>> open_decompressed(pa.BufferReader(gzip.compress(b"a,b")[:-2])).read(10)
Traceback (most recent call last):
    ...
spillway.records.rejects.WholeFile: the file must be whole and readable gzip
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from spillway.records.rejects import WholeFile

WRAPPERS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
INSIDE_AT_LEAST = 64 << 20
"""The decompressed size that any wrapped file may have: 64 MiB."""
INSIDE_TIMES = 200
"""The maximum ratio of decompressed to compressed size of a larger file. Real data seldom reach a ratio of 50."""


class SeekableBytes(Protocol):
    """Bytes with random access, such as an open file."""

    def read(self, count: int) -> bytes: ...

    def seek(self, position: int) -> Any: ...

    def size(self) -> int: ...


class ByteReader(Protocol):
    """Bytes that are read in order; `read` returns no bytes at the end."""

    def read(self, count: int) -> bytes: ...


def detect_wrapper(source: SeekableBytes) -> str | None:
    """Return the wrapper of the file by its first bytes, or None; then reset the source to its beginning."""
    first = _detect_wrapper(source)
    source.seek(0)
    return first


def max_decompressed_size(size: int) -> int:
    """Return the maximum decompressed size of a wrapped file of `size` bytes.

    >>> max_decompressed_size(1000), max_decompressed_size(1 << 30)
    (67108864, 214748364800)
    """
    return max(INSIDE_AT_LEAST, INSIDE_TIMES * size)


def open_decompressed(source: SeekableBytes) -> ByteReader:
    """Return the file without its wrapper, from its beginning."""
    wrapper = detect_wrapper(source)
    return source if wrapper is None else _DecompressingReader(source, wrapper)


def _detect_wrapper(source: SeekableBytes) -> str | None:
    source.seek(0)
    return _wrapper_name(source.read(4))


def _wrapper_name(first: bytes) -> str | None:
    return next((name for magic, name in WRAPPERS.items() if first.startswith(magic)), None)


class _DecompressingReader:
    """Decompresses a wrapped file, counts the decompressed bytes, and raises `WholeFile` if the file is not valid."""

    def __init__(self, source: SeekableBytes, wrapper: str) -> None:
        self.wrapper, self.most, self.given = wrapper, max_decompressed_size(source.size()), 0
        self.stream = pa.CompressedInputStream(_native(source), wrapper)

    def read(self, count: int) -> bytes:
        try:
            # not read(): if that fails, the buffer it allocated is never freed
            room = memoryview(bytearray(count))
            found = bytes(room[: self.stream.readinto(room)])
        except (OSError, pa.ArrowException, MemoryError) as error:
            remedy = "send the file again, whole; nothing of it was taken"
            problem = " ".join(str(error).split())
            raise WholeFile("the file", f"be whole and readable {self.wrapper}", problem, remedy) from None
        if not self.given and _wrapper_name(found[:4]) is not None:
            raise WholeFile(
                "the file", "be wrapped once", f"{_wrapper_name(found[:4])} in it", "unwrap it once"
            )
        self.given += len(found)
        if self.given > self.most:
            rule = f"hold at most {self.most:,} bytes"
            remedy = f"send it in parts, or not wrapped ({INSIDE_TIMES} times its size is the most)"
            raise WholeFile("the file", rule, f"more in {self.wrapper}", remedy)
        return found


def _native(source: SeekableBytes) -> Any:
    return source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, mode="r")

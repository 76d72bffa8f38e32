"""Bytes by path: local files, URIs of object stores, and `memory://` for what lives no longer than this process.

>>> write_bytes("memory://doc/a.txt", b"hello"), read_bytes("memory://doc/a.txt")
(None, b'hello')
>>> [(one.path, one.size) for one in list_files("memory://doc")]
[('memory://doc/a.txt', 5)]
>>> forget("memory://doc"), list_files("memory://doc")
(None, [])
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from spillway.clock import utc_now

MEMORY = "memory://"
HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfs"}
_held: dict[str, tuple[bytes, datetime]] = {}


@dataclass(frozen=True)
class Listed:
    """A file as its folder shows it."""

    path: str
    size: int
    modified_at: datetime


def plain_uri(path: str) -> str:
    """The path as Arrow and delta-rs spell it.

    >>> plain_uri("s3a://bucket/lake")
    's3://bucket/lake'
    """
    scheme, found, rest = path.partition("://")
    return f"{HADOOP_SCHEMES.get(scheme, scheme)}://{rest}" if found else path


def filesystem_of(path: str) -> tuple[pafs.FileSystem, str]:
    """The Arrow file system of a path or URI, and the path in it."""
    return pafs.FileSystem.from_uri(plain_uri(path)) if "://" in path else (pafs.LocalFileSystem(), path)


@contextmanager
def reading(path: str) -> Iterator[Any]:
    """The bytes, to be read at any place."""
    if path.startswith(MEMORY):
        held = _held.get(path)
        if held is None:
            raise FileNotFoundError(path)
        yield pa.BufferReader(held[0])
        return
    filesystem, inside = filesystem_of(path)
    with filesystem.open_input_file(inside) as source:
        yield source


@contextmanager
def writing(path: str) -> Iterator[Any]:
    """A sink; the folders above are made. What an error interrupts is not kept in memory."""
    if path.startswith(MEMORY):
        sink = io.BytesIO()
        yield sink
        _held[path] = (sink.getvalue(), utc_now())
        return
    filesystem, inside = filesystem_of(path)
    filesystem.create_dir(inside.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(inside, compression=None) as sink:
        yield sink


def read_bytes(path: str) -> bytes:
    """All of it, as it lies there (nothing is decompressed)."""
    with reading(path) as source:
        content: bytes = source.read()
    return content


def write_bytes(path: str, content: bytes) -> None:
    """All of it at once."""
    with writing(path) as sink:
        sink.write(content)


def remove(path: str) -> None:
    """Gone, if it was there."""
    if path.startswith(MEMORY):
        _held.pop(path, None)
        return
    filesystem, inside = filesystem_of(path)
    if filesystem.get_file_info(inside).type == pafs.FileType.File:
        filesystem.delete_file(inside)


def move(path: str, to: str) -> None:
    """To another path of the same file system; the folders above are made."""
    if path.startswith(MEMORY):
        _held[to] = _held.pop(path)
        return
    filesystem, inside = filesystem_of(path)
    target = filesystem_of(to)[1]
    filesystem.create_dir(target.rpartition("/")[0], recursive=True)
    filesystem.move(inside, target)


def folder_exists(path: str) -> bool:
    """Whether there is anything under the path."""
    if path.startswith(MEMORY):
        return any(name.startswith(path.rstrip("/") + "/") for name in list(_held))
    filesystem, inside = filesystem_of(path)
    return bool(filesystem.get_file_info(inside).type == pafs.FileType.Directory)


def list_files(folder: str) -> list[Listed]:
    """Every file below the folder, by name; none where there is no such folder."""
    root = folder.rstrip("/")
    if root.startswith(MEMORY):
        found = [
            Listed(path, len(content), at)
            for path, (content, at) in list(_held.items())
            if path.startswith(root + "/")
        ]
    else:
        filesystem, inside = filesystem_of(root)
        below = pafs.FileSelector(inside, allow_not_found=True, recursive=True)
        found = [
            Listed(root + entry.path.removeprefix(inside), int(entry.size), entry.mtime.astimezone(UTC))
            for entry in filesystem.get_file_info(below)
            if entry.is_file
        ]
    return sorted(found, key=lambda one: one.path)


def list_folders(folder: str) -> list[str]:
    """The names of the folders right below a folder; none where there is no such folder."""
    root = folder.rstrip("/")
    if root.startswith(MEMORY):
        below = (path.removeprefix(root + "/").split("/") for path in _held if path.startswith(root + "/"))
        return sorted({parts[0] for parts in below if len(parts) > 1})
    filesystem, inside = filesystem_of(root)
    found = filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True))
    return sorted(entry.base_name for entry in found if entry.type == pafs.FileType.Directory)


def forget(prefix: str) -> None:
    """Free what is held in memory below a path."""
    for path in [path for path in list(_held) if path.startswith(prefix.rstrip("/") + "/")]:
        _held.pop(path, None)

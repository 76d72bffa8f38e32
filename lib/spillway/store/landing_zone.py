"""List the files of a landing zone without following links; open a file only if it is still what was listed.

A sender that may deliver files must not be able to make Spillway read another file. On a disk, only a regular file that
is below the folder, and is reached without a link, is ever opened. Every other entry is listed with its problem. Memory
and object stores have no links, and an object appears there only when it is complete.

>>> from spillway.store.blobs import free_memory, write_bytes
>>> write_bytes("memory://zone/s/a.json", b"{}")
>>> [(one.path, one.size, one.appears_whole, one.problem) for one in list_landing_folder("memory://zone/s")]
[('memory://zone/s/a.json', 2, True, None)]
>>> free_memory("memory://zone")
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa

from spillway.errors import SpillwayError
from spillway.store import blobs

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMOTE_FILE_SYSTEMS = ("file", "hdfs", "viewfs")
_KINDS = (
    (stat.S_ISLNK, "a link", "deliver the file itself"),
    (stat.S_ISFIFO, "a named pipe", "deliver a file"),
    (stat.S_ISSOCK, "a socket", "deliver a file"),
    (stat.S_ISCHR, "a device", "deliver a file"),
    (stat.S_ISBLK, "a device", "deliver a file"),
)


@dataclass(frozen=True)
class LandingEntry:
    """A file as its folder shows it; `problem` says why it must not be opened: rule, value, remedy."""

    path: str
    size: int
    modified_at: datetime
    appears_whole: bool = False
    problem: tuple[str, str, str] | None = None


class LandingFileChanged(SpillwayError):
    """A file is gone, or has changed since it was listed."""


def list_landing_folder(folder: str) -> list[LandingEntry]:
    """Return every entry below the folder that is no folder, by name; none if there is no such folder."""
    root = folder.rstrip("/")
    if "://" in root:
        whole = root.partition("://")[0] not in _REMOTE_FILE_SYSTEMS
        return [LandingEntry(one.path, one.size, one.modified_at, whole) for one in blobs.list_files(root)]
    return sorted(_list_disk_folder(root), key=lambda one: one.path)


def leads_outside(folder: str, zone: str) -> str | None:
    """Return the real path of a folder on a disk if it is not below the zone; else None. For a URI, return None."""
    if "://" in folder or "://" in zone:
        return None
    real, within = os.path.realpath(folder), os.path.realpath(zone)
    return None if real == within or real.startswith(within.rstrip("/") + "/") else real


@contextmanager
def open_landing_file(folder: str, path: str, listed: tuple[int, datetime] | None = None) -> Iterator[Any]:
    """Open a file below the folder for random access.

    `listed`: the size and time that a file on a disk must have, before and after it is read. A URI is not checked.
    """
    if "://" in path:
        try:
            with blobs.open_for_reading(path) as source:
                yield source
        except FileNotFoundError as problem:
            raise LandingFileChanged("it is gone") from problem
        return
    try:
        file = _open_regular_file(folder, path)
    except FileNotFoundError as problem:
        raise LandingFileChanged("it is gone") from problem
    # the reader gets its own handle: unwrapping gzip closes its source, and the file is checked again afterwards
    with file, os.fdopen(os.dup(file.fileno()), "rb") as handed:
        seen = _size_and_time(file)
        if listed not in (None, seen):
            raise LandingFileChanged("it changed after it was listed")
        source = pa.PythonFile(handed, mode="r")
        try:
            yield source
        except Exception:
            if seen == _size_and_time(file):
                raise
        if seen != _size_and_time(file):
            raise LandingFileChanged("it changed while it was read")


def _size_and_time(file: BinaryIO) -> tuple[int, datetime]:
    found = os.fstat(file.fileno())
    return found.st_size, _moment(found)


def _open_regular_file(folder: str, path: str) -> BinaryIO:
    """Open a file if it is a regular file that is reached without a link."""
    real = os.path.realpath(folder)
    inside = os.path.relpath(path, folder)
    if os.path.realpath(path) != os.path.normpath(os.path.join(real, inside)) or inside.startswith(".."):
        raise LandingFileChanged("a link leads to it now")
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise LandingFileChanged("it is no regular file now")
    return os.fdopen(handle, "rb")


def _list_disk_folder(folder: str) -> Iterator[LandingEntry]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as problem:
        yield LandingEntry(_printable(folder), 0, _EPOCH, problem=_unreadable(problem))
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(found.st_mode):
            yield from _list_disk_folder(entry.path)
        else:
            wrong = _wrong_kind(found.st_mode) or _wrong_name(entry.path)
            yield LandingEntry(_printable(entry.path), found.st_size, _moment(found), problem=wrong)


def _wrong_kind(mode: int) -> tuple[str, str, str] | None:
    for is_kind, kind, remedy in _KINDS:
        if is_kind(mode):
            return "be a regular file", kind, remedy
    return None


def _wrong_name(path: str) -> tuple[str, str, str] | None:
    if path == _printable(path):
        return None
    return "have a name in UTF-8", _printable(PurePosixPath(path).name), "rename it"


def _unreadable(problem: OSError) -> tuple[str, str, str]:
    return "be readable", problem.strerror or str(problem), "grant the user of the run the right to read it"


def _printable(path: str) -> str:
    """Return the path as text; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _moment(found: os.stat_result) -> datetime:
    """Return the time of the last change in microseconds, as tables store it; 1970 if Python cannot represent it."""
    try:
        return _EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)
    except OverflowError:
        return _EPOCH

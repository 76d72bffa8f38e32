"""A landing zone's files: listed without following a link, read only when they are what they were listed as.

Whoever may drop a file there must not make us read another one. On a disk nothing but a regular file that lies below
the folder, and is reached without a link, is ever opened; everything else is listed with what is wrong with it. In
memory, and in an object store, there are no links, and an object is there once it is whole.

>>> from spillway.store.blobs import forget, write_bytes
>>> write_bytes("memory://zone/s/a.json", b"{}")
>>> [(one.path, one.size, one.appears_whole, one.problem) for one in list_landed("memory://zone/s")]
[('memory://zone/s/a.json', 2, True, None)]
>>> forget("memory://zone")
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
class Landed:
    """A file as its folder shows it; `problem` says why it is not to be opened: rule, value, remedy."""

    path: str
    size: int
    modified_at: datetime
    appears_whole: bool = False
    problem: tuple[str, str, str] | None = None


class GoneOrChanged(SpillwayError):
    """A file is not, or no longer, what it was listed as."""


def list_landed(folder: str) -> list[Landed]:
    """Everything below the folder that is no folder, by name; none where there is no such folder."""
    root = folder.rstrip("/")
    if "://" in root:
        whole = root.partition("://")[0] not in _REMOTE_FILE_SYSTEMS
        return [Landed(one.path, one.size, one.modified_at, whole) for one in blobs.list_files(root)]
    return sorted(_below(root), key=lambda one: one.path)


def leads_outside(folder: str, zone: str) -> str | None:
    """Where a folder on a disk really is when that is not below the zone; None where it is, or is no path."""
    if "://" in folder or "://" in zone:
        return None
    real, within = os.path.realpath(folder), os.path.realpath(zone)
    return None if real == within or real.startswith(within.rstrip("/") + "/") else real


@contextmanager
def open_landed(folder: str, path: str, listed: tuple[int, datetime] | None = None) -> Iterator[Any]:
    """A file below the folder, to be read at any place; `listed`: its size and time, which it must have all along."""
    if "://" in path:
        try:
            with blobs.reading(path) as source:
                yield source
        except FileNotFoundError as problem:
            raise GoneOrChanged("it is gone") from problem
        return
    try:
        file = _opened(folder, path)
    except FileNotFoundError as problem:
        raise GoneOrChanged("it is gone") from problem
    # a handle of its own for the reader: what unwraps gzip closes what it is given, and the file is looked at again
    with file, os.fdopen(os.dup(file.fileno()), "rb") as handed:
        seen = _seen(file)
        if listed not in (None, seen):
            raise GoneOrChanged("it changed after it was listed")
        source = pa.PythonFile(handed, mode="r")
        try:
            yield source
        except Exception:
            if seen == _seen(file):
                raise
        if seen != _seen(file):
            raise GoneOrChanged("it changed while it was read")


def _seen(file: BinaryIO) -> tuple[int, datetime]:
    found = os.fstat(file.fileno())
    return found.st_size, _moment(found)


def _opened(folder: str, path: str) -> BinaryIO:
    """The file, opened if it is a regular one that no link leads to."""
    real = os.path.realpath(folder)
    inside = os.path.relpath(path, folder)
    if os.path.realpath(path) != os.path.normpath(os.path.join(real, inside)) or inside.startswith(".."):
        raise GoneOrChanged("a link leads to it now")
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise GoneOrChanged("it is no regular file now")
    return os.fdopen(handle, "rb")


def _below(folder: str) -> Iterator[Landed]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as problem:
        yield Landed(_printable(folder), 0, _EPOCH, problem=_unreadable(problem))
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(found.st_mode):
            yield from _below(entry.path)
        else:
            wrong = _wrong_kind(found.st_mode) or _wrong_name(entry.path)
            yield Landed(_printable(entry.path), found.st_size, _moment(found), problem=wrong)


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
    return "be readable", problem.strerror or str(problem), "give whoever takes it in the right to read it"


def _printable(path: str) -> str:
    """The path itself where it is text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _moment(found: os.stat_result) -> datetime:
    """To the microsecond, as tables keep it; whatever a disk may say, it has a date."""
    try:
        return _EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)
    except OverflowError:
        return _EPOCH

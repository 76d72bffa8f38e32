"""Read, write and list bytes by path: local files, URIs of object stores, and `memory://` for the life of this process.

>>> write_bytes("memory://doc/a.txt", b"hello"), read_bytes("memory://doc/a.txt")
(None, b'hello')
>>> [(one.path, one.size) for one in list_files("memory://doc")]
[('memory://doc/a.txt', 5)]
>>> free_memory("memory://doc"), list_files("memory://doc")
(None, [])
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from spillway.clock import utc_now
from spillway.errors import StoreFault

MEMORY = "memory://"
HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfs"}
_held: dict[str, tuple[bytes, datetime]] = {}

_ANSWERS = (
    (
        r"URL scheme is not allowed",
        "be reached over https",
        "set AWS_ALLOW_HTTP=true if AWS_ENDPOINT_URL must be http, or write https:// there",
    ),
    (
        r"loading credentials|IMDS|169\.254\.|InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|SignatureDoesNotMatch"
        r"|SIGNATURE_DOES_NOT_MATCH|ExpiredToken|EXPIRED_TOKEN|InvalidToken|InvalidClientTokenId|UNRECOGNIZED_CLIENT",
        "accept the credentials",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN of a temporary key) in the environment "
        "of every process; profiles of ~/.aws are not read by all of them",
    ),
    (
        r"403 Forbidden|HTTP status 403|ACCESS_DENIED|AccessDenied|necessary privileges",
        "permit the request",
        "check the key, and permit it to list, read, write and delete below this path",
    ),
    (
        r"NoSuchBucket|NO_SUCH_BUCKET|Bucket '.*' not found",
        "have the bucket",
        "create the bucket, or correct SPILLWAY_LAKE, SPILLWAY_DESTINATION or SPILLWAY_LANDING",
    ),
    (
        r"Received redirect|PermanentRedirect|HTTP status 301",
        "lie in the requested region",
        "set AWS_REGION to the bucket's region",
    ),
    (
        r"NETWORK_CONNECTION|error sending request|[Cc]onnection|[Cc]ould not (?:connect|resolve)|dns error|timed out",
        "be reachable",
        "check AWS_ENDPOINT_URL, and that this machine can reach it; it is safe to run again",
    ),
    (r"", "answer without an error", "check the store's message; it is safe to run again"),
)
"""Answers of object stores: a pattern, the rule that is broken, the remedy. The first match counts."""
_OF_A_STORE = re.compile(
    r"AWS Error|Generic \w+ error|Object at location|Error performing|google::cloud::|Azure Error|curlCode"
    r"|Bucket '.*' not found"
)
_S3_ANSWER = re.compile(
    r"(?:<\?xml[^>]*>\s*)?<Error>.*?<Code>(.*?)</Code>.*?<Message>(.*?)</Message>.*</Error>"
)
_LONGEST_ANSWER = 280


@dataclass(frozen=True)
class ListedFile:
    """A file as its folder shows it."""

    path: str
    size: int
    modified_at: datetime


def plain_uri(path: str) -> str:
    """Return the path as Arrow and delta-rs spell it.

    >>> plain_uri("s3a://bucket/lake")
    's3://bucket/lake'
    """
    scheme, found, rest = path.partition("://")
    return f"{HADOOP_SCHEMES.get(scheme, scheme)}://{rest}" if found else path


def filesystem_of(path: str) -> tuple[pafs.FileSystem, str]:
    """Return the Arrow file system of a path or URI, and the path in it."""
    if "://" not in path:
        return pafs.LocalFileSystem(), path
    with translate_store_errors(path):
        return pafs.FileSystem.from_uri(plain_uri(path))  # may ask the store for the bucket's region


def store_fault(path: str, problem: BaseException) -> StoreFault:
    """Return a store's error as one problem with a remedy.

    >>> print(store_fault("s3://b/t", OSError("Kernel error -> Generic S3 error\\n  URL scheme is not allowed")))
    s3://b/t: `store` must be reached over https, got 'Kernel error -> Generic S3 error: URL scheme is not allowed'; \
set AWS_ALLOW_HTTP=true if AWS_ENDPOINT_URL must be http, or write https:// there
    """
    lines = re.sub(r"\x1b\[[0-9;]*m|\u21b3", "", str(problem)).split(
        "\n"
    )  # delta-rs colours a tree of causes
    said = ": ".join(" ".join(line.split()) for line in lines if line.strip()) or type(problem).__name__
    said = _S3_ANSWER.sub(r"\1: \2", said)
    _, rule, remedy = next(one for one in _ANSWERS if re.search(one[0], said))
    if len(said) > _LONGEST_ANSWER:
        said = (
            f"{said[: _LONGEST_ANSWER // 2]} ... {said[-_LONGEST_ANSWER // 2 :]}"  # the cause is at the end
        )
    return StoreFault("store", rule, said, remedy, path)


@contextmanager
def translate_store_errors(path: str, missing_too: bool = False) -> Iterator[None]:
    """Raise errors of an object store as `StoreFault`; errors of a local disk are unchanged.

    `missing_too`: raise it also if a file does not exist.
    """
    try:
        yield
    except OSError as problem:
        if "://" not in path or (isinstance(problem, FileNotFoundError) and not missing_too):
            raise
        raise store_fault(path, problem) from problem


def raise_store_fault(path: str, problem: BaseException) -> None:
    """Raise the store's fault that caused an exception; return if there is none.

    Readers report each `OSError` as a damaged file. If the store failed, the file may be intact.
    """
    chain: list[BaseException] = []
    one: BaseException | None = problem
    while one is not None and one not in chain:
        if isinstance(one, StoreFault):
            raise one
        if isinstance(one, OSError) and "://" in path and _OF_A_STORE.search(str(one)):
            raise store_fault(path, one) from one
        chain.append(one)
        one = one.__cause__ or one.__context__


@contextmanager
def open_for_reading(path: str) -> Iterator[Any]:
    """Open a file for random access."""
    if path.startswith(MEMORY):
        held = _held.get(path)
        if held is None:
            raise FileNotFoundError(path)
        yield pa.BufferReader(held[0])
        return
    filesystem, inside = filesystem_of(path)
    with translate_store_errors(path):
        source = filesystem.open_input_file(inside)
    try:
        with source:
            yield source
    except OSError as problem:
        raise_store_fault(path, problem)
        raise


@contextmanager
def open_for_writing(path: str) -> Iterator[Any]:
    """Open a file for writing, and create the folders above it. In memory, an interrupted write stores nothing."""
    if path.startswith(MEMORY):
        sink = io.BytesIO()
        yield sink
        _held[path] = (sink.getvalue(), utc_now())
        return
    filesystem, inside = filesystem_of(path)
    with translate_store_errors(path):
        filesystem.create_dir(inside.rpartition("/")[0], recursive=True)
        sink = filesystem.open_output_stream(inside, compression=None)
    try:
        with sink:
            yield sink
    except OSError as problem:
        raise_store_fault(path, problem)
        raise


def read_bytes(path: str) -> bytes:
    """Return the whole content as stored; nothing is decompressed."""
    with open_for_reading(path) as source:
        content: bytes = source.read()
    return content


def write_bytes(path: str, content: bytes) -> None:
    """Write the whole content at once."""
    with open_for_writing(path) as sink:
        sink.write(content)


def remove(path: str) -> None:
    """Delete a file if it exists."""
    if path.startswith(MEMORY):
        _held.pop(path, None)
        return
    filesystem, inside = filesystem_of(path)
    with translate_store_errors(path):
        if filesystem.get_file_info(inside).type == pafs.FileType.File:
            filesystem.delete_file(inside)


def remove_folder(path: str) -> None:
    """Delete a folder with everything below it, if it exists."""
    if path.startswith(MEMORY):
        free_memory(path)
        return
    filesystem, inside = filesystem_of(path)
    with translate_store_errors(path):
        if filesystem.get_file_info(inside).type == pafs.FileType.Directory:
            filesystem.delete_dir(inside)


def move(path: str, to: str) -> None:
    """Move a file within its file system, and create the folders above the target."""
    if path.startswith(MEMORY):
        _held[to] = _held.pop(path)
        return
    filesystem, inside = filesystem_of(path)
    target = filesystem_of(to)[1]
    with translate_store_errors(path):
        filesystem.create_dir(target.rpartition("/")[0], recursive=True)
        filesystem.move(inside, target)


def folder_exists(path: str) -> bool:
    """Return whether a folder exists; in memory, whether there is any file below it."""
    if path.startswith(MEMORY):
        return any(name.startswith(path.rstrip("/") + "/") for name in list(_held))
    filesystem, inside = filesystem_of(path)
    with translate_store_errors(path):
        return bool(filesystem.get_file_info(inside).type == pafs.FileType.Directory)


def list_files(folder: str) -> list[ListedFile]:
    """Return every file below the folder, by name; none if there is no such folder."""
    root = folder.rstrip("/")
    if root.startswith(MEMORY):
        found = [
            ListedFile(path, len(content), at)
            for path, (content, at) in list(_held.items())
            if path.startswith(root + "/")
        ]
    else:
        filesystem, inside = filesystem_of(root)
        below = pafs.FileSelector(inside, allow_not_found=True, recursive=True)
        with translate_store_errors(folder):
            entries = filesystem.get_file_info(below)
        found = [
            ListedFile(root + entry.path.removeprefix(inside), int(entry.size), entry.mtime.astimezone(UTC))
            for entry in entries
            if entry.is_file
        ]
    return sorted(found, key=lambda one: one.path)


def list_folders(folder: str) -> list[str]:
    """Return the names of the folders directly in a folder; none if there is no such folder."""
    root = folder.rstrip("/")
    if root.startswith(MEMORY):
        below = (path.removeprefix(root + "/").split("/") for path in _held if path.startswith(root + "/"))
        return sorted({parts[0] for parts in below if len(parts) > 1})
    filesystem, inside = filesystem_of(root)
    with translate_store_errors(folder):
        found = filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True))
    return sorted(entry.base_name for entry in found if entry.type == pafs.FileType.Directory)


def free_memory(prefix: str) -> None:
    """Free the memory of all files below a path."""
    for path in [path for path in list(_held) if path.startswith(prefix.rstrip("/") + "/")]:
        _held.pop(path, None)

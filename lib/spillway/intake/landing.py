"""The landing zone: where a stream's files are, which date they are of, what they hold byte for byte."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.fs as pafs

from spillway.contracts import StreamContract
from spillway.records import count_records
from spillway.store.files import open_filesystem
from spillway.store.tables import Lake

DATED_FOLDER = re.compile(r"(?:^|[/=])(\d{4}-\d{2}-\d{2})/")


def landing_root(contract: StreamContract, landing: str) -> str:
    """The folder where the stream's files land."""
    path = contract.path
    return path if "://" in path or path.startswith("/") else f"{landing}/{path}"


def batch_date_of(name: str, run_date: date) -> date:
    """The landing folder's date where there is one, else the run's.

    >>> batch_date_of("weather/2013-04-30/part-1.json", date(2026, 1, 1))
    datetime.date(2013, 4, 30)
    """
    found = DATED_FOLDER.search(name)
    try:
        return date.fromisoformat(found.group(1)) if found else run_date
    except ValueError:
        return run_date


@dataclass(frozen=True)
class Seen:
    """A file as the landing zone shows it."""

    path: str
    size: int
    modified_at: datetime


def empty_files(filesystem: pafs.FileSystem, path: str, root: str) -> list[Seen]:
    """Delivered files without a byte, which Spark's file source passes over in silence."""
    found = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    hidden = re.compile(r"(^|/)[._]")
    return [
        Seen(root + file.path.removeprefix(path), 0, file.mtime.astimezone(UTC))
        for file in found
        if file.is_file and file.size == 0 and not hidden.search(file.path.removeprefix(path))
    ]


def digests_of(lake: Lake, contract: StreamContract, paths: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Digest and number of records of every file, each read once, in parallel."""

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                content = content_of(paths[index])
                digest = hashlib.sha256(content).hexdigest()
                yield pa.record_batch(
                    [[paths[index]], [digest], pa.array([count_records(contract, content)], pa.int64())],
                    names=["path", "digest", "records"],
                )

    tasks = lake.spark.range(0, len(paths), 1, min(len(paths), 256))
    rows = tasks.mapInArrow(measure, "path string, digest string, records bigint").collect()
    return {row["path"]: (row["digest"], int(row["records"])) for row in rows}


def content_of(path: str) -> bytes:
    filesystem, inner = open_filesystem(path)
    with filesystem.open_input_stream(inner, compression=None) as source:
        content: bytes = source.read()
    return content


def name_of(lake: Lake, path: str) -> str:
    """The file's name under the landing zone; its full path when it lies elsewhere."""
    root = lake.settings.landing.rstrip("/") + "/"
    return path.removeprefix(root)


def path_of(landing: str, name: str) -> str:
    return name if "://" in name or name.startswith("/") else f"{landing}/{name}"


def plain_path(uri: str) -> str:
    """Spark's `file:/a/b%20c` as the plain path."""
    from urllib.parse import unquote

    return unquote(re.sub(r"^file:/+", "/", uri)) if uri.startswith("file:") else uri

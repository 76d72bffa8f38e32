"""Serialise the actions of a commit as delta-rs writes them to a table's log, and count their bytes.

A commit is a file of JSON lines: `commitInfo`, an `add` for each file that the table gains, and a `remove` for each
file that it loses. The log of a destination is sent with the rows, so a plan must know its size before the commit is
made. The times of the commit are not known then, but they always have the same number of digits.

>>> one = Written("day=1/part-1.parquet", {"day": "1"}, 1234, 10, 1_767_225_600_000, '{"numRecords":10}', {})
>>> commit_bytes([one, one]) - commit_bytes([one]) == add_bytes(one)
True
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from spillway.store.files import DataFile
from spillway.store.writing import Written, stated_edges

AS_IT_IS = "!$&'()+,-./:;=@_~"
"""Characters of a path that delta-rs does not escape in a log; other programs escape fewer characters."""
_THIRTEEN_DIGITS = 1_767_225_600_000
"""A time in milliseconds; every time from 2001 to 2286 has as many digits."""


def commit_lines(
    added: Sequence[Written],
    removed: Sequence[DataFile] = (),
    folder: str = "",
    same_rows: bool = False,
    at_ms: int = _THIRTEEN_DIGITS,
) -> list[bytes]:
    """Return the lines of a commit, without newlines: `commitInfo`, then the files added and removed.

    `folder`: the folder of the table, with which the paths of removed files start.
    """
    partitions = [one.partition for one in added] + [dict(file.partition) for file in removed]
    named = list(partitions[0]) if partitions else []
    by = "delta-rs.py-" + version("deltalake")
    info = {
        "timestamp": at_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(named, separators=(",", ":"))},
        "engineInfo": by.replace(".py", ":py"),
        "clientVersion": by,
    }
    lines = [_line("commitInfo", info)]
    for one in added:
        add = {
            "path": quote(one.path, safe=AS_IT_IS),
            "partitionValues": dict(one.partition),
            "size": one.size,
            "modificationTime": one.written_at_ms,
            "dataChange": not same_rows,
            "stats": one.statistics,
            **dict.fromkeys(("tags", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")),
        }
        lines.append(_line("add", add))
    for file in removed:
        remove = {
            "path": quote(file.path.removeprefix(f"{folder}/"), safe=AS_IT_IS),
            "dataChange": not same_rows,
            "deletionTimestamp": at_ms,
            "extendedFileMetadata": True,
            "partitionValues": {
                name: None if value is None else str(value) for name, value in file.partition
            },
            "size": file.size,
        }
        lines.append(_line("remove", remove))
    return lines


def commit_bytes(
    added: Sequence[Written], removed: Sequence[DataFile] = (), folder: str = "", same_rows: bool = False
) -> int:
    """Return the bytes of a commit in the table's log."""
    return len(b"\n".join(commit_lines(added, removed, folder, same_rows)))


def commit_info_bytes(added: Sequence[Written]) -> int:
    """Return the bytes that a commit takes in addition to its files."""
    return len(commit_lines(added)[0])


def add_bytes(one: Written) -> int:
    """Return the bytes of the action that adds a file, with the newline before it."""
    return len(b"\n") + len(commit_lines([one])[1])


def as_written(file: DataFile, folder: str) -> Written:
    """Return a file of the log as it was when it was written, as far as the log states it."""
    edges = {name: (low, dict(file.maximum).get(name)) for name, low in file.minimum}
    return Written(
        file.path.removeprefix(f"{folder}/"),
        {name: str(value) for name, value in file.partition},
        file.size,
        file.records,
        file.written_at_ms,
        stated_edges(file.records, edges, {name: count for name, count in file.nulls if count is not None}),
        {},
    )


def _line(name: str, action: Mapping[str, Any]) -> bytes:
    return json.dumps({name: action}, ensure_ascii=False, separators=(",", ":")).encode()

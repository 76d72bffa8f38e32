"""Rows that tests write: facts of `models`, batches, and tuples of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from spillway.batch import RECORDED, Batch, LandingFile
from spillway.engine import ProcessEngine
from spillway.store.tables import Draft, FileTask, Table, Tables

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = date(2026, 1, 1)
ATTRIBUTES = [("v", "double"), ("at", "timestamp"), ("day", "date"), ("text", "string"), ("flag", "boolean")]
LONG = "a text of more than thirty-two letters, as they come"
NOON = datetime(2026, 1, 1, 12, 0, 0, 1234, tzinfo=UTC)
FILE = LandingFile("s/2026-01-01/a.json", 10, "d1", 3, -1, "ingested", NOW)


def fact(stream: str = "s", version: int = 1, value: str = "9") -> dict[str, Any]:
    """A row of `models`."""
    return {
        "stream": stream,
        "lever": "thin",
        "fact": "share",
        "subject": "",
        "version": version,
        "value": value,
        "evidence": "{}",
        "trained_from_seq": 0,
        "trained_to_seq": 9,
        "created_at": NOW,
    }


def told(tables: Tables) -> list[tuple[str, int, str]]:
    """What `models` says: stream, version, value."""
    rows = tables.at("models").rows(["stream", "version", "value"]).to_pylist()
    return sorted((row["stream"], row["version"], row["value"]) for row in rows)


def tell(tables: Tables, stream: str = "s", version: int = 1, value: str = "9") -> None:
    """Replace one version's fact."""
    tables.at("models").replace([fact(stream, version, value)], stream=stream, version=version)


def batch(number: int, stream: str = "s", **more: Any) -> Batch:
    made = Batch(stream, number, DAY, RECORDED, (FILE, FILE), 0, 2, "run", NOW, NOW, models={"cycle": 1})
    return made.with_changes(NOW, **more)


def tuples(number: int, count: int) -> list[dict[str, Any]]:
    """The tuples of a batch: every type there is, with everything odd in them."""
    return [
        {
            "seq": number * 100 + i,
            "batch": number,
            "scheme": 0,
            "v": [1.5, float("nan"), None, float("-inf"), -0.0][i % 5],
            "at": NOON + timedelta(microseconds=i) if i % 3 else None,
            "day": DAY + timedelta(days=i),
            "text": [LONG, "", None, "ß\0"][i % 4],
            "flag": i % 2 == 0,
        }
        for i in range(count)
    ]


def making(number: int, counts: dict[str, int], count: int) -> Iterator[pa.Table]:
    """A table a few rows long at a time, its columns in an order of their own."""
    made = tuples(number, count)
    counts["rows"] = count
    for start in range(0, count, 3):
        part = pa.Table.from_pylist(made[start : start + 3])
        yield part.select(sorted(part.column_names))


def transmitted(tables: Tables) -> Table:
    added = [("scheme", "bigint", "the row's scheme")]
    return tables.at("transmitted", "s").with_attributes(ATTRIBUTES, added)


def drafted(table: Table, number: int, count: int, make: Callable[..., Iterator[pa.Table]] = making) -> Draft:
    pieces = [FileTask({"batch_date": str(DAY)}, number, number)]
    return table.draft(ProcessEngine(), pieces, partial(make, count=count))


def send(tables: Tables, number: int, count: int) -> None:
    """Replace a batch's tuples in `transmitted` of the stream s."""
    table = transmitted(tables)
    table.publish(drafted(table, number, count).written, batch_date=DAY, batch=number)


def counted(tables: Tables) -> dict[int, int]:
    """Tuples in `transmitted` by batch."""
    found = transmitted(tables).rows(["batch"]).group_by("batch").aggregate([("batch", "count")])
    return {row["batch"]: row["batch_count"] for row in found.to_pylist()}


def on_disk(tables: Tables) -> set[str]:
    """The Parquet files below the lake, in a table or not."""
    from spillway.store.blobs import list_files

    return {one.path for one in list_files(tables.settings.lake) if one.path.endswith(".parquet")}


def in_tables(*tables: Table) -> set[str]:
    return {file.path for table in tables for file in table.files()}
